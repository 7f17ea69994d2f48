"""A stage as pieces: what saving finished partitions buys over saving whole intermediates.

`split` makes a graph in which operation i is `pieces[i]` equal operations, each with its share of the outputs. The
consumers of a piece are all pieces of the next operation (an exchange), so that recovery repeats only the pieces
that were not saved. The groups it returns let a choice save the pieces of one operation together or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kedge.resuming.dag import Dag, Datum, Operation, build


def split(dag: Dag, pieces: Sequence[int], workers: int) -> tuple[Dag, Mapping[str, tuple[int, ...]]]:
    """The graph of pieces for a machine of `workers`, and which of its data belong to which datum of `dag`.

    `time_us` of an operation is its time on the whole machine; a piece takes `workers / pieces` of that.
    """
    data: list[Datum] = []
    parts: list[tuple[int, ...]] = []
    for index, datum in enumerate(dag.data):
        made_by = dag.producer[index]
        count = 1 if made_by < 0 else max(1, pieces[made_by])
        names = [datum.name] if count == 1 else [f"{datum.name}[{at}]" for at in range(count)]
        shares = [datum.bytes * (at + 1) // count - datum.bytes * at // count for at in range(count)]
        parts.append(tuple(range(len(data), len(data) + count)))
        data += [Datum(name, share, datum.saveable) for name, share in zip(names, shares, strict=True)]
    operations: list[Operation] = []
    for index, operation in enumerate(dag.operations):
        count = max(1, pieces[index])
        at_once = min(count, workers)
        inputs = tuple(part for datum in operation.inputs for part in parts[datum])
        for at in range(count):
            outputs = tuple(parts[datum][at] for datum in operation.outputs)
            name = operation.name if count == 1 else f"{operation.name}[{at}]"
            operations.append(Operation(name, operation.time_us * at_once // count, inputs, outputs))
    results = [part for datum in dag.results for part in parts[datum]]
    groups = {dag.data[d].name: parts[d] for d in dag.candidates}
    return build(data, operations, results), groups
