"""The examples of the pages run as they are printed; a page's own remarks on what they give are checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kedge
from kedge import codec, move

DOCS = Path(__file__).parents[2] / "docs"


def _loads() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "route": np.arange(64) // 8,
        "work": rng.uniform(0.5, 1.5, 64),
        "size": rng.integers(1000, 5000, 64),
    }


def _moved(names: dict[str, Any]) -> None:
    plan = names["plan"]
    assert plan.bound_bytes <= names["cost"] == plan.cost_bytes
    assert len(names["assignment"]) == 64
    assert set(names["assignment"]) <= set(range(9))
    assert isinstance(plan, move.Plan)


def _stores() -> dict[str, Any]:
    stores: dict[str, Any] = {"redis://localhost:6379/0": kedge.store("memory:")}

    class Kedge:
        store = stores.__getitem__

    return {"kedge": Kedge, "elsewhere": kedge.store("memory:")}


def _stored(names: dict[str, Any]) -> None:
    assert set(names["buses"]) == {"b1", "b3"}
    assert set(names["store"].at(names["v"]).set("buses")) == {"b1"}
    assert set(names["elsewhere"].set("buses")) == {"b3"}
    assert names["buses"].scheme == "redo"


def _encoded(names: dict[str, Any]) -> None:
    again = codec.decode(names["encoded"], np.dtype(np.float64), 1000)
    assert np.array_equal(again, np.arange(1000) / 4)


def _printed(_: dict[str, Any]) -> None:
    """What the page says in a comment is what the last line prints."""


EXAMPLES: dict[str, tuple[str, Callable[[], dict[str, Any]], Callable[[dict[str, Any]], None]]] = {
    "codecs": ("choosers = ", lambda: {"values": np.arange(1000) / 4}, _encoded),
    "move": ("move.single(", _loads, _moved),
    "state": ("buses = store.set", _stores, _stored),
    "resume": ("build = {", lambda: {"kedge": kedge}, _printed),
}


@pytest.mark.parametrize("page", EXAMPLES)
def test_an_example_runs_as_it_is_printed(page: str, capsys: pytest.CaptureFixture[str]) -> None:
    mark, given, check = EXAMPLES[page]
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text(), re.S)
    (text,) = [block for block in blocks if mark in block]
    names = given()
    exec(compile(text, f"docs/{page}.md", "exec"), names)
    check(names)
    said = re.findall(r"^print\(.*\)  # (.*)$", text, re.M)
    assert capsys.readouterr().out.splitlines() == said
