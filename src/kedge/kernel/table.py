"""Tables: the state of one task in a writable buffer, usually a mapped file; changed whole or not at all.

A table is at one version, the nonce of the plan that made it. `apply` goes

    CLEAN -> (VACUUM ->) PREPARING -> APPLYING -> CLEAN

and may be killed anywhere. Then `undo` leads back to the version before: PREPARING has changed nothing that counts,
APPLYING has its before-images in the log, and after the last step the log stays until the next `apply`, so a plan
that never committed can be taken back. Only a kill during VACUUM or LOADING loses the table.

Invariants:
- The state word is set from Python, between kernels: a compiler may reorder the stores inside one.
- Rows of closed windows are gone for readers at once, and from memory at the next `apply`: by then it is proven
  that the version that closed them was committed.
- The functions at the end work on many tables with a few kernel calls, so 256 tasks cost little more than one.

Locks and files are the business of `run.tables`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kedge.errors import CorruptError, InternalError, UsageError
from kedge.kernel import columns
from kedge.kernel import table_kernels as machine
from kedge.kernel.rows import Form, Packed

if TYPE_CHECKING:
    from kedge.kernel.program import Program

Words = NDArray[np.int64]
MAGIC = int.from_bytes(b"KEDGETB1", "little")
HEADER_WORDS = 64
ROWS_MIN = 64
TEXT_WORDS = 6  # of heap a row, to begin with
NEVER_US = -(1 << 63)
CLEAN, PREPARING, APPLYING, VACUUM, LOADING = range(5)


@dataclass(frozen=True, slots=True)
class Applied:
    """What a batch did: rows of windows that closed, and the new values of rows it touched that are still open."""

    closed: pa.RecordBatch
    changed: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Grow:
    """Nothing was applied: these tasks need tables of so many bytes."""

    bytes_needed: dict[int, int]


class Table:
    """One task's state in `buffer`, which `format` has prepared."""

    def __init__(self, buffer: Any, program: Program) -> None:
        self.program, self.form = program, form_of(program)
        self.words = np.frombuffer(buffer, np.int64, count=len(memoryview(buffer).cast("B")) // 8)
        self.address: int = self.words.__array_interface__["data"][0]
        _check(self.words, self.form)

    @staticmethod
    def format(buffer: Any, program: Program, version: str) -> None:
        """Make an empty table at `version` out of all of `buffer`."""
        form = form_of(program)
        words = np.frombuffer(buffer, np.int64, count=len(memoryview(buffer).cast("B")) // 8)
        rows = _rows_that_fit(form, words.size)
        if rows < 1:
            raise UsageError(f"A table needs {bytes_needed(program, 1)} bytes; the buffer has {words.size * 8}.")
        slots = _slots_for(rows)
        places = np.cumsum([HEADER_WORDS, slots, rows * form.width, rows * form.log_width])
        words[: HEADER_WORDS + slots] = 0
        words[machine.LAYOUT] = form.fingerprint
        words[machine.ROWS_MAX], words[machine.SLOTS] = rows, slots
        words[machine.AT_SLOTS], words[machine.AT_ROWS], words[machine.AT_LOG], words[machine.AT_HEAP] = places
        words[machine.HEAP_MAX], words[machine.TOTAL] = words.size - places[-1], words.size
        words[machine.VERSION_HIGH], words[machine.VERSION_LOW] = _version_words(version)
        words[machine.CLOSE] = words[machine.PREVIOUS_CLOSE] = NEVER_US
        words[machine.PANE_MIN] = (1 << 63) - 1
        words[machine.MAGIC] = MAGIC

    @staticmethod
    def bytes_needed(program: Program, rows: int, text_bytes: int = 0) -> int:
        """The size of a buffer for so many rows with so many bytes of strings."""
        return bytes_needed(program, rows, text_bytes)

    @property
    def version(self) -> str:
        """The nonce that the content stands for, if the table is not in progress."""
        return _version_text(self.words[machine.VERSION_HIGH], self.words[machine.VERSION_LOW])

    @property
    def previous(self) -> str | None:
        """The version that `undo` leads to, or None."""
        high, low = self.words[machine.PREVIOUS_HIGH], self.words[machine.PREVIOUS_LOW]
        return _version_text(high, low) if high or low else None

    @property
    def in_progress(self) -> bool:
        """Whether somebody died, or is still working, inside a change."""
        return bool(self.words[machine.STATE] != CLEAN)

    @property
    def is_lost(self) -> bool:
        """Whether the content can't be had back."""
        return int(self.words[machine.STATE]) not in (CLEAN, PREPARING, APPLYING)

    @property
    def close_us(self) -> int:
        """Windows that end here or before are closed."""
        return int(self.words[machine.CLOSE])

    @property
    def rows(self) -> int:
        """The number of open rows."""
        return int(machine.count_open(_addresses([self]), self.form.shape))

    def apply(self, nonce: str, partials: pa.RecordBatch, close_us: int) -> Applied | Grow:
        """Merge this task's partials in their order, close windows that end at or before `close_us`.

        An overflow or a late row is an error that leaves the table as it was.
        """
        task = int(partials.column(0)[0].as_py()) if partials.num_rows else 0
        return apply_all(self.program, {task: self}, nonce, [partials], close_us)

    def undo(self) -> None:
        """Go back to `previous`, or finish the way back that a kill interrupted."""
        undo_all(self.form, [self])

    def load(self, rows: pa.RecordBatch, version: str, close_us: int = NEVER_US) -> None:
        """Replace the content by `rows`; UsageError when they do not fit."""
        refused = load_all(self.program, {0: self}, [rows], version, close_us, any_task=True)
        if refused is not None:
            raise UsageError(f"The table is too small for {rows.num_rows} rows: make one with bytes_needed(rows).")

    def dump(self) -> pa.RecordBatch:
        """The open rows."""
        return dump_all(self.program, [self])


def form_of(program: Program) -> Form:
    """The form of a program's rows; made once."""
    found: Form | None = getattr(program, "_form", None)
    if found is None:
        found = Form(program.layout, program.tasks, program.panes)
        program._form = found  # type: ignore[attr-defined]
    return found


def bytes_needed(program: Program, rows: int, text_bytes: int = 0) -> int:
    """The size of a buffer for so many rows with so many bytes of strings."""
    form = form_of(program)
    words = _words_for(form, max(rows, ROWS_MIN))
    spare = text_bytes // 8 + 2 * rows - TEXT_WORDS * rows if form.has_texts else 0
    return 8 * (words + max(0, spare))


def apply_all(
    program: Program, tables: Mapping[int, Table], nonce: str, partials: Sequence[pa.RecordBatch], close_us: int
) -> Applied | Grow:
    """`Table.apply` for the tables of many tasks at once; each of `partials` is sorted by task.

    For one key, partials merge in the order given. Tasks without partials take part: their windows close too, and
    they get the new version. If any table is too small, none is changed.
    """
    form = form_of(program)
    given = _Given(form, tables, partials)
    many = given.addresses
    if np.any(_fetch(many, machine.STATE) != CLEAN):
        raise InternalError("A table in progress can't take a batch: attach it first.")
    _store(many, machine.PREVIOUS_HIGH, 0)
    _store(many, machine.PREVIOUS_LOW, 0)
    _sweep(form, many)
    _store(many, machine.GENERATION, _fetch(many, machine.GENERATION) + 1)
    _store(many, machine.STATE, PREPARING)
    answers, failed = given.prepare()
    if answers.any():
        settle(form, many)
        return given.refusal(answers, failed)
    machine.mark(many)
    _store(many, machine.STATE, APPLYING)
    machine.merge(many, close_us, form.shape)
    applied = Applied(closed=_rows_of(form, many, 2), changed=_rows_of(form, many, 1))
    high, low = _version_words(nonce)
    _store(many, machine.VERSION_HIGH, high)
    _store(many, machine.VERSION_LOW, low)
    _store(many, machine.STATE, CLEAN)
    return applied


def undo_all(form: Form, tables: Sequence[Table]) -> None:
    """Lead each table back to its previous version; a table that was only preparing keeps the one it had."""
    many = _addresses(tables)
    states = _fetch(many, machine.STATE)
    if np.any(states > APPLYING):
        raise CorruptError("A table was killed while it was loaded or vacuumed: restore it from state units.")
    settle(form, many[states == PREPARING])
    many = many[states != PREPARING]
    if np.any((_fetch(many, machine.PREVIOUS_HIGH) == 0) & (_fetch(many, machine.PREVIOUS_LOW) == 0)):
        raise UsageError("The table has no version to go back to: its log was given up when a later batch began.")
    _store(many, machine.STATE, APPLYING)
    machine.restore(many, form.shape)
    machine.rebuild(many, form.shape)
    _store(many, machine.VERSION_HIGH, _fetch(many, machine.PREVIOUS_HIGH))
    _store(many, machine.VERSION_LOW, _fetch(many, machine.PREVIOUS_LOW))
    _store(many, machine.STATE, CLEAN)
    _store(many, machine.PREVIOUS_HIGH, 0)
    _store(many, machine.PREVIOUS_LOW, 0)


def settle(form: Form, many: Words) -> None:
    """End a preparation without its changes."""
    machine.rebuild(many, form.shape)
    _store(many, machine.STATE, CLEAN)


def load_all(
    program: Program,
    tables: Mapping[int, Table],
    rows: Sequence[pa.RecordBatch],
    version: str,
    close_us: int = NEVER_US,
    *,
    any_task: bool = False,
) -> Grow | None:
    """Replace the content of many tables by `rows`; windows until `close_us` count as closed.

    Each batch of `rows` is sorted by task; of several rows of one group the last is its value. If some tables are too
    small, all count as lost until they are loaded again, and the answer says what is needed.
    """
    form = form_of(program)
    given = _Given(form, tables, rows, any_task=any_task)
    many = given.addresses
    _store(many, machine.STATE, LOADING)
    high, low = _version_words(version)
    for word, value in ((machine.ROWS, 0), (machine.HEAP, 0), (machine.CLOSE, NEVER_US), (machine.PREVIOUS_HIGH, 0),
                        (machine.PREVIOUS_LOW, 0), (machine.LOG, 0), (machine.VERSION_HIGH, high),
                        (machine.VERSION_LOW, low)):  # fmt: skip
        _store(many, word, value)
    machine.rebuild(many, form.shape)
    answers, failed = given.prepare(np.full_like(form.ops, machine.REPLACE))
    if answers.any():
        return given.refusal(answers, failed)
    machine.merge(many, close_us, form.shape)
    _store(many, machine.STATE, CLEAN)
    return None


def dump_all(program: Program, tables: Sequence[Table]) -> pa.RecordBatch:
    """The open rows of many tables, in the order of the tables."""
    return _rows_of(form_of(program), _addresses(tables), 0)


def move_all(program: Program, old: Sequence[Table], new: Sequence[Table]) -> None:
    """Copy content and version into larger, formatted tables; the way back to the previous version stays behind."""
    form, source, target = form_of(program), _addresses(old), _addresses(new)
    _store(target, machine.STATE, LOADING)
    machine.move(source, target, form.shape)
    machine.rebuild(target, form.shape)
    _store(target, machine.VERSION_HIGH, _fetch(source, machine.VERSION_HIGH))
    _store(target, machine.VERSION_LOW, _fetch(source, machine.VERSION_LOW))
    _store(target, machine.STATE, CLEAN)


def merged(program: Program, partials: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Merge partials in the order given; sorted by (task, pane), then by what was seen first."""
    form, rows = form_of(program), sum(batch.num_rows for batch in partials)
    heap_bytes = sum(batch.nbytes for batch in partials) + 16 * rows if form.has_texts else 0
    buffer = np.zeros(bytes_needed(program, rows, heap_bytes), np.uint8)
    Table.format(buffer, program, "0" * 32)
    table = Table(buffer, program)
    given = _Given(form, {0: table}, partials, any_task=True)
    answers, failed = given.prepare()
    if answers.any():
        raise InternalError(f"A scratch table did not take {rows} rows: {given.refusal(answers, failed)}.")
    machine.merge(given.addresses, NEVER_US, form.shape)
    out = _rows_of(form, given.addresses, 0)
    order = np.lexsort((out.column(1).to_numpy(), out.column(0).to_numpy()))
    return out.take(pa.array(order))


class _Given:
    """Rows on their way into tables: packed, with the segments of them that each table takes."""

    def __init__(
        self, form: Form, tables: Mapping[int, Table], batches: Sequence[pa.RecordBatch], *, any_task: bool = False
    ) -> None:
        self.form, self.tasks = form, list(tables)
        self.tables = tables
        self.addresses = _addresses(list(tables.values()))
        whole = pa.Table.from_batches(batches, form.layout.schema).combine_chunks().to_batches()
        self.packed: Packed = form.pack(whole[0] if whole else _empty(form))
        count = len(self.packed.rows)
        if any_task:
            lows, highs = np.zeros((1, 1), np.int64), np.full((1, 1), count, np.int64)
        else:
            lows, highs = self._segments(batches)
        if int((highs - lows).sum()) != count:
            raise InternalError("Partials hold tasks that no table was given for, or are not sorted by task.")
        self.lows, self.highs = lows, highs

    def _segments(self, batches: Sequence[pa.RecordBatch]) -> tuple[Words, Words]:
        """Where the rows of each table begin and end in each batch."""
        wanted, base = np.array(self.tasks, np.int32), 0
        lows = np.empty((len(wanted), len(batches)), np.int64)
        highs = np.empty_like(lows)
        for at, batch in enumerate(batches):
            tasks = self.packed.tasks[base : base + batch.num_rows]
            lows[:, at] = np.searchsorted(tasks, wanted, "left") + base
            highs[:, at] = np.searchsorted(tasks, wanted, "right") + base
            base += batch.num_rows
        return lows, highs

    def prepare(self, ops: Words | None = None) -> tuple[Words, Words]:
        """Run the first phase; an answer and the last row taken for each table."""
        rows, form = self.packed.rows, self.form
        answers, failed = np.zeros(len(self.tasks), np.int64), np.zeros(len(self.tasks), np.int64)
        pointers = np.arange(len(self.tasks) + 1, dtype=np.int64) * self.lows.shape[1]
        machine.prepare(
            self.addresses, rows, rows.view(np.float64), self.packed.heap, pointers, self.lows.ravel(),
            self.highs.ravel(), form.shape, form.ops if ops is None else ops, answers, failed,
        )  # fmt: skip
        return answers, failed

    def refusal(self, answers: Words, failed: Words) -> Grow:
        """What to do about tables that did not take their rows."""
        for at in np.flatnonzero(answers >= machine.TOO_LATE):
            row = int(failed[at])
            group = self.form.unpack(self.packed.rows[row : row + 1].T.copy(), self.packed.heap).to_pylist()[0]
            if answers[at] == machine.TOO_LATE:
                raise InternalError(f"A partial of a closed window reached a table: {group}.")
            raise UsageError(f"overflow: a sum leaves the range of BIGINT in the group {group}.", code="arithmetic")
        needed: dict[int, int] = {}
        for at in np.flatnonzero(answers):
            words = self.tables[self.tasks[at]].words
            rows = int(words[machine.ROWS] + (self.highs[at] - self.lows[at]).sum())
            room = min(rows, 4 * int(words[machine.ROWS_MAX]))
            needed[self.tasks[at]] = max(2 * words.nbytes, 8 * _words_for(self.form, room))
        return Grow(needed)


def _sweep(form: Form, many: Words) -> None:
    """Drop closed rows from the tables that have any."""
    full = many[_closing(form, many)]
    if full.size:
        _store(full, machine.STATE, VACUUM)
        machine.vacuum(full, form.shape)
        machine.rebuild(full, form.shape)


def _rows_of(form: Form, many: Words, what: int) -> pa.RecordBatch:
    """The rows that `machine.emit` calls `what`, in the order of the tables."""
    room, text_room = int(_fetch(many, machine.ROWS).sum()), int(_fetch(many, machine.HEAP).sum())
    if what == 1:
        room -= int((_fetch(many, machine.PREVIOUS_ROWS) - _fetch(many, machine.LOG)).sum())
    if what == 2 and not np.any(_closing(form, many)):
        room = 0
    out, heap = columns.room(form.width, room), np.empty(text_room if room else 0, np.int64)
    count, used = machine.emit(many, what, form.shape, out, heap) if room else (0, 0)
    return form.unpack(out[:, :count], heap[:used])


def _closing(form: Form, many: Words) -> NDArray[np.bool_]:
    """Which tables have rows of closed windows."""
    closed = _fetch(many, machine.CLOSE)
    panes = _fetch(many, machine.PANE_MIN)
    return (closed != NEVER_US) & (panes <= closed - form.shape[machine.WINDOW_US])


def _addresses(tables: Sequence[Table]) -> Words:
    return np.array([table.address for table in tables], np.int64)


def _store(many: Words, word: int, value: Words | int) -> None:
    machine.store(many, word, value if isinstance(value, np.ndarray) else np.full(many.size, value, np.int64))


def _fetch(many: Words, word: int) -> Words:
    out = np.empty(many.size, np.int64)
    machine.fetch(many, word, out)
    return out


def _check(words: Words, form: Form) -> None:
    """Refuse a buffer that the kernels could not trust."""
    if words.size < HEADER_WORDS or words[machine.MAGIC] != MAGIC or words[machine.TOTAL] != words.size:
        raise CorruptError(
            "This buffer is no table, or not a whole one: restore it from state units.", code="table"
        )
    if words[machine.LAYOUT] != form.fingerprint:
        raise CorruptError(
            "This table belongs to another query or format: restore it from state units.", code="table"
        )
    rows, slots = int(words[machine.ROWS_MAX]), int(words[machine.SLOTS])
    places = np.cumsum([HEADER_WORDS, slots, rows * form.width, rows * form.log_width]).tolist()
    found = [int(words[at]) for at in (machine.AT_SLOTS, machine.AT_ROWS, machine.AT_LOG, machine.AT_HEAP)]
    counts = ((machine.ROWS, rows), (machine.PREVIOUS_ROWS, rows), (machine.LOG, rows), (machine.NEW_ROWS, rows),
              (machine.HEAP, words.size - places[-1]))  # fmt: skip
    fits = places == found and slots == _slots_for(rows) and int(words[machine.HEAP_MAX]) == words.size - places[-1]
    if not fits or any(not 0 <= words[word] <= most for word, most in counts):
        raise CorruptError("The header of this table does not add up: restore it from state units.", code="table")


def _empty(form: Form) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema=form.layout.schema)


def _slots_for(rows: int) -> int:
    return 1 << (2 * rows - 1).bit_length()


def _words_for(form: Form, rows: int) -> int:
    texts = TEXT_WORDS * rows if form.has_texts else 0
    return HEADER_WORDS + _slots_for(rows) + rows * (form.width + form.log_width) + texts


def _rows_that_fit(form: Form, words: int) -> int:
    low, high = 0, words
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if _words_for(form, middle) <= words else (low, middle - 1)
    return low


def _version_words(version: str) -> tuple[int, int]:
    if len(version) != 32:
        raise UsageError(f"A version is a nonce of 32 hexadecimal digits, not {version!r}.")
    number = int(version, 16)
    high, low = number >> 64, number & ((1 << 64) - 1)
    return high - (high >> 63 << 64), low - (low >> 63 << 64)


def _version_text(high: Any, low: Any) -> str:
    return f"{int(high) % (1 << 64):016x}{int(low) % (1 << 64):016x}"
