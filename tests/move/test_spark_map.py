"""The precomputation on Spark gives what it gives here, exact and learned."""

from __future__ import annotations

import numpy as np
import pytest

from kedge import move


@pytest.mark.slow
def test_precomputation_on_spark_equals_the_embedded_one(spark) -> None:
    from kedge.spark.pmc import spark_map

    rng = np.random.default_rng(3)
    work, size = rng.integers(1, 20, 12), rng.integers(0, 90, 12)
    chances = move.transitions([[0.2, 0.5, 0.3], [0.4, 0.2, 0.4], [0.3, 0.6, 0.1]], lowest=2)
    run = spark_map(spark, partitions=2)  # type: ignore[arg-type]
    here = move.precompute(work, size, chances, 0.4, gamma=0.2, method="exact")
    there = move.precompute(work, size, chances, 0.4, gamma=0.2, method="exact", run=run)
    assert there.sweeps == here.sweeps > 1
    assert sum(len(costs) for costs in here.costs.values()) > 30
    for nodes in chances.counts:
        assert np.array_equal(here.costs[nodes], there.costs[nodes])


@pytest.mark.slow
def test_training_on_spark_finds_the_same_weights(spark) -> None:
    from kedge.move import learn
    from kedge.move.forecast import here
    from kedge.move.limits import problem
    from kedge.spark.pmc import spark_map

    rng = np.random.default_rng(4)
    given = problem([0] * 16, rng.integers(1, 20, 16), rng.integers(1, 90, 16), 1)
    chances = move.transitions([[0.0, 1.0], [1.0, 0.0]], lowest=3)
    trained = [
        learn.train(given.work, given.size, chances, 0.4, 0.8, least=0.0, run=run, rounds=2, population=8, paths=2)
        for run in (here, spark_map(spark, partitions=2))  # type: ignore[arg-type]
    ]
    assert np.array_equal(trained[0].weights, trained[1].weights)
