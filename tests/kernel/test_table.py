"""Tables against a model: batches applied, undone, interrupted, grown, loaded and dumped in any order."""

from __future__ import annotations

import contextlib
import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from queries import WIDTH_US, as_model, batch, model, program, tables

from kedge.errors import CorruptError, InternalError, UsageError
from kedge.kernel import Applied, Grow, Table, apply_all, dump_all, load_all, move_all
from kedge.kernel import table as table_module
from kedge.kernel import table_kernels as machine
from kedge.kernel.table import APPLYING, LOADING, NEVER_US, PREPARING, _sweep, form_of, undo_all

TASKS = 3


def nonce(number: int) -> str:
    return f"{number * 0x9E3779B97F4A7C15 % (1 << 128):032x}"


def fresh(rows: int = 0) -> Table:
    buffer = bytearray(Table.bytes_needed(program(TASKS), rows))
    Table.format(buffer, program(TASKS), nonce(1))
    return Table(buffer, program(TASKS))


class Run:
    """Tables of all tasks, and beside them the rows that each version stands for."""

    def __init__(self) -> None:
        self.tables = {task: fresh() for task in range(TASKS)}
        self.rows: list[dict[str, Any]] = []
        self.close_us, self.count = NEVER_US, 1

    def open(self, rows: list[dict[str, Any]], close_us: int) -> dict[tuple[Any, ...], tuple[Any, ...]]:
        return {group: value for group, value in model(rows).items() if group[0] + WIDTH_US > close_us}

    def apply(self, rows: list[dict[str, Any]], cut: int, close_us: int) -> None:
        """One batch of two fragments; closed and changed rows must be the model's."""
        parts = [rows[:cut], rows[cut:]]
        close_us = max(self.close_us, close_us)
        partials = [program(TASKS).fragment("r", batch(part), self.close_us).partials for part in parts]
        self.count += 1
        applied = apply_all(program(TASKS), self.tables, nonce(self.count), partials, close_us)
        while isinstance(applied, Grow):
            self.grow(applied.bytes_needed)
            applied = apply_all(program(TASKS), self.tables, nonce(self.count), partials, close_us)
        taken = [
            row for row in rows if row["ts"] is None or row["ts"] // WIDTH_US * WIDTH_US + WIDTH_US > self.close_us
        ]
        before = self.open(self.rows, self.close_us)
        self.rows = self.rows + taken
        after, touched = self.open(self.rows, close_us), model(taken)
        self.agrees(applied.changed, {group: value for group, value in after.items() if group in touched})
        everything = self.open(self.rows, self.close_us)
        closed = {group: value for group, value in everything.items() if group not in after}
        assert set(before) <= set(everything)
        self.agrees(applied.closed, closed)
        self.close_us = close_us
        self.check()

    def grow(self, sizes: dict[int, int]) -> None:
        new = {}
        for task, size in sizes.items():
            buffer = np.zeros(size, np.uint8)
            Table.format(buffer, program(TASKS), nonce(0))
            new[task] = Table(buffer, program(TASKS))
        move_all(program(TASKS), [self.tables[task] for task in new], list(new.values()))
        self.tables.update(new)

    def check(self) -> None:
        self.agrees(dump_all(program(TASKS), list(self.tables.values())), self.open(self.rows, self.close_us))
        assert {table.version for table in self.tables.values()} == {nonce(self.count)}
        assert not any(table.in_progress for table in self.tables.values())

    def agrees(self, state: pa.RecordBatch, expected: dict[tuple[Any, ...], tuple[Any, ...]]) -> None:
        assert as_model(program(TASKS).results(state)) == expected


batches = st.tuples(tables(rows_max=30), st.integers(0, 30), st.integers(-30, 30))


@given(st.lists(batches, max_size=6))
def test_batches_merge_and_windows_close(steps: list[tuple[list[dict[str, Any]], int, int]]) -> None:
    run = Run()
    for rows, cut, close_us in steps:
        run.apply(rows, cut, close_us)


