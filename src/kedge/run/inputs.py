"""What a run reads: units that are there, and the partial results that fragments make of them.

A fragment is cut at the unit, and parts are kept in the order of (input, partition, offset); so the result is the
same bytes whatever the number of threads or read tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from kedge.kernel import Program
from kedge.run.core import Plan, Range, RunState
from kedge.run.node import Part, for_node, tasks_of
from kedge.streams import Stream, UnitInfo


def available_units(state: RunState, streams: Mapping[str, Stream]) -> dict[tuple[str, int], list[UnitInfo]]:
    """By (input, partition): the durable units from the run's position on."""
    return {
        (name, partition): stream.units(partition, state.positions.get((name, partition), 0))
        for name, stream in streams.items()
        for partition in range(stream.partitions)
    }


def read_parts(
    program: Program,
    streams: Mapping[str, Stream],
    plan: Plan,
    ranges: Sequence[Range],
    mapped: Callable[[Callable[[Any], Part], Iterable[Any]], Iterable[Part]] = map,
) -> Iterator[Part]:
    """The parts of some of the plan's ranges, in order; `mapped` may compute several at once, but keeps the order."""

    def fragment(unit: tuple[str, UnitInfo]) -> Part:
        name, info = unit
        made = program.fragment(name, streams[name].read_unit(info, columns[name]), plan.late_us)
        return Part(made.partials, made.rows, made.rows_late)

    columns = {source.name: source.columns for source in program.inputs}

    units = [(r.input, info) for r in ranges for info in streams[r.input].units(r.partition, r.start, r.end)]
    yield from mapped(fragment, units)


def share(parts: Sequence[Part], node: int, nodes: int, tasks: int) -> list[Part]:
    """What one node gets of the parts: the rows of its tasks; what was counted goes to node 0 only."""
    mine = tasks_of(node, nodes, tasks)
    return [
        Part(for_node(part.partials, mine), part.rows if node == 0 else 0, part.rows_late if node == 0 else 0)
        for part in parts
    ]
