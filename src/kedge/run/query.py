"""`kedge.sql`: a query over streams, checked when it is written and started where you like.

query = kedge.sql("SELECT window(ts, '10 seconds') AS w, ad, count(*) AS n FROM rides "
                  "GROUP BY ad, window(ts, '10 seconds')", rides=rides)
run = query.start("runs/counts", into="data/counts")
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from kedge.errors import ConflictError, UsageError
from kedge.graph import Graph, parse
from kedge.host import Host, local
from kedge.kernel import Program, compile_graph
from kedge.run.directory import Definition, RunDirectory, StreamRef
from kedge.run.options import Options
from kedge.streams import Stream, stream

if TYPE_CHECKING:
    from kedge.run.run import Run

_UNITS_US = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
}


def duration_us(text: str) -> int:
    """Microseconds in a duration such as '10 seconds' or '1 minute 30 seconds'."""
    if not isinstance(cast(object, text), str):
        raise UsageError(f"{text!r} is not a duration: write it as text, for example '10 seconds'.")
    parts = re.findall(r"(\d+)\s*([a-z]+?)s?(?=\s|\d|$)", text.strip().lower())
    if not parts or re.sub(r"(\d+)\s*([a-z]+)", "", text.strip().lower()).strip():
        raise UsageError(f"{text!r} is not a duration: write for example '10 seconds' or '1 minute 30 seconds'.")
    total = 0
    for number, unit in parts:
        if unit not in _UNITS_US:
            raise UsageError(f"{text!r}: {unit!r} is not a unit of time; use {', '.join(_UNITS_US)}.")
        total += int(number) * _UNITS_US[unit]
    return total


class Query:
    """A checked query; it holds no rows and runs nothing until `start`."""

    def __init__(self, text: str, streams: Mapping[str, Stream], lag_us: int) -> None:
        self.text = text
        self.streams = dict(streams)
        self.lag_us = lag_us
        schemas = {name: stream.schema for name, stream in streams.items()}
        self.graph: Graph = parse(text, schemas, {name: s.event_time for name, s in streams.items()})

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result."""
        return self.graph.result_schema

    def explain(self) -> str:
        """The query as operators, and what each rule did."""
        return self.graph.explain()

    def program(self, tasks: int) -> Program:
        """The compiled query for `tasks` key groups."""
        return compile_graph(self.graph, tasks)

    def start(
        self,
        path: str | os.PathLike[str],
        *,
        into: Stream | str | os.PathLike[str],
        spark: Any = None,
        **options: Any,
    ) -> Run:
        """Start the query in the directory `path`, or continue the run that is there.

        Results go to the stream `into` and become visible batch by batch, exactly once. With `spark` the work is
        done by Spark Structured Streaming; without, by threads of this process. The same directory can be continued
        either way. `options` are the fields of `kedge.run.Options`.
        """
        from kedge.run.run import Run

        chosen = Options.of(options)
        return Run.start(self.define(path, into, chosen), chosen, spark)

    def define(
        self, path: str | os.PathLike[str], into: Stream | str | os.PathLike[str], options: Options
    ) -> RunDirectory:
        """Make `path` the directory of a run of this query, and `into` its result; nothing happens when it is."""
        host = options.host or local()
        directory = RunDirectory(host, _absolute(path))
        if isinstance(into, str | os.PathLike):
            into = stream(_absolute(into), schema=self.schema, host=host)
        if not isinstance(cast(object, into), Stream):
            raise UsageError(
                f"into={into!r}: name the result stream by its path, or open it with kedge.stream(path)."
            )
        definition = self.definition(directory, into, options)
        _check_free(into, definition)  # before anything is written
        definition = directory.define(definition)
        into.bind(directory.path, definition.id)
        return directory

    def definition(self, directory: RunDirectory, into: Stream, options: Options) -> Definition:
        """What run.json will say; what the first start decided is kept."""
        if not into.schema.equals(self.schema):
            raise UsageError(
                f"The stream {into.path} has the columns {_columns(into.schema)}, but the query gives "
                f"{_columns(self.schema)}. Name another stream, or create it with `schema=query.schema`."
            )
        found = directory.definition()
        return Definition(
            id=directory.host.rng.token() if found is None else found.id,
            sql=self.text,
            fingerprint=self.graph.fingerprint(),
            inputs={name: StreamRef(_absolute(s.path), s.id) for name, s in sorted(self.streams.items())},
            into=StreamRef(_absolute(into.path), into.id),
            tasks=options.tasks if found is None else found.tasks,
            lag_us=self.lag_us,
        )

    def __repr__(self) -> str:
        return f"<kedge.Query over {', '.join(self.streams)}: {_columns(self.schema)}>"

    def _repr_html_(self) -> str:
        import html

        return f"<pre>{html.escape(self.text)}</pre><pre>{html.escape(self.explain())}</pre>"


def sql(text: str, *, watermark: str = "0 seconds", **streams: Any) -> Query:
    """A query in Spark's SQL over kedge streams, given by name.

    `watermark` says how late a row may be: a window closes once a row that much newer than its end has been seen.
    """
    if not isinstance(cast(object, text), str):
        raise UsageError(f"kedge.sql takes the query as text, not {type(text).__name__}.")
    if not streams:
        raise UsageError(
            "kedge.sql needs the streams that the text names: kedge.sql('... FROM rides ...', rides=rides)."
        )
    wrong = [name for name, value in streams.items() if not isinstance(value, Stream)]
    if wrong:
        raise UsageError(f"{', '.join(wrong)}: not a kedge stream. Open it with kedge.stream(path).")
    return Query(text, streams, duration_us(watermark))


def reopen(directory: RunDirectory) -> tuple[Query, Stream, Definition]:
    """The query, the result stream and the description of the run that lives in `directory`."""
    definition = directory.definition()
    if definition is None:
        raise UsageError(
            f"There is no run in {directory.path}. Start one with kedge.sql(...).start(path, into=...)."
        )
    streams = {name: _reopen_stream(directory.host, ref) for name, ref in definition.inputs.items()}
    query = Query(definition.sql, streams, definition.lag_us)
    return query, _reopen_stream(directory.host, definition.into), definition


def _reopen_stream(host: Host, ref: StreamRef) -> Stream:
    found = stream(ref.path, host=host)
    if found.id != ref.id:
        raise UsageError(
            f"The stream at {ref.path} is not the one that the run was started with (id {found.id}, not {ref.id}). "
            "Put the old one back, or start a new run."
        )
    return found


def _absolute(path: str | os.PathLike[str]) -> str:
    """A path that another process, with another working directory, understands."""
    place = os.fspath(path)
    return place if "://" in place else os.path.abspath(place)


def _check_free(into: Stream, definition: Definition) -> None:
    """Refuse a stream that has other rows, or is the result of another run."""
    if into.run is not None and into.run[1] != definition.id:
        raise ConflictError(f"{into.path} is the result of run {into.run[0]}. Give this run a stream of its own.")
    if into.run is None and any(into.ends()):
        raise UsageError(f"{into.path} has rows of its own. Give the run an empty stream.")


def _columns(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


__all__ = ["Query", "duration_us", "reopen", "sql"]
