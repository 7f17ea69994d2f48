"""The batch protocol's pure core, against what it promises."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.errors import ConflictError, CorruptError, InternalError, UsageError
from kedge.run.core import (
    ALWAYS_US,
    NEVER_US,
    Manifest,
    Plan,
    RunState,
    StateUnit,
    Written,
    attempt_name,
    commit_record,
    fold,
    plan_batch,
    sweep,
)


@dataclass(frozen=True)
class Unit:
    first_offset: int
    rows: int
    min_us: int | None
    max_us: int | None


@st.composite
def inputs(draw):
    """Some partitions with units whose offsets are dense and whose event times wander."""
    found = {}
    for name in draw(st.sampled_from([("a",), ("a", "b")])):
        for partition in range(draw(st.integers(1, 3))):
            offset, units = 0, []
            for _ in range(draw(st.integers(0, 6))):
                rows = draw(st.integers(1, 50))
                low = draw(st.integers(-1000, 1000))
                units.append(Unit(offset, rows, low, low + draw(st.integers(0, 100))))
                offset += rows
            found[name, partition] = units
    return found


def remaining(state: RunState, available):
    return {
        key: [unit for unit in units if unit.first_offset >= state.positions.get(key, 0)]
        for key, units in available.items()
    }


def plan_next(state, available, *, rows_max=60, lag_us=10, finish=False, nodes=2, nonce=None):
    return plan_batch(
        state,
        remaining(state, available),
        nonce=nonce or f"n{state.version}",
        nodes=nodes,
        rows_max=rows_max,
        lag_us=lag_us,
        finish=finish,
        now_us=0,
    )


def done(plan: Plan, rows: int = 3, open_us: int = ALWAYS_US - 1) -> list[Manifest]:
    return [
        Manifest(
            node=node,
            nonce=plan.nonce,
            results=(Written(attempt_name("units", plan, node, "x"), 10, rows, 0, 1),),
            state=(StateUnit(attempt_name("state", plan, node, "x"), 10, rows, plan.scheme, open_us),),
            figures={"rows": 5, "rows_late": 0},
        )
        for node in range(plan.nodes)
    ]


def commit(state, plan, manifests, partitions=1):
    record = commit_record(state, plan, manifests, result_partitions=partitions, now_us=7)
    record = json.loads(json.dumps(record))  # as the ledger keeps it
    return fold(state, {**record, "slot": state.position + 1}), record


def claimed(epoch: int = 1) -> RunState:
    return fold(RunState(), {"kind": "claim", "slot": 0, "epoch": epoch, "nonce": "c"})


@given(inputs(), st.integers(1, 200))
def test_batches_take_every_row_once_in_order(available, rows_max):
    state, taken = claimed(), {key: [] for key in available}
    watermark = NEVER_US
    while (plan := plan_next(state, available, rows_max=rows_max, finish=True)) is not None:
        for r in plan.ranges:
            taken[r.input, r.partition] += [
                u for u in available[r.input, r.partition] if r.start <= u.first_offset < r.end
            ]
        count = sum(r.end - r.start for r in plan.ranges)
        biggest = max((u.rows for units in available.values() for u in units), default=0)
        assert count <= max(rows_max, biggest)
        assert plan.late_us == watermark
        assert plan.close_us >= watermark
        watermark = plan.close_us
        state, _ = commit(state, plan, done(plan))
    assert taken == available
    assert state.final
    assert watermark == ALWAYS_US
    for key, units in available.items():
        assert state.positions.get(key, 0) == sum(u.rows for u in units)


@given(inputs())
def test_the_watermark_is_the_slowest_input_less_the_lag(available):
    state = claimed()
    seen: dict[str, int] = {}
    while (plan := plan_next(state, available, rows_max=1)) is not None:
        for r in plan.ranges:
            for unit in available[r.input, r.partition]:
                if r.start <= unit.first_offset < r.end:
                    seen[r.input] = max(seen.get(r.input, NEVER_US), unit.max_us)
        names = {name for name, _ in available}
        want = min(seen.values()) - 10 if names == set(seen) else NEVER_US
        assert plan.close_us == max(want, plan.late_us)
        state, _ = commit(state, plan, done(plan))


def test_no_batch_without_input_and_none_after_the_end():
    state = claimed()
    assert plan_next(state, {("a", 0): []}) is None
    last = plan_next(state, {("a", 0): []}, finish=True)
    assert last is not None
    assert last.final
    state, _ = commit(state, last, done(last))
    assert plan_next(state, {("a", 0): [Unit(0, 5, 0, 0)]}, finish=True) is None


def test_a_gap_in_the_input_is_an_error_that_says_where():
    state = replace(claimed(), positions={("a", 0): 10})
    with pytest.raises(UsageError, match=r"at offset 10, but .* begin at 20"):
        plan_batch(
            state, {("a", 0): [Unit(20, 5, 0, 0)]},
            nonce="n", nodes=1, rows_max=10, lag_us=0, finish=False, now_us=0,
        )  # fmt: skip


def test_results_get_dense_offsets_by_node_and_partition():
    state = claimed()
    offsets = {0: [], 1: []}
    for _ in range(3):
        plan = plan_next(state, {("a", 0): [Unit(i * 5, 5, i, i) for i in range(9)]}, rows_max=5, nodes=3)
        state, record = commit(state, plan, done(plan, rows=4), partitions=2)
        for unit in record["results"]:
            offsets[unit["partition"]] += range(unit["offset"], unit["offset"] + unit["rows"])
    assert offsets[0] == list(range(24))
    assert offsets[1] == list(range(12))
    assert state.result_ends == {0: 24, 1: 12}


def test_a_plan_of_another_parent_epoch_or_slot_is_a_conflict():
    state = claimed()
    plan = plan_next(state, {("a", 0): [Unit(0, 5, 0, 0)]})
    for other in (replace(plan, parent="q"), replace(plan, epoch=9), replace(plan, position=plan.position + 1)):
        with pytest.raises(ConflictError, match="another coordinator"):
            commit_record(state, other, done(other), result_partitions=1, now_us=0)


def test_manifests_must_be_of_every_node_once_and_of_this_plan():
    state = claimed()
    plan = plan_next(state, {("a", 0): [Unit(0, 5, 0, 0)]})
    good = done(plan)
    for bad in (good[:1], [*good, good[0]], [good[0], replace(good[1], nonce="old")]):
        with pytest.raises(InternalError):
            commit_record(state, plan, bad, result_partitions=1, now_us=0)


def test_closed_state_units_are_released_and_a_base_releases_all_before_it():
    units = {("a", 0): [Unit(i, 1, i * 100, i * 100) for i in range(9)]}
    state = claimed()
    plan = plan_next(state, units, rows_max=1)
    state, first = commit(state, plan, done(plan, open_us=150))
    assert first["release"] == []
    plan = plan_next(state, units, rows_max=2)  # the watermark passes 150
    assert plan.close_us == 190
    state, second = commit(state, plan, done(plan, open_us=10_000))
    assert second["release"] == [unit["file"] for unit in first["state"]]
    assert [u.file for u in state.units] == [unit["file"] for unit in second["state"]]

    heavy = replace(state, units=tuple(replace(u, bytes=1 << 30) for u in state.units))
    plan = plan_next(heavy, units, rows_max=1)
    assert plan.scheme == "full"
    after, third = commit(heavy, plan, done(plan))
    assert third["release"] == [u.file for u in heavy.units]
    assert [u.scheme for u in after.units] == ["full", "full"]


def test_sweep_spares_what_records_name_and_what_may_be_under_way():
    state = claimed(epoch=3)
    plan = plan_next(state, {("a", 0): [Unit(0, 5, 0, 0)]})
    state, _ = commit(state, plan, done(plan))
    kept = [u.file for u in state.units]
    lost_attempt = attempt_name("state", plan, 0, "y")
    under_way = attempt_name("state", replace(plan, position=plan.position + 1), 0, "y")
    zombie = attempt_name("state", replace(plan, epoch=2, position=99), 0, "y")
    result = attempt_name("units", plan, 0, "kept")
    names = [*kept, lost_attempt, under_way, zombie, result, "state/readme", "state/a-b-c-d-e.unit"]
    assert sweep(state, [result], names) == [lost_attempt, zombie]


@given(inputs())
def test_a_summary_stands_for_the_records_before_it(available):
    state = claimed()
    for _ in range(3):
        plan = plan_next(state, available)
        if plan is None:
            break
        state, _ = commit(state, plan, done(plan))
    assert RunState.from_json(json.loads(json.dumps(state.to_json()))) == state
    assert plan_next(state, available) == plan_next(RunState.from_json(state.to_json()), available)


def test_a_ledger_that_was_tampered_with_is_refused():
    state = claimed()
    units = {("a", 0): [Unit(0, 5, 0, 0), Unit(5, 5, 0, 0)]}
    plan = plan_next(state, units, rows_max=5)
    state, record = commit(state, plan, done(plan))
    following = plan_next(state, units, rows_max=5)
    _, record = commit(state, following, done(following))
    slot = {"slot": state.position + 1}
    with pytest.raises(CorruptError, match="names the parent"):
        fold(state, {**record, **slot, "parent": "other"})
    with pytest.raises(CorruptError, match="reads a/0 from 3"):
        fold(state, {**record, **slot, "ranges": [["a", 0, 3, 10]]})
    with pytest.raises(CorruptError, match="unknown kind"):
        fold(state, {"kind": "rewind", **slot})
    with pytest.raises(InternalError):
        fold(state, {**record, "slot": state.position + 2})


@given(inputs(), st.integers(1, 4))
def test_plans_and_manifests_survive_their_journey(available, nodes):
    plan = plan_next(claimed(), available, nodes=nodes, finish=True)
    if plan is not None:
        assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
        for manifest in done(plan):
            assert Manifest.from_json(json.loads(json.dumps(manifest.to_json()))) == manifest
