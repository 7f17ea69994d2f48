"""What each task of a run holds and does, for planning a move: the route, the work and the bytes, by task.

Read from the ledger and from the state units that the newest version needs; the run may go on meanwhile. Bytes are
those that a move reads from storage. Work is the number of state rows that the task has written since the last base
(its rows in the base, where nothing was written since): what its input made of its groups, not the input's rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kedge.run.directory import RunDirectory
from kedge.run.node import tasks_of
from kedge.run.query import reopen
from kedge.run.recover import follow
from kedge.streams import decode_named


def loads_of(directory: RunDirectory) -> dict[str, Any] | None:
    """{"nodes", "route", "work", "bytes"} with a number for each task; None before the first batch."""
    query, _, definition = reopen(directory)
    ledger = directory.ledger()
    state = follow(ledger)
    nodes = [record["nodes"] for record in ledger.records() if record["kind"] == "batch"][-1:]
    if not nodes:
        return None
    schema = query.program(definition.tasks).state_schema
    rows = {"redo": np.zeros(definition.tasks, np.int64), "full": np.zeros(definition.tasks, np.int64)}
    size = np.zeros(definition.tasks)
    for unit in state.units:
        try:
            data = directory.store.get(unit.file)
        except FileNotFoundError:
            continue  # released by the run that goes on: a newer unit stands for it
        task = decode_named(data, definition.id, unit.file, schema, [schema.names[0]]).column(0).to_numpy()
        held = np.bincount(task, minlength=definition.tasks)
        rows[unit.scheme] += held
        size += held * (unit.bytes / max(1, unit.rows))
    work = rows["redo"] if rows["redo"].any() else rows["full"]
    route = np.repeat(np.arange(nodes[0]), [len(tasks_of(n, nodes[0], definition.tasks)) for n in range(nodes[0])])
    return {
        "nodes": nodes[0],
        "route": route.tolist(),
        "work": work.tolist(),
        "bytes": np.rint(size).astype(int).tolist(),
    }
