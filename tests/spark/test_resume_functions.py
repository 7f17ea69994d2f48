"""The digest of a Python function: the same in every process, another for other code."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
import types

import pytest
from pyspark import cloudpickle

from kedge.spark.resume.functions import fingerprint

RATE = 2


def digest(function):
    return fingerprint(cloudpickle.dumps((function, None)))


def made(source, **names):
    """A function of the main program: pickled by value."""
    space = {"__name__": "__main__", **names}
    exec(source, space)
    return space["f"]


def test_the_same_code_is_the_same_function_wherever_it_stands():
    one = made("def f(x):\n    return x * 2")
    other = made("\n\n# a remark\ndef f(x):\n    return x * 2")
    assert digest(one) == digest(other)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x):\n    return x * 3",
        "def f(x):\n    return 2 * x",
        "def f(x, y=1):\n    return x * 2",
        "def f(x):\n    return (lambda z: z * 2)(x)",
    ],
)
def test_other_code_is_another_function(source):
    assert digest(made("def f(x):\n    return x * 2")) != digest(made(source))


def test_constants_in_another_order_are_another_function():
    assert digest(made("def f(x):\n    return x * 3 + 4")) != digest(made("def f(x):\n    return x * 4 + 3"))


def test_globals_closures_and_helpers_count():
    source = "def f(x):\n    return g(x) + rate"
    helper = made("def f(x):\n    return x")
    assert digest(made(source, g=helper, rate=1)) != digest(made(source, g=helper, rate=2))
    assert digest(made(source, g=helper, rate=1)) != digest(
        made(source, g=made("def f(x):\n    return -x"), rate=1)
    )
    assert digest(made(source, g=helper, rate=1)) == digest(made(source, g=helper, rate=1, unused=5))


def test_a_module_of_the_users_counts_by_its_code(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "users_helpers_of_resume.py"
    seen = []
    for text in (
        "import math\ndef h(x):\n    return math.sqrt(x)\ndef f(x):\n    return h(x) + 1",
        "import math\n\n# a remark\ndef h(x):\n    return math.sqrt(x)\ndef f(x):\n    return h(x) + 1",
        "import math\ndef h(x):\n    return math.exp(x)\ndef f(x):\n    return h(x) + 1",
    ):
        file.write_text(text)
        importlib.invalidate_caches()
        sys.modules.pop(file.stem, None)
        module = types.ModuleType(file.stem)
        module.__file__ = str(file)
        exec(compile(text, str(file), "exec"), vars(module))
        sys.modules[file.stem] = module
        by_name = module.f
        through_module = made("def f(x):\n    return m.f(x)", m=module)
        seen.append((digest(by_name), digest(through_module)))
    assert seen[0] == seen[1]
    assert seen[0][0] != seen[2][0]
    assert seen[0][1] != seen[2][1]


def test_classes_and_objects_count():
    source = "class A:\n    def __init__(self, n): self.n = n\n    def go(self, x): return x {} self.n\n"
    use = source + "a = A({})\ndef f(x):\n    return a.go(x)"
    same = [digest(made(use.format("+", 1))) for _ in range(2)]
    assert same[0] == same[1]
    assert digest(made(use.format("+", 2))) != same[0]
    assert digest(made(use.format("-", 1))) != same[0]


CHILD = """
import sys
from pyspark import cloudpickle
from kedge.spark.resume.functions import fingerprint
class Scale:
    by = {"a": 1, "b": 2}
    def of(self, word): return self.by.get(word, 0) if word in {"a", "b", "c", "d"} else len({"x", "y"})
scale = Scale()
print(fingerprint(cloudpickle.dumps((lambda word: scale.of(word), None))))
"""


def test_another_process_with_other_hashes_finds_the_same():
    found = set()
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        got = subprocess.run(
            [sys.executable, "-c", CHILD], env=environment, capture_output=True, text=True, check=True
        )
        found.add(got.stdout.strip())
    assert len(found) == 1


def test_what_cannot_be_read_counts_by_its_bytes():
    assert fingerprint(b"no pickle") == fingerprint(b"no pickle") != fingerprint(b"other bytes")
