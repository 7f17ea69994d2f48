"""The 22 TPC-H plans as MonetDB ran them, and the paper's table 1 and figures 2 and 3 from them.

The plans are data (`data/tpch-monetdb-plans.json`): operations with microseconds, data with bytes. `parallel4` is
split in four by MonetDB itself and runs on as many workers as it likes, as in the paper; `sequential` ran on one
thread, so its model has one worker. The paper's own numbers are of another version of MonetDB.

Granularity is our lever: of a sequential plan the long row-wise operations (a selection, an expression, the probe
side of a join) are also cut into quarters, and finished quarters are saved. Sorts, groups and aggregates stay whole.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from kedge.resuming import Dag, Datum, Operation, build, fewest_bytes
from kedge.resuming.choose import Method
from kedge.resuming.cost import floor_us, worst_us
from kedge.resuming.cuts import Cut
from kedge.resuming.pieces import split
from kedge.resuming.schedule import Speeds, schedule
from kedge.resuming.schemes import everything, halfway, singles

# Table 1 of the paper: repeat time and single checkpoint time (us), reduction (%), single and naive size (MB).
PAPER = {
    1: (5558090, 5051882, 9.1, 28.2, 56.4),
    2: (258388, 256650, 0.7, 0.8, 9.2),
    3: (707364, 706751, 0.1, 0.1, 96.7),
    4: (979034, 978770, 0, 0, 122.5),
    5: (1345364, 1131621, 15.9, 4.3, 153.0),
    6: (596478, 594369, 0.4, 4.2, 210.1),
    7: (2074210, 2055670, 0.9, 18.4, 329.9),
    8: (810992, 810138, 0.1, 0.2, 218.2),
    9: (12238168, 12234414, 0, 10.9, 29.9),
    10: (840094, 803552, 4.3, 0.4, 41.0),
    11: (171628, 166574, 2.9, 0, 30.8),
    12: (828064, 820831, 0.9, 25.9, 293.6),
    13: (10082486, 7103963, 29.5, 14.6, 29.3),
    15: (300032, 290238, 3.3, 1.1, 59.5),
    17: (1067854, 1056876, 1, 0.2, 118.1),
    18: (22558, 21153, 6.2, 28.6, 28.6),
    21: (2778552, 2703561, 2.7, 42.9, 208.9),
    22: (226294, 158949, 29.8, 0.1, 2.3),
}
NEAR_CEILING = 0.9
QUARTERS = 4
_LONG = 0.02  # of the run: what is shorter is not cut
_ROW_WISE = (
    "algebra.crossproduct", "algebra.difference", "algebra.intersect", "algebra.join", "algebra.likeselect",
    "algebra.projection", "algebra.select", "algebra.thetaselect", "batalgebra", "batcalc", "batmtime", "batstr",
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """One query: reductions of the worst case (0 to 0.5) and bytes of each scheme."""

    plan: str
    query: int
    repeat_us: int
    single: tuple[float, int]
    halfway: tuple[float, int]
    everything: tuple[float, int]
    ceiling: float
    ours_as_halfway: int
    ours_near_ceiling: tuple[float, int]
    finer_as_halfway: int
    finer_near_ceiling: int
    exact: bool


def load(plan: str) -> dict[int, Dag]:
    """The plans of one kind by query number."""
    text = resources.files("kedge.bench").joinpath("data/tpch-monetdb-plans.json").read_text()
    plans: Mapping[str, Any] = json.loads(text)["plans"][plan]
    return {int(query): _dag(each) for query, each in plans.items()}


def _dag(plan: Mapping[str, Any]) -> Dag:
    base = set(plan["base"])
    data = [Datum(f"d{i}", size, i not in base) for i, size in enumerate(plan["data_bytes"])]
    operations = [Operation(name, us, tuple(ins), tuple(outs)) for name, us, ins, outs in plan["operations"]]
    return build(data, operations, [plan["result"]])


def model_of(plan: str) -> Speeds:
    """How many workers a kind of plan ran on."""
    return Speeds(workers=1) if plan == "sequential" else Speeds()


def quartered(dag: Dag) -> Dag:
    """The same plan with its long row-wise operations in quarters."""
    total = sum(operation.time_us for operation in dag.operations)
    counts = [
        QUARTERS if operation.name.startswith(_ROW_WISE) and operation.time_us > _LONG * total else 1
        for operation in dag.operations
    ]
    return split(dag, counts, 1)[0]


def row(plan: str, query: int, dag: Dag, method: Method, seconds_max: float, *, whole: bool = True) -> Row:
    """Every scheme on one plan; without `whole`, ours of a sequential plan in quarters only."""
    speeds = model_of(plan)
    end = schedule(dag, speeds=speeds).end_us

    def less(worst: int) -> float:
        return 1 - worst / (2 * end)

    def fewest(graph: Dag, target: int) -> Cut:
        # Quarters are rounded down to microseconds, so the whole is a little shorter.
        target += 2 * (schedule(graph, speeds=speeds).end_us - end) + (QUARTERS if graph is not dag else 0)
        found = fewest_bytes(graph, target, speeds, method, seconds_max)
        assert found is not None
        return found

    one, half = singles(dag, speeds)[:1], halfway(dag, speeds)
    all_of_it, floor = everything(dag, speeds), floor_us(dag, speeds)
    near_us = int(2 * end * (1 - NEAR_CEILING * less(floor)))
    finer = quartered(dag) if plan == "sequential" else dag
    finer_half, finer_near = fewest(finer, half.worst_us), fewest(finer, near_us)
    as_half, near = finer_half, finer_near
    if whole and finer is not dag:
        as_half, near = fewest(dag, half.worst_us), fewest(dag, near_us)
    return Row(
        plan=plan,
        query=query,
        repeat_us=2 * end,
        single=(less(one[0].worst_us), one[0].bytes) if one else (0.0, 0),
        halfway=(less(half.worst_us), half.bytes),
        everything=(less(all_of_it.worst_us), all_of_it.bytes),
        ceiling=less(floor),
        ours_as_halfway=as_half.bytes,
        ours_near_ceiling=(less(worst_us(dag if whole else finer, near.chosen, speeds)), near.bytes),
        finer_as_halfway=finer_half.bytes,
        finer_near_ceiling=finer_near.bytes,
        exact=as_half.exact and near.exact,
    )


def table(rows: Sequence[Row]) -> str:
    """Table 1 with the paper's columns, its printed numbers, and ours."""
    head = (
        "| plan | query | repeat (us) | single (us) | single (% less) | single (MB) | halfway (% less, true) | "
        "halfway (MB) | ours for the same (MB) | ceiling (%) | ours at 90% of it (% less) | (MB) | "
        "everything (MB) | in quarters for the halfway's (MB) | at 90% of the ceiling (MB) | "
        "paper: single (%) | paper: single (MB) | paper: naive (MB) |"
    )
    lines = [head, "|" + "---|" * (head.count("|") - 1)]
    for r in rows:
        paper = PAPER.get(r.query)
        printed = f"{paper[2]} | {paper[3]} | {paper[4]}" if paper else "- | - | -"
        lines.append(
            f"| {r.plan} | {r.query} | {r.repeat_us} | {round(r.repeat_us * (1 - r.single[0]))} | "
            f"{100 * r.single[0]:.1f} | "
            f"{r.single[1] / 1e6:.3f} | {100 * r.halfway[0]:.1f} | {r.halfway[1] / 1e6:.3f} | "
            f"{r.ours_as_halfway / 1e6:.3f} | {100 * r.ceiling:.1f} | "
            f"{100 * r.ours_near_ceiling[0]:.1f} | {r.ours_near_ceiling[1] / 1e6:.3f} | "
            f"{r.everything[1] / 1e6:.3f} | {r.finer_as_halfway / 1e6:.3f} | {r.finer_near_ceiling / 1e6:.3f} | "
            f"{printed} |"
        )
    return "\n".join(lines) + "\n"


