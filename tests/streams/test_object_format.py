"""Golden objects: what format 1 put into an object store is read for ever, in a store and in a directory."""

from __future__ import annotations

import pathlib
import shutil
from typing import Any

import pytest
from test_format import SCHEMA, table

from kedge import host
from kedge.streams import committer, stream, verify

GOLDEN = pathlib.Path(__file__).parent / "golden" / "objects-1"


def write(folder: pathlib.Path) -> None:
    """Make the golden objects (only for a new format: `python tests/streams/test_object_format.py`)."""
    pytest.importorskip("obstore")
    with pytest.MonkeyPatch.context() as patch, stream("memory://golden/s", SCHEMA, 2, event_time="ts") as there:
        patch.setattr(committer, "COMPACT_EVERY", 3)
        rows = table()
        for n in range(0, 10, 2):
            there.append(rows.slice(n, 2), 0, producer="p", sequence=n).wait()
        there.append_atomic({0: rows.slice(10, 10), 1: rows.slice(20)})
        there.subscribe("reader", [5, 0])
        there.trim(3)
    copy(host.local().store("memory://golden/s"), host.local().store(str(folder)))


def copy(source: Any, target: Any) -> None:
    for name in source.list(""):
        target.put(name, source.get(name))


@pytest.mark.parametrize("kind", ["directory", "store"])
def test_format_1_is_read(kind: str, tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "s")
    shutil.copytree(GOLDEN, path)
    if kind == "store":
        pytest.importorskip("obstore")
        copy(host.local().store(path), host.local().store(f"memory://{tmp_path.name}/s"))
        path = f"memory://{tmp_path.name}/s"
    assert not verify(path).problems
    there = stream(path)
    assert there.to_table(0, 3).equals(table().slice(3, 17))
    assert there.to_table(1).equals(table().slice(20))
    assert there.begins() == [3, 3]
    assert there.subscriptions()["reader"][0] == 5
    with there:
        assert there.append(table(), 0, producer="p", sequence=8).wait().duplicate
        assert there.append(table(), 0).wait().first_offset == 20


if __name__ == "__main__":
    shutil.rmtree(GOLDEN, ignore_errors=True)
    write(GOLDEN)
