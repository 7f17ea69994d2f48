"""The table of the paper again: figures that follow from the plans, checked by running the failures one by one."""

import json

import pytest

from kedge.bench import _resume_plans as plans


def worst_by_hand(plan, saved_at_end):
    """2T-style worst case of one checkpoint on a raw plan, without kedge.resuming."""
    ready = dict.fromkeys(range(len(plan["data_bytes"])), 0)
    for _, us, ins, outs in plan["operations"]:
        for datum in outs:
            ready[datum] = us + max((ready[i] for i in ins), default=0)
    end = ready[plan["result"]]
    again = dict.fromkeys(ready, 0)
    for _, us, ins, outs in plan["operations"]:
        for datum in outs:
            again[datum] = 0 if datum == saved_at_end else us + max((again[i] for i in ins), default=0)
    return end, max(ready[saved_at_end] + end, end + again[plan["result"]])


@pytest.mark.parametrize("query", [6, 17, 22])
def test_single_checkpoint_of_a_real_plan(query):
    text = plans.resources.files("kedge.bench").joinpath("data/tpch-monetdb-plans.json").read_text()
    plan = json.loads(text)["plans"]["parallel4"][str(query)]
    base = set(plan["base"]) | {plan["result"]}
    worst = {d: worst_by_hand(plan, d) for d in range(len(plan["data_bytes"])) if d not in base}
    end = next(iter(worst.values()))[0]
    row = plans.row("parallel4", query, plans.load("parallel4")[query], "primal-dual", 5.0)
    assert row.repeat_us == 2 * end
    assert row.single[0] == pytest.approx(1 - min(w for _, w in worst.values()) / (2 * end))
    assert row.single[0] <= 0.25
    assert row.single[0] <= row.ceiling + 1e-12
    assert row.ours_near_ceiling[0] >= 0.9 * row.ceiling - 1e-6
    assert str(query) in plans.table([row])


@pytest.mark.parametrize("query", [4, 6, 13])
def test_a_sequential_plan_has_one_worker_and_its_quarters_take_fewer_bytes(query):
    dag = plans.load("sequential")[query]
    row = plans.row("sequential", query, dag, "auto", 5.0)
    assert row.repeat_us == 2 * sum(operation.time_us for operation in dag.operations)
    assert row.single[0] <= 0.25
    assert row.finer_as_halfway <= row.ours_as_halfway <= row.halfway[1]
    assert row.finer_near_ceiling <= row.ours_near_ceiling[1] <= row.everything[1]
    names = {
        operation.name.partition("[")[0] for operation in plans.quartered(dag).operations if "[" in operation.name
    }
    assert names
    assert not any(name.startswith(("group", "aggr", "algebra.sort")) for name in names)
