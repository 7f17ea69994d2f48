"""The public face: every name is there, callable, and no import of a room takes its place."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import kedge

NAMES = sorted(set(kedge.__all__) - {"__version__"})


def submodules() -> list[str]:
    found = pkgutil.walk_packages(kedge.__path__, "kedge.", onerror=lambda name: None)
    return [module.name for module in found if not module.name.endswith("__main__")]


def test_every_public_name_survives_the_import_of_every_module():
    """Importing a submodule rebinds the attribute of its package: no public function bears a package's name."""
    before = {name: getattr(kedge, name) for name in NAMES}
    for module in submodules():
        importlib.import_module(module)
    for name in NAMES:
        assert callable(getattr(kedge, name)), name
        assert getattr(kedge, name) is before[name], name


def test_every_listed_name_has_a_home():
    assert set(kedge._HOME) == set(NAMES)
    assert set(NAMES) <= set(dir(kedge))


@pytest.mark.parametrize("heavy", ["numba", "pyspark", "pyarrow", "numpy"])
def test_importing_kedge_costs_nothing(heavy):
    code = f"import sys, kedge, kedge.cli; kedge.cli.parser(); sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'strem'"):
        kedge.strem
