"""Remarks that were made twice, as checks. Each says why, and what to write instead."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "kedge").rglob("*.py"))
TEXTS = [
    *SOURCES,
    *sorted((ROOT / "docs").rglob("*.md")),
    *ROOT.glob("*.md"),
    *sorted((ROOT / "tests").rglob("*.py")),
]
TREES = {path: ast.parse(path.read_text()) for path in SOURCES}


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def test_every_module_says_what_it_is():
    """A stranger reads the first line first."""
    assert not [relative(path) for path, tree in TREES.items() if not ast.get_docstring(tree)]


def test_every_public_thing_has_a_sentence():
    """Public functions and classes say what they are for; private ones by their name."""
    missing = [
        f"{relative(path)}: {node.name}"
        for path, tree in TREES.items()
        for node in tree.body
        if isinstance(node, ast.ClassDef | ast.FunctionDef)
        and not node.name.startswith("_")
        and not ast.get_docstring(node)
    ]
    assert not missing


def test_every_file_has_one_idea():
    """Past 500 lines a file holds two ideas: split it along its nouns."""
    assert not [relative(path) for path in SOURCES if len(path.read_text().splitlines()) > 500]


def test_no_machine_path_and_no_registry_host_stands_in_the_project():
    """What is true of one machine is wrong on all others."""
    pattern = re.compile(r"/root/|/home/[a-z]|/work/|pypi\.org|pythonhosted|registry\.npmjs")
    mine = Path(__file__)
    found = [relative(path) for path in TEXTS if path != mine and pattern.search(path.read_text())]
    assert not found


def test_every_decision_has_its_number():
    """A decision is cited by its number; two with one number can't be."""
    numbers = [path.name[:4] for path in sorted((ROOT / "docs" / "decisions").glob("*.md"))]
    assert all(number.isdigit() for number in numbers)
    assert len(numbers) == len(set(numbers)), sorted(n for n in numbers if numbers.count(n) > 1)


def test_every_link_between_pages_leads_somewhere():
    """A page that was moved leaves dead links behind."""
    pages = [*sorted((ROOT / "docs").rglob("*.md")), *ROOT.glob("*.md")]
    dead = [
        f"{relative(page)} -> {target}"
        for page in pages
        for target in re.findall(r"\]\(([^)#:]+?)(?:#[^)]*)?\)", page.read_text())
        if not (page.parent / target).exists()
    ]
    assert not dead


def test_every_file_that_the_design_names_is_there():
    """A reading order that leads to files that were renamed is worse than none."""
    pages = [ROOT / "docs" / name for name in ("design.md", "testing.md", "spark.md")] + [ROOT / "CONTRIBUTING.md"]
    places = (ROOT, ROOT / "src" / "kedge")
    gone = [
        f"{relative(page)}: {name}"
        for page in pages
        for name in re.findall(r"`((?:[\w.-]+/)+[\w.*-]*|[\w./-]+\.py)`", page.read_text())
        if not any(list(place.glob(name.rstrip("/"))) for place in places)
    ]
    assert not gone


def test_every_test_file_has_a_name_of_its_own():
    """pytest imports test files by their bare name: the second of a name would not be collected."""
    names = [path.name for path in (ROOT / "tests").rglob("*.py") if path.name != "conftest.py"]
    assert not sorted({name for name in names if names.count(name) > 1})
