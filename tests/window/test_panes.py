"""Panes against brute force over microseconds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.errors import UsageError
from kedge.window import Panes

shapes = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(0, 11)).map(
    lambda given: (max(given[:2]), min(given[:2]), given[2] % min(given[:2]))
)
times = st.integers(-100, 100)


def windows_holding(time_us: int, width_us: int, slide_us: int, start_us: int) -> list[int]:
    """Beginnings of windows that hold a moment, by trying every microsecond."""
    near = range(time_us - width_us + 1, time_us + 1)
    return [begin for begin in near if (begin - start_us) % slide_us == 0]


@given(shapes, times)
def test_a_moment_is_in_the_windows_that_brute_force_finds(shape: tuple[int, int, int], time_us: int) -> None:
    assert list(Panes(*shape).windows_of(time_us)) == windows_holding(time_us, *shape)


@given(shapes, times)
def test_a_pane_is_the_longest_stretch_with_the_same_windows(shape: tuple[int, int, int], time_us: int) -> None:
    panes, same = Panes(*shape), windows_holding(time_us, *shape)
    begin, end = panes.pane_of(time_us), panes.pane_end(panes.pane_of(time_us))
    assert begin <= time_us < end
    assert all(windows_holding(at, *shape) == same for at in range(begin, end))
    # Gaps cannot occur (slide <= width), so neighbours differ whenever a window begins or ends between them.
    assert windows_holding(begin - 1, *shape) != same
    assert windows_holding(end, *shape) != same
    assert (end - begin) % panes.pane_us == 0


@given(shapes, st.lists(times, max_size=20))
def test_arrays_agree_with_single_moments(shape: tuple[int, int, int], many: list[int]) -> None:
    panes = Panes(*shape)
    assert panes.panes_of(np.array(many, np.int64)).tolist() == [panes.pane_of(at) for at in many]


@given(shapes, times)
def test_a_windows_panes_cover_it(shape: tuple[int, int, int], time_us: int) -> None:
    panes = Panes(*shape)
    for window_us in windows_holding(time_us, *shape):
        parts = panes.panes_in(window_us)
        covered = [at for part in parts for at in range(part, panes.pane_end(part))]
        assert covered == list(range(window_us, window_us + panes.width_us))


@given(shapes, times)
def test_a_pane_may_go_when_its_last_window_ends(shape: tuple[int, int, int], time_us: int) -> None:
    panes = Panes(*shape)
    last = max(windows_holding(time_us, *shape))
    assert panes.last_use(panes.pane_of(time_us)) == last + panes.width_us


@given(shapes, times, st.integers(0, 60))
def test_the_watermark_closes_each_window_once(shape: tuple[int, int, int], after_us: int, step_us: int) -> None:
    panes = Panes(*shape)
    ends = [
        at for at in range(after_us + 1, after_us + step_us + 1) if (at - panes.width_us - shape[2]) % shape[1] == 0
    ]
    assert [window + panes.width_us for window in panes.closed_between(after_us, after_us + step_us)] == ends


def test_windows_that_leave_gaps_are_refused() -> None:
    with pytest.raises(UsageError, match="0 < slide <= width"):
        Panes(10, 11)
    assert Panes(10, 10).is_tumbling
    assert not Panes(10, 5).is_tumbling
