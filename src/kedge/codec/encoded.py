"""What a codec makes of a column, and what every codec offers: the small vocabulary of this room.

Invariants:
- `Encoded` says everything but the dtype and the number of rows, which the reader knows already.
- `params` are signed 64-bit numbers; what they mean is the codec's business (a base, a bit width, ...).
- A decoder trusts nothing: params and body may be hostile, and the answer is right values or CorruptError,
  never an access outside the arrays. Whether the bytes are the ones that were written is not checked here: the
  checksum is the unit's job.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kedge.errors import CorruptError, UsageError

Values: TypeAlias = NDArray[Any]
Bytes: TypeAlias = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Encoded:
    """An encoded column: the number of its codec, three parameters, the bytes.

    `bounds` are for statistics, where the codec saw them anyway: no value is outside of them, taken as kernels take
    values (signed, floats by their bits). They are not written.
    """

    codec: int
    params: tuple[int, int, int]
    body: Bytes
    bounds: tuple[int, int] | None = None


class Encode(Protocol):
    """Values to bytes; `inner` names the codec of the values inside, for codecs that nest."""

    def __call__(self, values: Values, inner: str = "", /) -> Encoded: ...


class Decode(Protocol):
    """Bytes to values, into `out` if it is given."""

    def __call__(self, encoded: Encoded, dtype: np.dtype[Any], rows: int, out: Values | None, /) -> Values: ...


@dataclass(frozen=True, slots=True)
class Codec:
    """One way to write a column. `code` is on disk: it is never changed and never used again."""

    code: int
    name: str
    encode: Encode
    decode: Decode
    kinds: str = "biuf"  # of dtypes that it takes


def check(values: Values) -> None:
    """Refuse what is not a column."""
    kind, size = values.dtype.kind, values.itemsize
    if values.ndim != 1 or kind not in "biuf" or size not in ((4, 8) if kind == "f" else (1, 2, 4, 8)):
        raise UsageError(
            "A column is a one-dimensional array of bool, int, uint, float32 or float64, "
            f"not {values.dtype} with {values.ndim} dimensions. Split it into such buffers first."
        )


def raw(values: Values) -> Bytes:
    """The bytes of a column, read-only, not copied where it is contiguous and native."""
    return readable(np.ascontiguousarray(values, values.dtype.newbyteorder("=")).view(np.uint8))


def readable(body: Bytes) -> Bytes:
    """`body` as kernels want it: contiguous, aligned to 8 bytes, read-only (one compiled signature for all)."""
    if not body.flags.c_contiguous or body.ctypes.data % 8:
        body = body.copy()
    view = body.view()
    view.flags.writeable = False
    return view


def target(dtype: np.dtype[Any], rows: int, out: Values | None) -> Values:
    """Where a decoder writes: `out` if it fits, else a new array."""
    if out is None:
        return np.empty(rows, dtype)
    if out.dtype != dtype or out.shape != (rows,) or not out.flags.c_contiguous or not out.flags.writeable:
        raise UsageError(
            f"out must be a writable contiguous array of {rows} x {dtype}, not {out.size} x {out.dtype}."
        )
    return out


def corrupt(codec: str, what: str) -> CorruptError:
    """The error of every decoder; the stream above adds file and byte."""
    return CorruptError(
        f"A column encoded as {codec} does not decode: {what}. "
        "Find the unit with `kedge stream verify` and restore or repair it.",
        code="codec",
    )
