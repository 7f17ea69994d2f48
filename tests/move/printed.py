"""The paper's Figure 7, line by line, with its three repairs as switches: shows that each is necessary."""

from __future__ import annotations

from functools import cache
from itertools import accumulate

from oracle import Instance

NEVER = float("-inf")


def figure_7(given: Instance, cap: int, *, empty_right: bool, all_free: bool, redirect: bool) -> float:
    """The most bytes kept, by the recursion of Figure 7; minus infinity where it finds no assignment.

    empty_right  x may reach m + 1, so that nothing is left over on the right
    all_free     a sub-problem that enough intervals cover is worth at least 0: all of them may be free
    redirect     a redundant P2 is replaced by the one it equals instead of being skipped
    """
    m = len(given.route)
    starts = [t for t in range(m) if t == 0 or given.route[t] != given.route[t - 1]]
    old = list(zip(starts, [*starts[1:], m], strict=True))
    size = [0, *accumulate(given.size)]
    work = [0, *accumulate(given.work)]

    def gain(node: int, a: int, b: int) -> int:
        low, high = max(a, old[node][0]), min(b, old[node][1])
        return size[high] - size[low] if low < high else 0

    @cache
    def needed(a: int, b: int) -> float:
        """The fewest intervals within the cap that cover [a, b)."""
        if a >= b:
            return 0
        end = a
        while end < b and work[end + 1] - work[a] <= cap:
            end += 1
        return 1 + needed(end, b) if end > a else float("inf")

    @cache
    def best(alpha: int, first: int, count: int) -> float:
        if alpha == m:
            return 0
        if count < 1:
            return NEVER
        if count == 1:
            if work[m] - work[alpha] > cap:
                return NEVER
            return max((gain(node, alpha, m) for node in range(first, len(old))), default=0)
        found = 0 if all_free and needed(alpha, m) <= count else NEVER
        for x in range(alpha + 1, m + 1 if empty_right else m):
            low = next((a for a in range(alpha, x) if work[x] - work[a] <= cap), None)
            if low is None:
                continue
            fewest = 1 + needed(alpha, low)
            for y in choices(first, low, x):
                after = y + 1
                if after < len(old) and old[after][1] <= x:  # this P2 is redundant
                    if not redirect:
                        continue
                    after = next((j for j in range(after, len(old)) if old[j][1] > x), len(old))
                if fewest <= count and (x == m or count - fewest >= 1):
                    found = max(found, gain(y, low, x) + best(x, after, count - int(fewest)))
        return found

    def choices(first: int, low: int, x: int) -> set[int]:
        """Lemma 4.5: the node that holds x - 1, or the one that gains most among those that end by x."""
        holder = next(j for j, (a, b) in enumerate(old) if a < x <= b)
        ended = [j for j in range(first, len(old)) if old[j][1] <= x]
        chosen = {holder} if holder >= first else set()
        if ended:
            chosen.add(max(ended, key=lambda j: (gain(j, low, x), j)))
        return chosen

    return best(0, 0, given.nodes)
