"""A module with one safety line taken out, so that a test can prove that the simulator would notice."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType


def mutate(module: ModuleType, line: str, instead: str) -> ModuleType:
    """A copy of `module` in which `line`, which must occur once in its source, reads `instead`.

    The copy is not installed anywhere: take the mutated class from it, or patch it over the name that uses it.
    """
    assert module.__file__ is not None
    source = Path(module.__file__).read_text()
    assert source.count(line) == 1, f"{module.__name__}: {line!r} occurs {source.count(line)} times, not once"
    mutant = ModuleType(module.__name__)
    mutant.__dict__.update(__file__=module.__file__, __package__=module.__package__)
    exec(compile(source.replace(line, instead), module.__file__, "exec"), mutant.__dict__)  # noqa: S102
    return mutant
