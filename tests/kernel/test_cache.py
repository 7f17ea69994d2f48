"""The cache of generated code: private, named by content, and used by the next process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.errors import UsageError
from kedge.kernel import cache

SOURCE = "from kedge.jit import jit\n\n\n@jit\ndef twice(x):\n    return 2 * x\n"


def test_the_directory_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDGE_CACHE_DIR", str(tmp_path / "mine"))
    folder = cache.directory()
    assert os.stat(folder).st_mode & 0o777 == 0o700
    os.chmod(folder, 0o770)
    with pytest.raises(UsageError, match="mode 0700"):
        cache.directory()


def test_a_link_is_not_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "theirs").mkdir(mode=0o700)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "kernels").symlink_to(tmp_path / "theirs")
    monkeypatch.setenv("KEDGE_CACHE_DIR", str(tmp_path / "mine"))
    with pytest.raises(UsageError, match="mode 0700"):
        cache.directory()


def test_a_changed_file_is_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEDGE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(cache, "_modules", {})
    first = cache.load(SOURCE)
    assert cache.load(SOURCE) is first
    assert first.__file__ is not None
    Path(first.__file__).write_text("raise SystemExit('not mine')\n")
    cache._modules.clear()
    assert cache.load(SOURCE).twice.py_func(4) == 8
    assert Path(first.__file__).read_text() == SOURCE


PROCESS = """
import sys
from kedge.kernel import cache
twice = cache.load(sys.argv[1]).twice
assert twice(21) == 42
print(sum(twice.stats.cache_hits.values()), sum(twice.stats.cache_misses.values()))
"""


@pytest.mark.slow
def test_a_second_process_loads_machine_code(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "KEDGE_CACHE_DIR": str(tmp_path),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    run = [sys.executable, "-c", PROCESS, SOURCE]
    outputs = [
        subprocess.run(run, env=environment, capture_output=True, check=True).stdout.split() for _ in range(2)
    ]
    assert outputs == [[b"0", b"1"], [b"1", b"0"]]
