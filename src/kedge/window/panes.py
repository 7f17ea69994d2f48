"""Panes: event time cut where windows begin or end, so that a row is in one pane and a window is whole panes.

Invariants:
- Windows begin at `start_us + k * slide_us` for every integer k, also before 1970: Spark's alignment.
- A pane is named by its first microsecond; it is half open, as windows are.
- Everything is integer arithmetic in microseconds; arrays in, arrays out. Nothing here knows about rows or state.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
from numpy.typing import NDArray

from kedge.errors import UsageError

Times = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Panes:
    """The panes of windows of `width_us` every `slide_us`.

    >>> sliding = Panes(width_us=60, slide_us=25)
    >>> sliding.pane_of(-1), sliding.windows_of(-1)
    (-15, (-50, -25))
    """

    width_us: int
    slide_us: int
    start_us: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.slide_us <= self.width_us:
            raise UsageError(
                f"A window of {self.width_us} us can't slide by {self.slide_us} us: 0 < slide <= width."
            )

    @property
    def is_tumbling(self) -> bool:
        """Whether windows do not overlap; then a pane is a window."""
        return self.width_us == self.slide_us

    def pane_of(self, time_us: int) -> int:
        """The first microsecond of the pane that holds `time_us`."""
        step = (time_us - self.start_us) // self.slide_us * self.slide_us + self.start_us
        # Windows end `width % slide` after a step: the step falls into at most two panes.
        cut = step + self.width_us % self.slide_us
        return step if time_us < cut or cut == step else cut

    def panes_of(self, times_us: Times) -> Times:
        """`pane_of` for an array."""
        steps = (times_us - self.start_us) // self.slide_us * self.slide_us + self.start_us
        cuts = steps + self.width_us % self.slide_us
        return np.where(times_us < cuts, steps, cuts)

    def pane_end(self, pane_us: int) -> int:
        """The first microsecond after the pane."""
        step = (pane_us - self.start_us) // self.slide_us * self.slide_us + self.start_us
        cut = step + self.width_us % self.slide_us
        return cut if pane_us < cut else step + self.slide_us

    def windows_of(self, time_us: int) -> tuple[int, ...]:
        """The beginnings of all windows that hold `time_us`, in order."""
        last = (time_us - self.start_us) // self.slide_us * self.slide_us + self.start_us
        count = (self.width_us - 1 - (time_us - last)) // self.slide_us
        first = last - count * self.slide_us
        return tuple(range(first, last + 1, self.slide_us))

    def panes_in(self, window_us: int) -> tuple[int, ...]:
        """The panes of the window that begins at `window_us`, in order."""
        panes, at = [], window_us
        while at < window_us + self.width_us:
            panes.append(at)
            at = self.pane_end(at)
        return tuple(panes)

    def last_use(self, pane_us: int) -> int:
        """The end of the last window that holds the pane: when the watermark is there, the pane may go."""
        last = (pane_us - self.start_us) // self.slide_us * self.slide_us + self.start_us
        return last + self.width_us

    def closed_between(self, after_us: int, until_us: int) -> range:
        """The beginnings of the windows whose end e has after_us < e <= until_us, in order."""
        low = (after_us - self.width_us - self.start_us) // self.slide_us + 1
        high = (until_us - self.width_us - self.start_us) // self.slide_us
        return range(low * self.slide_us + self.start_us, high * self.slide_us + self.start_us + 1, self.slide_us)

    @property
    def pane_us(self) -> int:
        """The length that divides every pane: the greatest common divisor of width and slide."""
        return gcd(self.width_us, self.slide_us)