def effectiveness(r: Row) -> float | None:
    """Figure 3: protection per byte of the single checkpoint over that of the halfway scheme."""
    if r.single[0] <= 0 or r.halfway[0] <= 0 or not r.single[1] or not r.halfway[1]:
        return None
    return (r.single[0] / r.single[1]) / (r.halfway[0] / r.halfway[1])


def pictures(rows: Sequence[Row], out: Path) -> None:
    """Figures 2 and 3; without matplotlib the table has the same numbers."""
    try:
        import matplotlib as mpl
    except ImportError:
        return
    mpl.use("Agg")
    from matplotlib import pyplot

    for plan in sorted({r.plan for r in rows}):
        mine = [r for r in rows if r.plan == plan]
        figure: Any
        axes: Any
        figure, axes = pyplot.subplots(figsize=(11, 4))
        at = range(len(mine))
        axes.bar([x - 0.3 for x in at], [100 * r.single[0] for r in mine], 0.2, label="single checkpoint")
        axes.bar([x - 0.1 for x in at], [100 * r.halfway[0] for r in mine], 0.2, label="halfway, true")
        axes.bar([x + 0.1 for x in at], [100 * r.ours_near_ceiling[0] for r in mine], 0.2, label="ours, several")
        axes.bar([x + 0.3 for x in at], [100 * r.ceiling for r in mine], 0.2, label="ceiling")
        axes.set_xticks(list(at), [str(r.query) for r in mine])
        axes.set_ylabel("% less worst case")
        axes.legend()
        figure.savefig(out / f"resume-figure2-{plan}.svg")
        pyplot.close(figure)
        figure, axes = pyplot.subplots(figsize=(11, 4))
        values = [effectiveness(r) for r in mine]
        axes.bar(list(at), [value or 0 for value in values])
        axes.set_yscale("log")
        axes.axhline(1, color="black", linewidth=0.5)
        axes.set_xticks(list(at), [str(r.query) for r in mine])
        axes.set_ylabel("protection per byte, single / halfway")
        figure.savefig(out / f"resume-figure3-{plan}.svg")
        pyplot.close(figure)
