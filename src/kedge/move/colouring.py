"""Equitable edge colouring of a bipartite multigraph: every colour is a matching, and sizes differ by at most one.

König: as many colours as the highest degree are enough. Two colours together form paths and cycles that alternate
between them, so where one colour has more edges there is a path that begins and ends with it; exchanging the two
colours along it evens them out. This file knows nothing of tasks or nodes.
"""

from __future__ import annotations

from collections.abc import Sequence


class Colouring:
    """Edges (left, right) with a colour each; no two edges of one colour meet."""

    def __init__(self, edges: Sequence[tuple[int, int]], colours: int) -> None:
        lefts = 1 + max((left for left, _ in edges), default=-1)
        rights = 1 + max((right for _, right in edges), default=-1)
        self.edges = [(left, lefts + right) for left, right in edges]
        self.colour = [-1] * len(edges)
        self.sizes = [0] * colours
        self._at: list[dict[int, int]] = [{} for _ in range(lefts + rights)]
        for edge in range(len(edges)):
            self._add(edge)

    def _add(self, edge: int) -> None:
        u, v = self.edges[edge]
        a = self._free(u)
        if a in self._at[v]:
            self._exchange(self.chain(self._at[v][a], a, self._free(v), v), a, self._free(v))
        self._paint(edge, a)

    def _free(self, vertex: int) -> int:
        return next(c for c in range(len(self.sizes)) if c not in self._at[vertex])

    def _paint(self, edge: int, colour: int) -> None:
        self.colour[edge] = colour
        self.sizes[colour] += 1
        for vertex in self.edges[edge]:
            self._at[vertex][colour] = edge

    def _wipe(self, edge: int) -> None:
        colour = self.colour[edge]
        self.sizes[colour] -= 1
        for vertex in self.edges[edge]:
            del self._at[vertex][colour]

    def chain(self, edge: int, a: int, b: int, start: int) -> list[int]:
        """The edges of colours a and b in a row from `start` on, the first of which is `edge`."""
        found = [edge]
        vertex = self._other(edge, start)
        while True:
            wanted = b if self.colour[found[-1]] == a else a
            following = self._at[vertex].get(wanted, -1)
            if following < 0 or following == edge:
                return found
            found.append(following)
            vertex = self._other(following, vertex)

    def component(self, edge: int, b: int) -> list[int]:
        """All edges that hang together with `edge` in its own colour and b."""
        a = self.colour[edge]
        u = self.edges[edge][0]
        ahead = self.chain(edge, a, b, u)
        last = self._at[u].get(b, -1)
        if last < 0 or last in ahead[1:]:
            return ahead
        return ahead + self.chain(last, a, b, u)

    def exchange(self, edges: list[int], a: int, b: int) -> None:
        """Exchange colours a and b on a whole component."""
        self._exchange(edges, a, b)

    def _exchange(self, edges: list[int], a: int, b: int) -> None:
        after = [b if self.colour[edge] == a else a for edge in edges]
        for edge in edges:
            self._wipe(edge)
        for edge, colour in zip(edges, after, strict=True):
            self._paint(edge, colour)

    def _other(self, edge: int, vertex: int) -> int:
        u, v = self.edges[edge]
        return v if vertex == u else u

    def even_out(self) -> None:
        """Make the sizes differ by at most one."""
        while max(self.sizes) - min(self.sizes) > 1:
            large, small = self.sizes.index(max(self.sizes)), self.sizes.index(min(self.sizes))
            seen: set[int] = set()
            for edge in [e for e, c in enumerate(self.colour) if c == large]:
                if edge in seen:
                    continue
                chain = self.component(edge, small)
                seen.update(chain)
                if sum(1 if self.colour[e] == large else -1 for e in chain) == 1:
                    self._exchange(chain, large, small)
                    if self.sizes[large] - self.sizes[small] <= 1:
                        break
