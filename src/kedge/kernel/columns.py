"""Arrow columns to the plain arrays that kernels take, and back.

Invariants:
- Arrays handed to a kernel are contiguous, aligned and read-only, whatever the batch looked like: one signature,
  one compiled version of each kernel. Fixed-width columns are views of the batch.
- A null's value is whatever lies in the buffer; kernels look at validity first.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

from kedge.errors import InternalError
from kedge.graph.expressions import Binary, Column, Expression, In, Literal, is_string

Array = NDArray[Any]
pc: Any = pyarrow.compute  # its functions are made at run time: type checkers see none
_COMPARE = {
    "=": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


def room(*shape: int) -> NDArray[np.int64]:
    """Words to fill: from Arrow's allocator, which hands out used memory; fresh pages cost more than a copy."""
    memory = pa.allocate_buffer(8 * int(np.prod(shape)))
    return np.frombuffer(memory, np.int64).reshape(shape)


def frozen(array: Array) -> Array:
    """The array as kernels take it."""
    array = np.require(array, requirements=["C", "A"])
    if array.flags.writeable:
        array = array.view()
        array.flags.writeable = False
    return array


def values(column: pa.Array) -> Array:
    """The values of a fixed-width column; booleans as bytes."""
    kind = column.type
    if pa.types.is_boolean(kind):
        bits = column.buffers()[1]
        if bits is None:
            return frozen(np.zeros(len(column), np.uint8))
        first = column.offset // 8
        packed = np.frombuffer(bits, np.uint8)[first:]
        unpacked = np.unpackbits(packed, count=column.offset % 8 + len(column), bitorder="little")
        return frozen(unpacked[column.offset % 8 :])
    dtype = np.dtype(f"i{kind.bit_width // 8}") if pa.types.is_temporal(kind) else np.dtype(kind.to_pandas_dtype())
    data = column.buffers()[1]
    if data is None or len(column) == 0:
        return frozen(np.zeros(len(column), dtype))
    return frozen(np.frombuffer(data, dtype, count=len(column), offset=column.offset * dtype.itemsize))


def validity(column: pa.Array) -> Array:
    """One byte a row: 1 where there is a value."""
    if column.null_count == 0:
        return frozen(np.ones(len(column), np.uint8))
    return values(column.is_valid())


def encoded(column: pa.Array) -> pa.DictionaryArray:
    """A string column as codes into its distinct values."""
    plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    return plain.dictionary_encode()


def condition(node: Expression, batch: pa.RecordBatch) -> pa.Array:
    """A comparison of a string column with constants, for the whole batch."""
    if isinstance(node, In):
        assert isinstance(node.arg, Column)
        column = batch.column(node.arg.name)
        options = [option.value for option in node.options if isinstance(option, Literal)]
        found = pc.is_in(column, pa.array([one for one in options if one is not None], column.type))
        unknown = pc.is_null(column)
        if None in options:
            unknown = pc.or_(unknown, pc.invert(found))
        return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)
    assert isinstance(node, Binary)
    left, right = (_operand(side, batch) for side in (node.left, node.right))
    if node.op == "<=>":
        same = pc.fill_null(pc.equal(left, right), False)
        result = pc.or_(same, pc.and_(pc.is_null(left), pc.is_null(right)))
    else:
        result = getattr(pc, _COMPARE[node.op])(left, right)
    if isinstance(result, pa.Scalar):
        return pa.array([result.as_py()] * batch.num_rows, pa.bool_())
    return result


def _operand(node: Expression, batch: pa.RecordBatch) -> pa.Array | pa.Scalar:
    if isinstance(node, Column):
        column = batch.column(node.name)
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
    if isinstance(node, Literal):
        return pa.scalar(node.value, pa.string() if is_string(node.type) else node.type)
    raise InternalError(f"No string operand: {node!r}.")


def column_of(words: Array, kind: pa.DataType, valid: Array | None) -> pa.Array:
    """Words as a column of a fixed-width type; `valid` is a boolean array or None."""
    mask = None if valid is None or valid.all() else ~valid
    if pa.types.is_boolean(kind):
        return pa.array(words != 0, kind, mask=mask)
    if pa.types.is_floating(kind):
        dtype = np.float32 if kind == pa.float32() else np.float64
        return pa.array(words.view(np.float64).astype(dtype, copy=False), kind, mask=mask)
    width = np.dtype(f"i{kind.bit_width // 8}")
    narrowed = pa.array(words.astype(width, copy=False), mask=mask)
    return narrowed if narrowed.type == kind else narrowed.view(kind)


def words_of(column: pa.Array, *, as_float: bool) -> NDArray[np.int64]:
    """The inverse of `column_of`: int64 words, doubles by their bits, 0 where there is no value."""
    array = values(column)
    if column.null_count:
        array = np.where(validity(column) == 1, array, array.dtype.type(0))
    if as_float:
        return array.astype(np.float64, copy=False).view(np.int64)
    return array.astype(np.int64, copy=False)
