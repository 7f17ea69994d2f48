"""`kedge plan move`: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import io
import json

import pytest

from kedge import cli

CSV = """task,node,work,bytes
0,0,10,500
1,0,30,9000
2,0,5,100
3,0,20,4000000
4,1,10,70
5,1,12,800
6,1,40,90
7,1,8,1000
"""
COLUMNS = {
    "route": [0, 0, 0, 0, 1, 1, 1, 1],
    "work": [10, 30, 5, 20, 10, 12, 40, 8],
    "bytes": [500, 9000, 100, 4000000, 70, 800, 90, 1000],
}


def planned(capsys, *arguments: str) -> dict:
    assert cli.main(["plan", "move", *arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_same_plan_from_every_kind_of_input(tmp_path, capsys, monkeypatch) -> None:
    rows = [{"node": n, "work": w, "bytes": b} for n, w, b in zip(*COLUMNS.values(), strict=True)]
    texts = [CSV, json.dumps(COLUMNS), json.dumps(rows), json.dumps({"tasks": rows}), json.dumps({"move": COLUMNS})]
    plans = []
    for text in texts:
        path = tmp_path / "loads"
        path.write_text(text)
        plans.append(planned(capsys, str(path), "--nodes", "3", "--steps", "2"))
    monkeypatch.setattr("sys.stdin", io.StringIO(CSV))
    plans.append(planned(capsys, "-", "--nodes", "3", "--steps", "2"))
    assert all(plan == plans[0] for plan in plans)
    assert plans[0]["cost_bytes"] == plans[0]["bound_bytes"] == 10370
    assert plans[0]["route"] == [2, 2, 0, 0, 0, 0, 1, 1]
    assert len(plans[0]["steps"]) == plans[0]["steps_min"] == 2
    assert plans[0]["transfer"]["bound_bytes"] == 9500


def test_tables_and_picture(tmp_path, capsys) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(CSV)
    assert cli.main(["plan", "move", str(path), "--nodes", "3", "--tau", "0.05", "--steps", "2"]) == 0
    table = capsys.readouterr().out
    assert "10.4 KB move" in table
    assert "the smallest tau that was met is 0.06667" in table
    assert "2 steps (2 is the fewest possible)" in table
    assert cli.main(["plan", "move", str(path), "--nodes", "3", "--picture"]) == 0
    picture = capsys.readouterr().out
    assert "before 00001111\n  after  22000011\n  moved  ^^  ^^" in picture
    assert "node   0 ━" in picture


def test_named_nodes_and_any_map(tmp_path, capsys) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(CSV)
    plan = planned(capsys, str(path), "--on", "1,5", "--assign", "any")
    assert set(plan["route"]) == {1, 5} == set(plan["nodes"])


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("node,work\n0,1\n", [], "no column 'bytes'"),
        ("", [], "0 rows"),
        ("task,node,work,bytes\n0,0,1,1\n0,0,1,1\n", [], "twice"),
        ("task,node,work,bytes\n1,0,1,1\n", [], "without gaps"),
        ("node,work,bytes\n0,many,1\n", [], "can't be read"),
        ("{]", [], "can't be read"),
        ('{"route": [0, 0], "work": [1], "bytes": [1, 1]}', [], "different lengths"),
        (CSV, ["--tau", "0.01", "--strict"], "smallest feasible tau"),
    ],
)
def test_what_it_refuses(tmp_path, capsys, text: str, options: list[str], message: str) -> None:
    path = tmp_path / "loads"
    path.write_text(text)
    assert cli.main(["plan", "move", str(path), "--nodes", "3", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_file_that_is_not_there_and_nodes_that_are_no_numbers(tmp_path, capsys) -> None:
    assert cli.main(["plan", "move", str(tmp_path / "nothing"), "--nodes", "3"]) == 2
    assert "There is no file" in capsys.readouterr().err
    path = tmp_path / "loads.csv"
    path.write_text(CSV)
    assert cli.main(["plan", "move", str(path), "--on", "a,b"]) == 2
    assert "node numbers" in capsys.readouterr().err
