"""Versioned stores as sinks of Structured Streaming, through `foreachBatch` or as a format.

`df.writeStream.foreachBatch(StoreSink(url, apply, query=...))` carries only the URL, so that it can be pickled: Spark
Connect runs it in another process. The store is opened where the function runs, once a process, and shared by all
queries there; `kedge.state.sink` holds the rules of what happens to a batch that comes again.

`df.writeStream.format("kedge-store")` does the same for the plain cases (a column into a set, two into a map) without
a function: tasks send their rows to the committing process, so it is meant for results, not for raw rows.

Invariant: one store, one writer. A process that opens the store fences those that had it before.
"""

# ruff: noqa: N803, ARG002  (the names of the arguments are Spark's)

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from kedge.errors import KedgeError, UsageError
from kedge.state import Store, into_counter, into_list, into_map, into_set, into_sorted_set, open_store
from kedge.state.sink import Sink

_open: dict[str, Store] = {}
_lock = Lock()


def shared(url: str) -> Store:
    """This process's handle of a store; the same one for all its queries."""
    with _lock:
        if url not in _open:
            _open[url] = open_store(url)
        return _open[url]


def release(url: str) -> None:
    """Close this process's handle; the next batch opens the store again."""
    with _lock:
        store = _open.pop(url, None)
        if store is not None:
            store.close()


class StoreSink:
    """For `foreachBatch`: each batch one version of the store at `url`, once."""

    def __init__(self, url: str, apply: Callable[[Store, pa.Table], None], *, query: str) -> None:
        self.url, self.apply, self.query = url, apply, query

    def __call__(self, frame: Any, batch_id: int) -> None:
        """Apply one batch."""
        try:
            Sink(shared(self.url), self.apply, self.query)(frame, batch_id)
        except KedgeError:
            release(self.url)  # fenced or cut off: the next attempt starts from what is there
            raise


@dataclass
class Rows(WriterCommitMessage):
    """The rows of one task, as an Arrow stream."""

    task: bytes


class StoreWriter(DataSourceStreamArrowWriter):
    """`format("kedge-store")`: the rows of a micro-batch become one version."""

    def __init__(self, url: str, query: str, options: dict[str, str]) -> None:
        self.url, self.query, self.options = url, query, options
        apply_of(options)  # a wrong option is said before the query starts

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """In a task: the rows travel with the message."""
        batches = list(iterator)
        if not batches:
            return Rows(b"")
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batches[0].schema) as out:
            for batch in batches:
                out.write_batch(batch)
        return Rows(sink.getvalue().to_pybytes())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Once, when all tasks have succeeded."""
        parts = [cast(Rows, message).task for message in messages if message is not None]
        tables = [pa.ipc.open_stream(part).read_all() for part in parts if part]
        try:
            sink = Sink(shared(self.url), apply_of(self.options), self.query)
            sink(pa.concat_tables(tables) if tables else None, batchId)
        except KedgeError:
            release(self.url)
            raise

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """Nothing was written."""


class StoreFormat(DataSource):
    """`kedge.register(spark)`, then `df.writeStream.format("kedge-store")`.

    Options: `url`, `query`, and one of `set` + `column`, `list` + `column`, `map` + `key` + `value`,
    `sorted_set` + `key` + `value`, `counter`.
    """

    @classmethod
    def name(cls) -> str:
        """What `format` calls it."""
        return "kedge-store"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StoreWriter:  # noqa: N802
        """A writer for one query."""
        options = {name: self.options[name] for name in self.options}
        for name in ("url", "query"):
            if name not in options:
                raise UsageError(f"format('kedge-store') needs option({name!r}, ...).")
        _check_columns(options, schema.names)
        return StoreWriter(options["url"], options["query"], options)


def apply_of(options: dict[str, str]) -> Callable[[Store, Any], None]:
    """What the options say to do with a batch; a batch without rows changes nothing."""
    found = [
        into(*[options[name] for name in names])
        for names, into in _INTO.items()
        if all(name in options for name in names)
    ]
    if len(found) != 1:
        said = "; ".join(" + ".join(names) for names in _INTO)
        raise UsageError(f"Say where rows go, in one way: {said}.")
    return lambda store, table: None if table is None else found[0](store, table)


_INTO: dict[tuple[str, ...], Callable[..., Callable[[Store, Any], None]]] = {
    ("set", "column"): into_set,
    ("list", "column"): into_list,
    ("map", "key", "value"): into_map,
    ("sorted_set", "key", "value"): into_sorted_set,
    ("counter",): into_counter,
}


def _check_columns(options: dict[str, str], columns: Sequence[str]) -> None:
    for name in ("column", "key", "value"):
        if name in options and options[name] not in columns:
            raise UsageError(f"There is no column {options[name]!r} for {name!r}. There are: {', '.join(columns)}.")
