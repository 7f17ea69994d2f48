"""The slow model: a query's failures tried one by one. Shares no code with kedge.resuming."""

from __future__ import annotations

import itertools
import random


class Plan:
    """Operations by name as (time, inputs, outputs), sizes of data by name, names of the results."""

    def __init__(self, operations, sizes, results):
        self.operations, self.sizes, self.results = operations, sizes, results
        self.made_by = {d: o for o, (_, _, outs) in operations.items() for d in outs}

    def ready(self, datum, saved, memo):
        if datum in saved:
            return saved[datum]
        if datum not in self.made_by:
            return 0
        if datum not in memo:
            time, inputs, _ = self.operations[self.made_by[datum]]
            memo[datum] = time + max([self.ready(d, saved, memo) for d in inputs], default=0)
        return memo[datum]

    def end(self, saved):
        memo = {}
        return max(self.ready(d, saved, memo) for d in self.results)

    def live(self):
        """The data that lead to a result, with their siblings."""
        return self.made_in({})

    def made_in(self, saved):
        """What a run from `saved` makes."""
        found, stack = set(), [d for d in self.results if d not in saved]
        while stack:
            d = stack.pop()
            if d in self.made_by and d not in found:
                _, ins, outs = self.operations[self.made_by[d]]
                found.update(o for o in outs if o not in saved)
                stack += [i for i in ins if i not in saved]
        return found

    def worst(self, chosen, write=None, restore=None):
        """Fail at every moment that matters: just before each save, and just before the end."""

        def move(d, rate):
            return 0 if rate is None else -(-self.sizes[d] * 1_000_000 // rate)

        total, memo = self.end({}), {}
        durable = {d: self.ready(d, {}, memo) + move(d, write) for d in chosen}
        worst = 0
        for fail in sorted({*durable.values(), total}):
            if fail <= total:
                saved = {d: move(d, restore) for d, at in durable.items() if at < fail}
                worst = max(worst, fail + self.end(saved))
        return worst

    def choices(self, **rates):
        """(worst, bytes, names) of every set of data that may be saved."""
        names = sorted(self.live())
        for n in range(len(names) + 1):
            for some in itertools.combinations(names, n):
                yield self.worst(some, **rates), sum(self.sizes[d] for d in some), some


def random_plan(seed, operations_max=7):
    """Several sinks, shared intermediates, operations with two outputs, zero times and zero sizes."""
    rng = random.Random(seed)
    operations, sizes, data = {}, {"base": 0}, ["base"]
    for i in range(rng.randint(1, operations_max)):
        outs = tuple(f"d{i}{s}" for s in ("a", "b")[: rng.choice((1, 1, 1, 2))])
        inputs = tuple(rng.sample(data, min(len(data), rng.choice((0, 1, 1, 2, 2, 3)))))
        operations[f"o{i}"] = (rng.choice((0, 1, 1, 2, 3, 5)), inputs, outs)
        for d in outs:
            sizes[d] = rng.choice((0, 1, 2, 3, 5, 8))
            data.append(d)
    read = {d for _, inputs, _ in operations.values() for d in inputs}
    sinks = [d for d in data if d != "base" and d not in read]
    return Plan(operations, sizes, sinks if rng.random() < 0.5 else [rng.choice(sinks)])


def to_dag(plan):
    from kedge.resuming import Datum, Operation, build

    names = list(plan.sizes)
    at = {d: i for i, d in enumerate(names)}
    operations = [
        Operation(o, t, tuple(at[d] for d in ins), tuple(at[d] for d in outs))
        for o, (t, ins, outs) in plan.operations.items()
    ]
    return build([Datum(d, plan.sizes[d]) for d in names], operations, [at[d] for d in plan.results]), names
