"""A job's directory, without Spark: what counts as saved, who may write, what people see."""

from __future__ import annotations

import json
import os
import xml.etree.ElementTree

import pytest

from kedge.cli import main
from kedge.errors import ConflictError, UsageError
from kedge.spark.resume import report
from kedge.spark.resume.job import Job, Part, missing, part_name
from kedge.spark.resume.model import parse_budget

RECORD = {"partitions": 3, "label": "Project of t", "whole": False, "plan": "p", "inputs": {}, "options": {}}


def started(at):
    job = Job(str(at))
    job.claim()
    return job, job.announce("c1", RECORD)


def put(job, cut, partition, data=b"rows"):
    job.store.put(part_name(cut.folder, partition, 1, len(data), "00"), data)


def test_a_partition_counts_when_its_file_has_its_name(tmp_path):
    job, cut = started(tmp_path)
    put(job, cut, 2)
    job.store.put(f"{cut.folder}/half-written.parquet", b"?")
    (tmp_path / cut.folder / ".tmp-1").write_bytes(b"torn")
    found = Job(str(tmp_path)).cuts()["c1"]
    assert list(found.parts) == [2]
    assert missing(found) == [0, 1]
    assert not found.done
    put(job, cut, 0)
    put(job, cut, 1)
    assert Job(str(tmp_path)).cuts()["c1"].done


def test_files_of_an_attempt_that_was_not_announced_are_nobodys(tmp_path):
    job, cut = started(tmp_path)
    job.store.put(part_name("parts/c1/other-attempt", 0, 1, 4, "00"), b"rows")
    assert job.cuts()["c1"].parts == {}
    second = job.announce("c1", RECORD)
    put(job, cut, 0)  # a zombie of the first attempt
    assert job.cuts()["c1"].attempt == second.attempt
    assert job.cuts()["c1"].parts == {}


def test_withdrawn_and_cleaned(tmp_path):
    job, cut = started(tmp_path)
    put(job, cut, 0)
    job.withdraw(job.cuts()["c1"], "the query changed")
    assert job.cuts() == {}
    assert job.store.list("parts") == []
    cut = job.announce("c1", RECORD)
    put(job, cut, 0)
    assert job.clean() == 4
    assert job.cuts() == {}


def test_a_newer_format_is_refused_and_the_first_one_has_no_number(tmp_path):
    job, _ = started(tmp_path)
    job.add("cut", cut="c2", attempt="a", **RECORD)
    assert set(job.cuts()) == {"c1", "c2"}
    job.add("cut", cut="c3", attempt="a", parts_format=99, **RECORD)
    with pytest.raises(UsageError, match="newer Kedge"):
        job.cuts()


def test_the_newer_driver_fences_the_older(tmp_path):
    older, _ = started(tmp_path)
    newer = Job(str(tmp_path))
    newer.claim()
    with pytest.raises(ConflictError):
        older.add("saved", cut="c1")
    newer.add("saved", cut="c1")


@pytest.mark.parametrize("name", ["x.parquet", "1-2-3.parquet", "a-1-2-ff.parquet", "00001-2-3-ff", "1-2-3-ff.tmp"])
def test_other_files_are_no_parts(name):
    assert Part.named(f"parts/c/a/{name}") is None


@pytest.mark.parametrize(
    ("text", "size"), [("2 GB", 2 * 10**9), ("500MB", 5 * 10**8), ("1.5 KiB", 1536), ("7", 7), (9, 9), (None, None)]
)
def test_budgets(text, size):
    assert parse_budget(text) == size


@pytest.mark.parametrize("text", ["much", "2 parsecs", "-1 GB", -5])
def test_budgets_that_are_none(text):
    with pytest.raises(UsageError, match="budget="):
        parse_budget(text)


def stage(name, label, inputs=(), step="", reused=0, partitions=0, chosen=True):
    figures = {"whole": False, "refused": "", "time_us": 2_000_000, "bytes": 1_500, "tasks": 4, "learned": True}
    told = {"id": name, "label": label, "inputs": list(inputs), "step": step, "chosen": chosen}
    return {**told, "reused": reused, "partitions": partitions, **figures}


RUN = {
    "stages": [
        stage("a", "Filter of <t>", reused=1, partitions=4),
        stage("b", "Range", step="mine", reused=4, partitions=4),
        stage("c", "Sort", inputs=(0, 1), chosen=False),
    ],
    "end_us": 6_000_000,
    "worst_us": 9_000_000,
    "expected_us": None,
    "floor_us": 8_000_000,
    "budget_bytes": None,
    "said": ["First run: times and sizes are estimates."],
}


def test_the_tree_and_the_picture():
    told = report.tree(RUN)
    assert "reused 1 of 4 partitions" in told
    assert "step mine" in told
    assert "25.0% less" in told  # worst 9 of 12 s
    assert "33.3% less at any budget" in told
    drawn = xml.etree.ElementTree.fromstring(report.picture(RUN))
    texts = [element.text for element in drawn.iter() if element.tag.endswith("text")]
    assert "Filter of <t>" in texts
    assert any("spared 0.50 s" in (text or "") for text in texts)


def test_the_command_line_without_spark(tmp_path, capsys):
    job, cut = started(tmp_path)
    put(job, cut, 0)
    job.add("run", seconds=1.0, **RUN)
    assert main(["resume", "ls", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)[0]["saved"] == 1
    assert main(["resume", "show", str(tmp_path), "--svg", str(tmp_path / "plan.svg")]) == 0
    assert "worst case" in capsys.readouterr().out
    assert os.path.getsize(tmp_path / "plan.svg")
    assert main(["resume", "clean", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"freed_bytes": 4}
    assert main(["resume", "ls", str(tmp_path / "nowhere")]) == 2
    assert "not a job" in capsys.readouterr().err
