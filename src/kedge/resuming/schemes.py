"""The schemes of the paper, corrected: one optimal checkpoint, the halfway scheme, save everything.

What is corrected (design.md section 11): one checkpoint reaches at most 25% (worst >= 1.5 T), never the printed
29.8%; the halfway scheme's "33%" is arithmetically 25%, and its guarantee fails because operations that run at the
half lose their work; nothing is chosen when nothing helps; ties go to the fewest bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from kedge.resuming.cost import worst_us
from kedge.resuming.dag import Dag
from kedge.resuming.schedule import Speeds, needed, schedule


@dataclass(frozen=True, slots=True)
class Scheme:
    """What a scheme saves, what that takes, and the worst case that it reaches."""

    saved: frozenset[int]
    bytes: int
    worst_us: int


def singles(dag: Dag, speeds: Speeds | None = None) -> list[Scheme]:
    """All optimal single checkpoints, fewest bytes first; empty when none helps.

    Every datum is tried, not only one critical path: with finite workers or slow restores others can help.
    """
    speeds = speeds or Speeds()
    nothing = best = worst_us(dag, (), speeds)
    found: list[Scheme] = []
    for datum in dag.candidates:
        worst = worst_us(dag, (datum,), speeds)
        if worst < best:
            best, found = worst, []
        if worst == best and worst < nothing:
            found.append(Scheme(frozenset((datum,)), dag.data[datum].bytes, worst))
    return sorted(found, key=lambda scheme: (scheme.bytes, min(scheme.saved)))


def halfway(dag: Dag, speeds: Speeds | None = None) -> Scheme:
    """At half of the run, save what was made by then and is still needed; with its true worst case."""
    speeds = speeds or Speeds()
    run = schedule(dag, speeds=speeds)
    half = run.end_us / 2
    made = {d for d in dag.candidates if run.ready_us[d] <= half}
    left = [op for op, runs in zip(dag.operations, needed(dag, made), strict=True) if runs]
    still = {d for op in left for d in op.inputs} | dag.results
    saved = frozenset(made & still)
    written = round(half) + max((speeds.save_us(dag.data[d].bytes) for d in saved), default=0)
    after = schedule(dag, saved, speeds).end_us if written < run.end_us else run.end_us
    worst = max(min(written, run.end_us) + run.end_us, run.end_us + after)
    return Scheme(saved, dag.bytes_of(saved), worst)


def everything(dag: Dag, speeds: Speeds | None = None) -> Scheme:
    """Save every intermediate that is made before the run ends."""
    run = schedule(dag, speeds=speeds)
    saved = frozenset(d for d in dag.candidates if run.ready_us[d] < run.end_us)
    return Scheme(saved, dag.bytes_of(saved), worst_us(dag, saved, speeds))
