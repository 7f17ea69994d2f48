"""A sink for `foreachBatch`: each batch of a query becomes one version of the store, once.

Invariants, for one query name:
- A batch's changes, and that it was applied (the map `sink-batches`: query -> batch), become durable together, with
  the checkpoint. A batch that died half-way is undone.
- A batch that comes again at once (a retry, or a restart that lost Spark's commit) is recognised and skipped, however
  many versions were dropped since.
- A batch older than the last one means that the query was rewound: the store rolls back to the version before it.
  When other queries have written since, only this query's own versions are undone, by their inverse, in one version
  with the batch. That needs structures of its own (counters may be shared): else it is a ConflictError.

What it does not do: decide what a batch means. `apply(store, table)` writes it; here is only the once. Changes that
somebody else left without a checkpoint are undone with a batch that died half-way: the store can't tell them apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kedge.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from kedge.state.store import Store


BATCHES = "sink-batches"


class Sink:
    """`sink(frame, batch_id)`: pass it to `foreachBatch`, or call it with an Arrow table."""

    def __init__(self, store: Store, apply: Any, query: str) -> None:
        if not query or "#" in query:
            raise UsageError(f"{query!r} can't name a query: use plain text without '#'.")
        if not callable(apply):
            raise UsageError(
                f"{apply!r} can't apply a batch: pass a function (store, table), such as into_map(...)."
            )
        self._store, self._apply, self.query = store, apply, query

    def __call__(self, frame: Any, batch_id: int) -> int:
        """Apply one batch unless it was applied already; returns the store's version after it."""
        store = self._store
        with store.exclusive():
            store.rollback()  # a batch that died half-way
            batches = store.map(BATCHES, "str", "int")
            last = batches.get(self.query)
            if last == batch_id:
                return self.applied().get(batch_id, store.version)
            if last is not None and batch_id < last:
                self._rewind(batch_id, last)
            self._apply(store, frame.toArrow() if hasattr(frame, "toArrow") else frame)
            batches[self.query] = batch_id
            return store.checkpoint(key=f"{self.query}#{batch_id}")

    def applied(self) -> dict[int, int]:
        """The batches of this query that count now, with their versions, as far back as versions are kept."""
        found: dict[int, int] = {}
        for version in self._store.versions():
            query, _, batch = (version.key or "").rpartition("#")
            if query == self.query and version.number <= self._store.version:
                found = {
                    one: number for one, number in found.items() if one < int(batch)
                }  # a rewind undid the rest
                found[int(batch)] = version.number
        return found

    def _rewind(self, batch_id: int, last: int) -> None:
        """Take back this query's versions from `batch_id` to `last`."""
        store, done = self._store, self.applied()
        numbers = [version.number for version in store.versions()]
        undone = [done[batch] for batch in range(batch_id, last + 1) if batch in done]
        if len(undone) <= last - batch_id or undone[0] == numbers[0]:
            raise ConflictError(
                f"Query {self.query!r} went back to batch {batch_id}, further than {store.url} keeps versions: "
                f"{numbers[0]} is the oldest. Restore the store, or start the query from a later batch."
            )
        before = dict(zip(numbers[1:], numbers, strict=False))
        since = [number for number in numbers if undone[0] <= number <= store.version]
        if len(since) == len(undone):
            store.rollback(before[undone[0]])
            return
        mine = self._changed((before[number], number) for number in undone)
        theirs = self._changed((before[number], number) for number in since if number not in undone)
        if mine & theirs:
            raise ConflictError(
                f"Query {self.query!r} went back to batch {batch_id}, but others have changed "
                f"{', '.join(sorted(mine & theirs))} in {store.url} since. Rewind them too, and the store: "
                f"store.rollback({before[undone[0]]})."
            )
        steps = [(number, before[number]) for number in reversed(undone)]
        for command in [command for start, end in steps for command in store.replay(start, end)]:
            command.apply(store)

    def _changed(self, steps: Iterable[tuple[int, int]]) -> set[str]:
        """The structures that these steps changed and that only one query may: counts add up, whoever counts."""
        changes = [change for start, end in steps for change in self._store.changes(start, end)]
        return {change.structure for change in changes if change.kind != "counter"} - {BATCHES}


def into_set(structure: str, column: str) -> Callable[[Store, pa.Table], None]:
    """Batches that add a column's values to a set."""
    return lambda store, table: store.set(structure).update(table.column(column))


def into_map(structure: str, key: str, value: str) -> Callable[[Store, pa.Table], None]:
    """Batches that set a map's fields from two columns; the last row of a field wins."""
    return lambda store, table: store.map(structure).update(table.column(key), table.column(value))


def into_sorted_set(structure: str, member: str, score: str) -> Callable[[Store, pa.Table], None]:
    """Batches that set members' scores from two columns; the last row of a member wins."""
    return lambda store, table: store.sorted_set(structure).update(table.column(member), table.column(score))


def into_list(structure: str, column: str) -> Callable[[Store, pa.Table], None]:
    """Batches that append a column's values to a list, in the order of the batch's rows."""
    return lambda store, table: store.list(structure).extend(table.column(column))


def into_counter(structure: str) -> Callable[[Store, pa.Table], None]:
    """Batches whose rows are counted."""

    def apply(store: Store, table: pa.Table) -> None:
        store.counter(structure).incr(table.num_rows)

    return apply
