"""`kedge store`, as a person types it."""

from __future__ import annotations

import json

import pytest

from kedge import cli
from kedge.state import open_store


@pytest.fixture
def url(tmp_path):
    store = open_store(str(tmp_path / "store"), scheme="command")
    buses, fares = store.set("buses"), store.map("fares")
    buses.add("b1", "b2")
    fares["b1"] = 2.5
    store.counter("rides").incr(4)
    store.list("stops").extend(["x", 7])
    store.checkpoint(key="morning")
    buses.discard("b2")
    fares["b1"] = 3
    store.sorted_set("delays").add("b1", 1.5)
    store.checkpoint()
    return str(tmp_path / "store")


def said(capsys, *arguments):
    code = cli.main(["store", *arguments])
    return code, capsys.readouterr().out


@pytest.mark.slow  # matplotlib takes a second to load
def test_versions_and_their_picture(url, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    picture = tmp_path / "versions.svg"
    code, out = said(capsys, "versions", url, "--picture", str(picture))
    assert code == 0
    assert "*       2" in out
    assert "morning" in out
    assert picture.read_text().startswith("<?xml")
    document = json.loads(said(capsys, "versions", url, "--json")[1])
    assert [version["number"] for version in document["versions"]] == [0, 1, 2]
    assert document["current"] == 2


def test_show_and_diff(url, capsys):
    _, out = said(capsys, "show", url)
    assert "buses (set, command, 1 in all)\n  b1\n" in out
    document = json.loads(said(capsys, "show", url, "--version", "1", "--json")[1])
    assert document["structures"]["buses"]["contents"] == ["b1", "b2"]
    assert document["structures"]["fares"]["contents"] == [["b1", 2.5]]
    assert document["structures"]["rides"]["contents"] == 4
    assert document["structures"]["stops"]["contents"] == ["x", 7]
    assert said(capsys, "diff", url, "1", "2")[1] == (
        "- buses b2\n+ delays b1: nothing -> 1.5\n~ fares b1: 2.5 -> 3\n"
    )


def test_rollback_replay_and_compact(url, capsys, tmp_path):
    assert said(capsys, "rollback", url, "1") == (0, f"{url} is at version 1.\n")
    assert set(open_store(url, read_only=True).set("buses")) == {"b1", "b2"}
    assert said(capsys, "rollback", url, "2", "--forward")[0] == 0
    _, out = said(capsys, "replay", url, "0", "1", "--raw")
    assert "buses.add('b1', 'b2')" in out
    other = str(tmp_path / "other")
    assert said(capsys, "replay", url, "0", "2", "--into", other)[0] == 0
    assert set(open_store(other, read_only=True).set("buses")) == {"b1"}
    assert json.loads(said(capsys, "compact", url, "--count", "1", "--json")[1]) == {"kept": [2]}
    assert cli.main(["store", "compact", url]) == 2
    assert cli.main(["store", "show", url, "--version", "1"]) == 2
    assert cli.main(["store", "versions", str(tmp_path / "nowhere")]) == 2