@given(st.lists(batches, min_size=1, max_size=4), batches)
def test_undo_leads_back_exactly_once(steps: list[Any], other: Any) -> None:
    run = Run()
    for step in steps[:-1]:
        run.apply(*step)
    kept = run.rows, run.close_us, run.count
    run.apply(*steps[-1])
    for table in run.tables.values():
        assert table.previous == nonce(kept[2])
        table.undo()
        with pytest.raises(UsageError, match="no version to go back to"):
            table.undo()
    last = run.count
    run.rows, run.close_us, run.count = kept
    run.check()
    run.count = last
    run.apply(*other)


@given(st.lists(batches, min_size=1, max_size=3), batches, st.integers(0, 12))
def test_killed_anywhere_a_table_is_at_one_of_both_versions(steps: list[Any], other: Any, stop: int) -> None:
    """Each call into a kernel is a place to stop; nothing is stored between them."""
    run = Run()
    for step in steps[:-1]:
        run.apply(*step)
    kept = run.rows, run.close_us, run.count
    calls = Calls(stop)
    with calls, contextlib.suppress(Killed):
        run.apply(*steps[-1])
    old_rows, old_close_us, old_count = kept
    for table in run.tables.values():
        if table.is_lost:
            return
        if table.in_progress or table.version != nonce(old_count):
            table.undo()
        assert table.version == nonce(old_count)
    run.rows, run.close_us, run.count = old_rows, old_close_us, old_count
    run.check()
    run.count += 7
    run.apply(*other)


class Killed(BaseException):
    pass


class Calls:
    """Lets so many calls into kernels happen, then kills: the last one has done the first of the tables only."""

    NAMES = ("store", "prepare", "mark", "merge", "vacuum", "rebuild", "restore")

    def __init__(self, stop: int) -> None:
        self.left = stop

    def __enter__(self) -> None:
        self.saved = {name: getattr(machine, name) for name in self.NAMES}
        for name, function in self.saved.items():
            setattr(machine, name, self.counted(function))

    def __exit__(self, *_: object) -> None:
        for name, function in self.saved.items():
            setattr(machine, name, function)

    def begin(self, function: Any, *arguments: Any) -> None:
        """What a call has done when it is killed."""
        if function is self.saved["prepare"]:
            return
        first = arguments[0][:1]
        if function is not self.saved["vacuum"]:
            function(first, *arguments[1:])
            return
        before = [np.empty(1, np.int64) for _ in range(2)]  # its last stores: how many rows and strings are left
        for word, value in zip((machine.ROWS, machine.HEAP), before, strict=True):
            machine.fetch(first, word, value)
        function(first, *arguments[1:])
        for word, value in zip((machine.ROWS, machine.HEAP), before, strict=True):
            self.saved["store"](first, word, value)

    def counted(self, function: Any) -> Any:
        def call(*arguments: Any) -> Any:
            if self.left == 0:
                self.begin(function, *arguments)
                raise Killed
            self.left -= 1
            return function(*arguments)

        return call


