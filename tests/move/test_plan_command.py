"""`kedge plan move`: what it reads, what it prints, what it refuses."""

from __future__ import annotations

import io
import json

import numpy as np
import pyarrow as pa
import pytest

import kedge
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
    assert "the smallest feasible tau is 0.0666667" in table
    assert "2 steps (2 is the fewest possible)" in table
    assert cli.main(["plan", "move", str(path), "--nodes", "3", "--picture"]) == 0
    picture = capsys.readouterr().out
    assert "before 00001111  tasks from 0\n  after  22000011\n  moved  ^^  ^^" in picture
    assert "tasks 0-1" in picture
    assert "node   0 ━" in picture


def test_named_nodes_and_any_map(tmp_path, capsys) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(CSV)
    plan = planned(capsys, str(path), "--on", "1,5", "--assign", "any")
    assert set(plan["route"]) == {1, 5} == set(plan["nodes"])


def test_columns_go_by_the_names_that_people_use(tmp_path, capsys) -> None:
    path = tmp_path / "loads"
    path.write_text(CSV)
    want = planned(capsys, str(path), "--nodes", "3")
    for header, mark in (("Task;Route;Load;Size", ";"), ("task\tassignment\tloads\tsizes", "\t")):
        path.write_text("\ufeff" + CSV.replace("task,node,work,bytes", header).replace(",", mark))
        assert planned(capsys, str(path), "--nodes", "3") == want
    columns = dict(zip(("assignment", "loads", "sizes"), COLUMNS.values(), strict=True))
    path.write_text(json.dumps(columns))
    assert planned(capsys, str(path), "--nodes", "3") == want


def test_without_a_number_of_nodes_the_load_is_balanced_anew(tmp_path, capsys) -> None:
    path = tmp_path / "loads.csv"
    path.write_text("node,work,bytes\n" + "0,9,5\n" * 3 + "1,1,7\n" * 3)
    plan = planned(capsys, str(path), "--tau", "0.5")
    assert plan["nodes"] == [0, 1]
    assert (plan["cost_bytes"], plan["bound_bytes"]) == (5, 5)
    assert plan["loads"] == {"0": 18, "1": 12}
    assert len(plan["steps"]) == 1


