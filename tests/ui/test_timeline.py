"""Pictures of throughput keep the rows they were given."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.ui.timeline import Mark, Span, as_png, in_terminal, rates

SPANS = st.lists(
    st.tuples(st.floats(0, 100), st.floats(0.001, 20), st.integers(0, 10**7)).map(
        lambda t: Span(t[0], t[0] + t[1], t[2])
    ),
    min_size=1,
    max_size=20,
)


@given(SPANS, st.integers(1, 200))
def test_no_row_is_lost_or_counted_twice(spans, width):
    values, step_s = rates(spans, width)
    assert sum(values) * step_s == pytest.approx(sum(span.rows for span in spans), rel=1e-6, abs=1e-3)


def test_the_terminal_picture_shows_bars_and_marks():
    text = in_terminal(
        [Span(0, 5, 10**6), Span(10, 15, 10**6)], [Mark(5, "killed"), Mark(10, "recovered")], width=30
    )
    bars, ruler = text.splitlines()[0], text.splitlines()[8]
    assert bars[8:18] == "█" * 10
    assert bars[18:28].strip() == ""
    assert ruler[8 + 10] == "1"
    assert ruler[8 + 20] == "2"
    assert "killed at 5.0 s" in text


def test_the_png_is_a_picture(tmp_path):
    path = as_png(tmp_path / "t.png", "title", [Span(0, 1, 5)], [Mark(0.5, "x")])
    assert path.read_bytes().startswith(b"\x89PNG")
