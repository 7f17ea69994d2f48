"""The chooser: which codec for this column, now.

A column is worth max(time to encode, bytes / write bandwidth), since encoding and writing overlap; a tenth of the
smaller of the two is added, so that of equally fast codecs the smaller wins. Sizes come from a sample (`stats`),
times from `COSTS`, which `kedge bench streams` measures.

Invariants:
- What is chosen always encodes: a column that has left the range of its codec (more distinct values, more digits)
  is looked at again and, at worst, framed or written as it is. Nothing lossy is ever chosen.
- A codec is kept until another is a tenth better on the same sample (hysteresis), and is reviewed once in four million
  rows, or as soon as a unit comes out a quarter larger or smaller than the units before it, or the write bandwidth is
  measured at less than half or more than twice what the choice went by.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from math import log2

from kedge.codec import decimal, dictionary, frame, parts, plain, stats
from kedge.codec.encoded import Encoded, Values, check
from kedge.codec.stats import Stats

BANDWIDTH = 0.5e9  # bytes per second, until the writer has measured its own
REVIEW_ROWS = 1 << 22
RECHECK_ROWS = 1 << 17  # after values have left the range of a codec
ENTRIES_MAX = 1 << 15  # of a dictionary: 256 KiB of values stay in the L2 cache
EXCEPTIONS_MAX = 0.125  # of the rows of a decimal column
DRIFT = 1.25
GAIN = 0.9

# Nanoseconds per value on one core, and for what there may be few or many of.
COSTS = {
    "plain": 0.02, "frame": 0.4, "delta": 0.6, "delta2": 0.65, "xor": 0.6, "simple8b": 2.0,
    "runs": 0.4, "dictionary": 1.4, "decimal": 0.45, "lz4": 7.0, "zstd": 16.0,
}  # fmt: skip
RUN_NS = 5.0
EXCEPTION_NS = 10.0
ENTRY_NS = 5.0  # a new entry of a dictionary
SPREAD_NS = 0.0001  # a lookup, for each entry that the table is larger: caches are left behind


class Chooser:
    """Encodes the units of one column; the writer keeps one for each column. Threads may share it: what they race
    for are hints.

    >>> import numpy as np
    >>> chooser = Chooser()
    >>> encoded = chooser.encode(np.repeat(np.arange(100), 100))
    >>> chooser.option.name
    'runs'
    """

    def __init__(self, bandwidth: float = BANDWIDTH) -> None:
        self.bandwidth = self._reviewed_at = bandwidth  # bytes per second
        self.option = Option("plain", 8.0, COSTS["plain"])
        self.changes = 0  # how often the codec was changed
        self._rows_left = 0  # until the next review
        self._usual = 0.0  # bytes per value since the codec was chosen

    def encode(self, values: Values) -> Encoded:
        """Encode one unit by the codec that is in force, which a review may change first."""
        check(values)
        if not values.size:
            return plain.CODEC.encode(values)
        if self._rows_left <= 0:
            self._review(values)
        option = self.option  # another thread may change it
        encoded = _encode(values, option)
        if encoded is None:  # out of range: look at these very values
            option = self._review(values, without=option.name.partition(">")[0])
            self._rows_left = RECHECK_ROWS
            encoded = _encode(values, option) or frame.CODEC.encode(values)
        self._watch(encoded.body.size / values.size, values.size)
        return encoded if encoded.body.size < values.nbytes else plain.CODEC.encode(values)

    def measured(self, bandwidth: float) -> None:
        """The writer has measured its bandwidth: the next review goes by it, and comes at once when it is another."""
        if not self._reviewed_at / 2 <= bandwidth <= self._reviewed_at * 2:
            self._rows_left = 0
        self.bandwidth = bandwidth

    def _review(self, values: Values, without: str = "") -> Option:
        """Choose again; what was in force stays unless something is clearly better."""
        self._reviewed_at = self.bandwidth
        rated = {option.name: option for option in options(values, self.bandwidth)}
        rated = {name: option for name, option in rated.items() if not without or not name.startswith(without)}
        best = min(rated.values(), key=lambda option: option.cost_ns(self.bandwidth))
        held = rated.get(self.option.name)
        if held and self._usual and best.cost_ns(self.bandwidth) > GAIN * held.cost_ns(self.bandwidth):
            best = held
        self.changes += best.name != self.option.name
        self.option = best
        self._rows_left = REVIEW_ROWS
        self._usual = 0.0
        return best

    def _watch(self, size: float, rows: int) -> None:
        """Note how large a value came out; a drift calls for a review of the next unit."""
        self._rows_left -= rows
        self._usual = self._usual or size
        if not self._usual / DRIFT <= size <= self._usual * DRIFT:
            self._rows_left = 0


@dataclass(frozen=True, slots=True)
class Option:
    """A way to encode a column, with what it is expected to take per value."""

    name: str
    size: float  # bytes per value
    time_ns: float  # per value
    digits: int = 0  # of decimal
    distinct: int = 0  # estimated

    def cost_ns(self, bandwidth: float) -> float:
        """What a value costs when encoding and writing overlap."""
        write_ns = self.size / bandwidth * 1e9
        return max(self.time_ns, write_ns) + 0.1 * min(self.time_ns, write_ns)


class Choosers:
    """A writer's choosers, one for each column by any key (a column's number and which of its buffers, say).

    >>> import numpy as np
    >>> choosers = Choosers()
    >>> encoded = choosers.encode(("fare", "values"), np.arange(10))
    """

    def __init__(self, bandwidth: float = BANDWIDTH) -> None:
        self._bandwidth = bandwidth
        self._kept: dict[Hashable, Chooser] = {}

    def encode(self, key: Hashable, values: Values) -> Encoded:
        """Encode one unit of the column `key`."""
        return self._kept.setdefault(key, Chooser(self._bandwidth)).encode(values)

    def measured(self, bandwidth: float) -> None:
        """The writer has measured its bandwidth, in bytes per second: the next reviews go by it."""
        self._bandwidth = bandwidth
        for chooser in list(self._kept.values()):
            chooser.measured(bandwidth)


def _encode(values: Values, option: Option) -> Encoded | None:
    """None when the values have left the range of the option."""
    name, _, inner = option.name.partition(">")
    if name == "dictionary":
        return dictionary.encode_upto(values, min(2 * option.distinct + 256, values.size), inner)
    if name == "decimal":
        return decimal.encode_upto(values, option.digits, int(values.size * EXCEPTIONS_MAX), inner=inner)
    return parts.by_name[name].encode(values, inner)


def options(values: Values, bandwidth: float) -> list[Option]:
    """Every way to encode the column that might pay, by its sample."""
    item, rows = values.itemsize, values.size
    sample = stats.take(values)
    found = [Option("plain", item, COSTS["plain"]), *_light(stats.look(sample, rows), rows)]
    if values.dtype.kind == "f" and item >= 4:
        found += _decimals(sample, rows)
    if min(option.size for option in found) > item / 2:
        found += _pressed(sample[0], min(option.cost_ns(bandwidth) for option in found))
    return found


def _light(seen: Stats, rows: int) -> Iterator[Option]:
    """The codecs whose sizes follow from statistics."""
    head = 10 / 1024
    for name, bits in (
        ("frame", seen.frame_bits),
        ("delta", seen.delta_bits),
        ("delta2", seen.delta2_bits),
        ("xor", seen.xor_bits),
    ):
        yield Option(name, bits / 8 + head, COSTS[name])
    per_run = (seen.run_bits + seen.length_bits) / 8 + 2 * head
    yield Option("runs", seen.runs * per_run, COSTS["runs"] + RUN_NS * seen.runs)
    if seen.distinct <= min(ENTRIES_MAX, rows // 2):
        codes = (log2(max(1, seen.distinct)) + 0.25) / 8 + head  # smooth: the number of entries is a guess
        table = seen.distinct * (seen.frame_bits + 1) / 8 / rows
        time_ns = COSTS["dictionary"] + ENTRY_NS * seen.distinct / rows + SPREAD_NS * seen.distinct
        yield Option("dictionary", codes + table, time_ns + COSTS["frame"], 0, seen.distinct)


def _decimals(sample: tuple[Values, Values], rows: int) -> Iterator[Option]:
    stretches, spread = sample
    digits = decimal.best_digits(spread)
    numbers, exceptions = decimal.scale(stretches, digits)
    numbers = numbers.copy(), decimal.scale(spread, digits)[0]
    share = exceptions / stretches.size
    if share > EXCEPTIONS_MAX / 2:
        return
    around = share * (stretches.itemsize + 2)
    time_ns = COSTS["decimal"] + share * EXCEPTION_NS
    for option in _light(stats.look(numbers, rows), rows):
        if option.name not in ("xor", "dictionary"):  # a dictionary of the floats has the same codes
            yield Option(
                "decimal>" + option.name, option.size + around, option.time_ns + time_ns, digits, option.distinct
            )


def _pressed(sample: Values, best_ns: float) -> Iterator[Option]:
    """What has to be tried to know its size; not when its time alone is more than the best cost so far."""
    names = ("lz4", "zstd") if sample.itemsize == 1 else ("simple8b", "lz4", "zstd")
    for name in names:
        time_ns = COSTS[name] * (sample.itemsize / 8 if name != "simple8b" else 1)
        if time_ns < best_ns:
            size = parts.by_name[name].encode(sample).body.size / sample.size
            yield Option(name, size, time_ns)
