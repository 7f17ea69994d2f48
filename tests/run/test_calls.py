"""Calls that can't be carried out: what is wrong is said, nothing is written, and a right call goes on to work."""

from __future__ import annotations

import datetime as dt
import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

import kedge
from kedge.cli import main
from kedge.host import local
from kedge.run.directory import RunDirectory
from kedge.run.verify import verify

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("key", pa.string()), ("v", pa.int64())])
SQL = (
    "SELECT window(ts, '10 seconds'), key, count(*), sum(v) FROM s WHERE v > 3 AND key IS NOT NULL "
    "GROUP BY window(ts, '10 seconds'), key"
)


@pytest.fixture
def query(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> kedge.Query:
    monkeypatch.chdir(tmp_path)
    source = kedge.stream("data/s", SCHEMA, event_time="ts")
    begin = dt.datetime(2024, 1, 1, tzinfo=dt.UTC)
    rows = [{"ts": begin + dt.timedelta(seconds=i), "key": f"k{i % 3}", "v": i} for i in range(60)]
    source.append(pa.RecordBatch.from_pylist(rows, schema=SCHEMA)).wait()
    source.close()
    return kedge.sql(SQL, s=kedge.stream("data/s"), watermark="5 seconds")


def finished(query: kedge.Query, path: str = "runs/a", into: str = "out/a") -> list[dict[str, object]]:
    query.start(path, into=into).finish()
    return kedge.stream(into).to_table().to_pylist()


def test_columns_without_aliases_have_sparks_names(query):
    assert query.schema.names == ["window", "key", "count(1)", "sum(v)"]
    rows = finished(query)
    assert sum(row["count(1)"] for row in rows) == 56
    assert rows[0]["window"]["start"] == dt.datetime(2024, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda q: kedge.sql(None, s=q.streams["s"]), "as text"),
        (lambda q: kedge.sql(SQL, s="data/s"), "not a kedge stream"),
        (lambda q: kedge.sql(SQL, s=q.streams["s"], watermark=5), "not a duration"),
        (lambda q: kedge.sql(SQL, s=q.streams["s"], watermark="-5 seconds"), "not a duration"),
        (lambda q: kedge.sql(SQL.replace("key", "kex"), s=q.streams["s"]), "no column 'kex'"),
        (lambda q: q.start("runs/x", into=None), "into=None"),
        (lambda q: q.start("runs/x", into=q.streams["s"]), "the query gives"),
        (lambda q: q.start("runs/x", into="out/x", node=2), "Unknown option node"),
        (lambda q: q.start("runs/x", into="out/x", nodes=0), "at least 1"),
        (lambda q: q.start("data/s/stream.json", into="out/x"), "is a file"),
        (lambda q: q.start("data/s", into="out/x"), "is a stream"),
    ],
)
def test_a_wrong_call_is_a_usage_error_and_leaves_no_run(query, call, message):
    with pytest.raises(kedge.UsageError, match=message):
        call(query)
    assert not Path("runs").exists()


def test_a_result_that_belongs_to_another_run_leaves_the_new_directory_free(query):
    finished(query)
    with pytest.raises(kedge.ConflictError, match="a stream of its own"):
        query.start("runs/b", into="out/a")
    assert finished(query, "runs/b", "out/b") == finished(query)


def test_a_changed_query_or_watermark_is_refused_and_the_old_one_goes_on(query):
    rows = finished(query)
    with pytest.raises(kedge.UsageError, match="differs in the query"):
        kedge.sql(SQL.replace("v > 3", "v > 4"), **query.streams, watermark="5 seconds").start(
            "runs/a", into="out/a"
        )
    with pytest.raises(kedge.UsageError, match="differs in the watermark"):
        kedge.sql(SQL, **query.streams).start("runs/a", into="out/a")
    assert finished(query) == rows


def test_a_run_goes_on_from_another_working_directory(query, tmp_path, monkeypatch, capsys):
    query.start(Path("runs/a"), into=Path("out/a")).stop()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["run", "start", "--finish", "--json", "../runs/a"]) == 0
    status = json.loads(capsys.readouterr().out)
    assert (status["final"], status["rows"]) == (True, 60)


@pytest.mark.parametrize("action", ["start", "status", "batches", "verify"])
def test_the_command_line_says_what_is_missing(action, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["run", action, "--json", "nowhere"]) == 2
    said = json.loads(capsys.readouterr().out)
    assert said["error"] == "usage"
    assert "There is no run in nowhere" in said["message"]
    assert not Path("nowhere").exists()


def test_verify_finds_what_is_missing_or_changed(query, capsys):
    finished(query)
    directory = RunDirectory(local(), "runs/a")
    report = verify(directory)
    assert (report.damaged, report.result_rows) == ((), len(kedge.stream("out/a").to_table()))
    assert main(["run", "verify", "--json", "runs/a"]) == 0
    assert json.loads(capsys.readouterr().out)["damaged"] == []
    unit = Path("out/a/units") / sorted(os.listdir("out/a/units"))[0]
    whole = unit.read_bytes()
    unit.write_bytes(whole[:200] + bytes([whole[200] ^ 1]) + whole[201:])
    assert len(verify(directory).damaged) == 1
    unit.unlink()
    assert "is committed and not there" in verify(directory).damaged[0]
    assert main(["run", "verify", "runs/a"]) == 1
    assert "DAMAGED" in capsys.readouterr().out


def test_verify_finds_a_changed_record(query):
    finished(query)
    record = Path("runs/a/ledger/00000000000000000001.json")
    record.write_bytes(record.read_bytes().replace(b'"rows":60', b'"rows":61'))
    assert "checksum mismatch" in verify(RunDirectory(local(), "runs/a")).damaged[0]
