"""A slow, independent model of a windowed query: plain Python dictionaries, one row at a time.

It replays the recorded (ranges, late_us, close_us) of each batch, so it is also right when rows were late. It shares
no code with the runners: rows and keys are Python values, windows are computed with plain integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = tuple[Any, ...]


@dataclass
class CountAndSum:
    """`SELECT window(ts, width), key..., count(*), sum(value) GROUP BY ...`, batch by batch.

    `key` and `value` take a row apart; `keep` is the WHERE clause; `time_us` the event time.
    """

    width_us: int
    time_us: Callable[[Row], int]
    key: Callable[[Row], Row]
    value: Callable[[Row], Any]
    keep: Callable[[Row], bool] = lambda _: True
    open: dict[tuple[int, Row], list[Any]] = field(default_factory=dict[tuple[int, Row], list[Any]])
    late: int = 0

    def batch(self, rows: Iterable[Row], late_us: int, close_us: int) -> list[Row]:
        """The rows (start, key..., count, sum) of the windows that this batch closes, sorted."""
        for row in rows:
            if not self.keep(row):
                continue
            start = self.time_us(row) // self.width_us * self.width_us
            if start + self.width_us <= late_us:
                self.late += 1
                continue
            group = self.open.setdefault((start, self.key(row)), [0, None])
            group[0] += 1
            value = self.value(row)
            if value is not None:
                group[1] = value if group[1] is None else group[1] + value
        closed = [(at, group) for at, group in self.open.items() if at[0] + self.width_us <= close_us]
        for at, _ in closed:
            del self.open[at]
        return sorted(
            ((at[0], *at[1], *group) for at, group in closed), key=lambda row: tuple(map(_orderable, row))
        )


def _orderable(value: Any) -> tuple[bool, Any]:
    return (value is not None, value)


def replay(
    model: CountAndSum, batches: Sequence[Mapping[str, Any]], rows: Mapping[tuple[str, int], Sequence[Row]]
) -> list[list[Row]]:
    """The model's results for each recorded batch; `rows` are all input rows by (input, partition)."""
    return [
        model.batch(
            (row for name, partition, start, end in batch["ranges"] for row in rows[name, partition][start:end]),
            batch["late_us"],
            batch["close_us"],
        )
        for batch in batches
    ]
