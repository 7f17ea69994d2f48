"""A sink for `foreachBatch`: each batch of a query becomes one version of the store, once.

Invariants, for one query name:
- A batch's changes and its key become durable together, with the checkpoint; a batch that died half-way is undone.
- A batch that comes again at once (a retry, or a restart that lost Spark's commit) is recognised and skipped.
- A batch older than the last one means that the query was rewound: the store rolls back to the version before it.
  That is refused while another query has written since, because it would undo that query's work as well.

What it does not do: decide what a batch means. `apply(store, table)` writes it; here is only the once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kedge.errors import ConflictError, UsageError

if TYPE_CHECKING:
    from kedge.state.store import Store


class Sink:
    """`sink(frame, batch_id)`: pass it to `foreachBatch`, or call it with an Arrow table."""

    def __init__(self, store: Store, apply: Callable[[Store, Any], None], query: str) -> None:
        if not query or "#" in query:
            raise UsageError(f"{query!r} can't name a query: use plain text without '#'.")
        self._store, self._apply, self.query = store, apply, query

    def __call__(self, frame: Any, batch_id: int) -> int:
        """Apply one batch unless it was applied already; returns the store's version after it."""
        with self._store.exclusive():
            self._store.rollback()  # a batch that died half-way
            done = self.applied()
            if done and batch_id in done and max(done) == batch_id:
                return done[batch_id]
            if done and batch_id < max(done):
                self._rewind(done, batch_id)
            self._apply(self._store, frame.toArrow() if hasattr(frame, "toArrow") else frame)
            return self._store.checkpoint(key=f"{self.query}#{batch_id}")

    def applied(self) -> dict[int, int]:
        """The batches of this query up to the current version, with the versions that they made."""
        found: dict[int, int] = {}
        for version in self._store.versions():
            query, _, batch = (version.key or "").rpartition("#")
            if query == self.query and version.number <= self._store.version:
                found[int(batch)] = version.number
        return found

    def _rewind(self, done: dict[int, int], batch_id: int) -> None:
        """Go back to just before the first version of this query that must not have happened."""
        first = min(number for batch, number in done.items() if batch >= batch_id)
        versions = self._store.versions()
        undone = [v for v in versions if first <= v.number <= self._store.version]
        others = {v.key or "an application" for v in undone if v.number not in done.values()}
        if others:
            raise ConflictError(
                f"Query {self.query!r} went back to batch {batch_id}, but {', '.join(sorted(others))} wrote to "
                f"{self._store.url} since. Rewind them too: store.rollback({self._before(first)})."
            )
        self._store.rollback(self._before(first))

    def _before(self, first: int) -> int:
        older = [v.number for v in self._store.versions() if v.number < first]
        if not older:
            raise ConflictError(
                f"Query {self.query!r} went back further than the store keeps versions: {first} is the oldest. "
                "Restore the store, or start the query from a later batch."
            )
        return older[-1]


def into_set(structure: str, column: str) -> Callable[[Store, pa.Table], None]:
    """Batches that add a column's values to a set."""
    return lambda store, table: store.set(structure).update(table.column(column))


def into_map(structure: str, key: str, value: str) -> Callable[[Store, pa.Table], None]:
    """Batches that set a map's fields from two columns; the last row of a field wins."""
    return lambda store, table: store.map(structure).update(table.column(key), table.column(value))


def into_counter(structure: str) -> Callable[[Store, pa.Table], None]:
    """Batches whose rows are counted."""

    def apply(store: Store, table: pa.Table) -> None:
        store.counter(structure).incr(table.num_rows)

    return apply