@given(tables(nulls=True), st.integers(-30, 30))
def test_dump_and_load_are_inverse(rows: list[dict[str, Any]], close_us: int) -> None:
    run = Run()
    run.apply(rows, len(rows) // 2, close_us)
    saved = dump_all(program(TASKS), list(run.tables.values()))
    other = {task: fresh(40) for task in range(TASKS)}
    assert load_all(program(TASKS), other, [saved], nonce(9), run.close_us) is None
    assert repr(dump_all(program(TASKS), list(other.values())).to_pylist()) == repr(saved.to_pylist())
    assert {table.version for table in other.values()} == {nonce(9)}
    run.tables, run.count = other, 9
    run.apply(rows, 1, close_us)


def test_one_table_by_itself_has_the_same_calls() -> None:
    table = fresh()
    rows = [{"pad": 0, "ts": 5, "k": 1, "name": "a", "flag": True, "day": 0, "v": 3, "f": 1.0, "g": 1.0}]
    partials = program(1).fragment("r", batch(rows), NEVER_US).partials
    buffer = bytearray(Table.bytes_needed(program(1), 1))
    Table.format(buffer, program(1), nonce(1))
    table = Table(buffer, program(1))
    applied = table.apply(nonce(2), partials, 0)
    assert isinstance(applied, Applied)
    assert (applied.changed.num_rows, applied.closed.num_rows, table.rows) == (1, 0, 1)
    table.load(table.dump(), nonce(3))
    assert (table.rows, table.version) == (1, nonce(3))


def test_an_overflow_across_batches_changes_nothing() -> None:
    run = Run()
    row = {"pad": 0, "ts": 5, "k": 1, "name": "a", "flag": True, "day": 0, "v": 2**62, "f": 1.0, "g": 1.0}
    run.apply([row], 0, NEVER_US)
    with pytest.raises(UsageError, match=r"overflow.*'name'|overflow.*key1"):
        run.apply([row], 0, NEVER_US)
    run.count -= 1
    run.check()


def test_a_late_partial_is_a_bug_of_the_caller() -> None:
    run = Run()
    row = {"pad": 0, "ts": 5, "k": 1, "name": "a", "flag": True, "day": 0, "v": 1, "f": 1.0, "g": 1.0}
    run.apply([], 0, 10)
    partials = program(TASKS).fragment("r", batch([row]), NEVER_US).partials
    with pytest.raises(InternalError, match="closed window"):
        apply_all(program(TASKS), run.tables, nonce(5), [partials], 10)
    run.check()


@pytest.mark.parametrize("state", [PREPARING, APPLYING, LOADING])
def test_a_table_in_progress_takes_no_batch(state: int) -> None:
    run = Run()
    run.tables[1].words[machine.STATE] = state
    with pytest.raises(InternalError, match="in progress"):
        run.apply([], 0, 0)


def test_a_foreign_or_damaged_buffer_is_refused() -> None:
    buffer = bytearray(Table.bytes_needed(program(TASKS), 10))
    with pytest.raises(CorruptError, match="no table"):
        Table(buffer, program(TASKS))
    Table.format(buffer, program(TASKS), nonce(1))
    with pytest.raises(CorruptError, match="another query"):
        Table(buffer, program(1))
    for word in (machine.SLOTS, machine.ROWS_MAX, machine.AT_LOG, machine.ROWS, machine.LOG, machine.HEAP):
        damaged = bytearray(buffer)
        np.frombuffer(damaged, np.int64)[word] += 1 << 40
        with pytest.raises(CorruptError):
            Table(damaged, program(TASKS))


def some_rows(seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    return [
        {"pad": 0, "ts": int(t), "k": int(t) % 4 + int(t) % 2 * 4 * seed, "name": "abc"[t % 3], "flag": True,
         "day": 0, "v": int(t) + seed, "f": float(t), "g": 0.5}
        for t in rng.integers(0, 30, 25)
    ]  # fmt: skip


STOPS = range(24)  # more than there are calls
Kept = tuple[list[dict[str, Any]], int, int]  # rows, until when windows are closed, number of the version


def three_versions(close_us: int = 10) -> tuple[Run, Kept, Kept]:
    """Tables that can go back by one version; the older one, and theirs. What it closed is swept out next."""
    run = Run()
    run.apply(some_rows(1), 9, NEVER_US)
    older = run.rows, run.close_us, run.count
    run.apply(some_rows(2), 9, close_us)
    return run, older, (run.rows, run.close_us, run.count)


@dataclass(frozen=True)
class Kill:
    """What is killed, which version is wanted then, and which batch comes next."""

    undo: bool = False
    back: bool = False
    close_us: int = 10
    then: int = 3

    def at(self, stop: int) -> None:
        """Kill at a call, attach as an attempt would, and go on."""
        run, older, kept = three_versions(self.close_us)
        with Calls(stop), contextlib.suppress(Killed):
            if self.undo:
                undo_all(form_of(program(TASKS)), list(run.tables.values()))
            else:
                run.apply(some_rows(3), 9, 20)
        attach(run, older if self.back else kept)
        run.apply(some_rows(self.then), 9, 20)


def attach(run: Run, kept: Kept) -> None:
    """As an attempt does it: undo what leads there, load what does not."""
    rows, close_us, count = kept
    for task, table in run.tables.items():
        if not table.is_lost and table.in_progress:
            table.undo()
        if not table.is_lost and table.version != nonce(count) and table.previous == nonce(count):
            table.undo()
        if table.is_lost or table.version != nonce(count):
            run.tables[task] = load(kept, task)
    run.rows, run.close_us, run.count = rows, close_us, count
    run.check()
    run.count += 7


def load(kept: Kept, task: int) -> Table:
    """A table by another way: every row at once."""
    rows, close_us, count = kept
    other, table = Run(), fresh(len(rows))
    other.apply(rows, len(rows), close_us)
    found = dump_all(program(TASKS), [other.tables[task]])
    assert load_all(program(TASKS), {task: table}, [found], nonce(count), close_us) is None
    return table


KILLS = {
    "a batch that touches, adds, closes and sweeps rows; then it is done again": Kill(),
    "the same, but no window was closed before": Kill(close_us=NEVER_US),
    "a batch, and the one before it was not committed either": Kill(back=True, then=4),
    "the way back, and it is gone again": Kill(undo=True, back=True),
    "the way back, and it was not wanted after all": Kill(undo=True),
}


@pytest.mark.parametrize("kill", KILLS)
@pytest.mark.parametrize("stop", STOPS)
def test_a_kill_at_each_call_with_rows_in_every_table(kill: str, stop: int) -> None:
    KILLS[kill].at(stop)


def test_there_are_more_stops_than_calls() -> None:
    calls, (run, _, _) = Calls(1000), three_versions()
    with calls:
        run.apply(some_rows(3), 9, 20)
    assert 1000 - calls.left < len(STOPS)


MUTANTS = {
    "a preparation is said": (apply_all, "    _store(many, machine.STATE, PREPARING)\n", ""),
    "merging is said": (apply_all, "    _store(many, machine.STATE, APPLYING)\n", ""),
    "the old row count is kept before merging": (apply_all, "    machine.mark(many)\n", ""),
    "the way back is given up before the log is used again": (
        apply_all,
        "    _store(many, machine.PREVIOUS_HIGH, 0)\n    _store(many, machine.PREVIOUS_LOW, 0)\n    _sweep",
        "    _sweep",
    ),
    "a sweep is said": (_sweep, "        _store(full, machine.STATE, VACUUM)\n", ""),
    "going back is said": (undo_all, "    _store(many, machine.STATE, APPLYING)\n", ""),
    "the log is kept until going back has ended": (
        undo_all,
        "    _store(many, machine.STATE, APPLYING)\n    machine.restore(many, form.shape)\n",
        "    machine.restore(many, form.shape)\n    _store(many, machine.PREVIOUS_HIGH, 0)\n"
        "    _store(many, machine.PREVIOUS_LOW, 0)\n",
    ),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_without_a_line_of_the_undo_log_a_kill_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function, line, instead = MUTANTS[name]
    text = inspect.getsource(function)
    assert line in text, "the line is no longer there: change the mutant with it"
    found: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + text.replace(line, instead), table_module.__dict__, found)
    monkeypatch.setattr(table_module, function.__name__, found[function.__name__])
    monkeypatch.setitem(globals(), function.__name__, found[function.__name__])
    noticed = 0
    for kill in KILLS.values():
        for stop in STOPS:
            try:
                kill.at(stop)
            except (AssertionError, UsageError, CorruptError, InternalError):
                noticed += 1
    assert noticed, f"nobody notices a table without: {name}"


def test_undo_restores_values_rows_and_closed_windows() -> None:
    run = Run()
    run.apply(some_rows(1), 9, NEVER_US)
    kept = run.rows, run.close_us, run.count
    run.apply(some_rows(2), 9, 20)
    for table in run.tables.values():
        table.undo()
    run.rows, run.close_us, run.count = kept
    run.check()