def test_large_numbers_stay_exact(tmp_path, capsys) -> None:
    path = tmp_path / "loads.csv"
    path.write_text(f"node,work,bytes\n0,1,{2**54 + 1}\n0,1,1\n")
    assert planned(capsys, str(path), "--nodes", "2", "--tau", "0")["cost_bytes"] == 1
    path.write_text(f"node,work,bytes\n0,1,{2**54 + 1}\n0,1,{2**54 + 3}\n")
    assert planned(capsys, str(path), "--nodes", "2", "--tau", "0")["cost_bytes"] == 2**54 + 1


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("node,work\n0,1\n", [], "no column 'bytes', only 'node', 'work'"),
        ("1,2,3\n4,5,6\n", [], "no column 'node'"),
        ("", [], "is empty"),
        ("\n \n", [], "is empty"),
        ("node,work,bytes\n", [], "no tasks"),
        ("[]", [], "no tasks"),
        ("{}", [], "no column 'node'"),
        ("[1, 2]", [], "an object with node, work and bytes"),
        ('{"version": 3, "move": null}', [], "no batch yet"),
        ("task,node,work,bytes\n0,0,1,1\n0,0,1,1\n", [], "row 2: task 0 is there twice"),
        ("task,node,work,bytes\n1,0,1,1\n", [], "0 is missing"),
        ("node,work,bytes\n0,many,1\n", [], "row 1: work is 'many'"),
        ("node,work,bytes\n0,1,1\n0,1\n", [], "row 2: bytes is None"),
        ("node,work,bytes\n0,1,1.5\n", [], "whole number"),
        ("node,work,bytes\n0,nan,1\n", [], "finite number"),
        ("node,work,bytes\n0,-1,1\n", [], "0 or more"),
        ("node,work,bytes\n-1,1,1\n", [], "node numbers"),
        ("node,work,bytes\n0,1,1\n1,1,1\n0,1,1\n", [], "more than one interval"),
        ("{]", [], "can't be read as JSON"),
        ("[" * 100_000, [], "can't be read as JSON"),
        ('{"route": [0, 0], "work": [1], "bytes": [1, 1]}', [], "different lengths"),
        ('{"route": 3, "work": [1], "bytes": [1]}', [], "route is no list"),
        (CSV, ["--tau", "0.01", "--strict"], "smallest feasible tau"),
        (CSV, ["--tau", "nan"], "finite"),
        (CSV, ["--steps", "0"], "at least one task"),
        (CSV, ["--least", "3"], "from 0 to 1"),
    ],
)
def test_what_it_refuses(tmp_path, capsys, text: str, options: list[str], message: str) -> None:
    path = tmp_path / "loads"
    path.write_text(text)
    command = ["plan", "move", str(path), "--nodes", "3", *options]
    assert cli.main(command) == 2
    assert message in capsys.readouterr().err
    assert cli.main([*command, "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["message"]


def test_bytes_that_are_no_text(tmp_path, capsys) -> None:
    path = tmp_path / "loads"
    path.write_bytes(b"\xff\xfe\x00")
    assert cli.main(["plan", "move", str(path)]) == 2
    assert "not text" in capsys.readouterr().err


def test_a_runs_directory_and_its_status(tmp_path, capsys) -> None:
    """The bytes by task add up to the run's state, and both ways of reading them give the same plan."""
    schema = pa.schema([("ts", pa.timestamp("us")), ("ad", pa.int64())])
    rides = kedge.stream(str(tmp_path / "rides"), schema=schema, event_time="ts")
    query = kedge.sql(
        "SELECT window(ts, '60 seconds') AS w, ad, count(*) AS n FROM rides GROUP BY ad, window(ts, '60 seconds')",
        rides=rides,
    )
    path = str(tmp_path / "run")
    query.start(path, into=str(tmp_path / "out"), nodes=3).stop()
    assert cli.main(["plan", "move", path]) == 2
    assert "no batch yet" in capsys.readouterr().err
    for minute in range(2):
        times = pa.array(np.arange(2_000) * 10_000 + minute * 90_000_000, pa.timestamp("us"))
        rides.append(pa.record_batch([times, pa.array(np.arange(2_000) % 700)], schema=schema)).wait()
    with query.start(path, into=str(tmp_path / "out"), nodes=3) as run:
        while run.status().rows < 4_000:
            run.wait(0.05)
    assert cli.main(["run", "status", path, "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    held = status["move"]
    assert held["nodes"] == 3
    assert [held["route"].count(node) for node in range(3)] == [86, 85, 85]
    assert sum(held["work"]) >= 700
    assert sum(held["bytes"]) == pytest.approx(status["state_bytes"], rel=0.05)
    file = tmp_path / "status.json"
    file.write_text(json.dumps(status))
    plans = [planned(capsys, place, "--nodes", "4") for place in (path, str(file))]
    assert plans[0] == plans[1]
    assert plans[0]["exact"]
    assert plans[0]["cost_bytes"] > 0
    assert cli.main(["plan", "move", str(tmp_path / "rides")]) == 2
    assert "no run in" in capsys.readouterr().err


def test_a_file_that_is_not_there_and_nodes_that_are_no_numbers(tmp_path, capsys) -> None:
    assert cli.main(["plan", "move", str(tmp_path / "nothing"), "--nodes", "3"]) == 2
    assert "There is no file" in capsys.readouterr().err
    path = tmp_path / "loads.csv"
    path.write_text(CSV)
    assert cli.main(["plan", "move", str(path), "--on", "a,b"]) == 2
    assert "node numbers" in capsys.readouterr().err
