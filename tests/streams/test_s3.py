"""Streams and runs on a real S3-compatible server, over real connections: killed, stopped, refused, lied to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import kedge
from kedge import host
from kedge.errors import ClosedError, ConflictError, UnavailableError, UsageError
from kedge.streams import committer
from s3_server import BUCKET, Server

pytest.importorskip("moto")
pytest.importorskip("obstore")
pytestmark = pytest.mark.slow

SCHEMA = pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64())])


def rows(start: int, end: int) -> pa.Table:
    return pa.table([pa.array(range(start, end), pa.timestamp("us")), list(range(start, end))], schema=SCHEMA)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("s3"))
    yield server
    server.kill()


@pytest.fixture
def server(running: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name, value in running.environment().items():
        monkeypatch.setenv(name, value)
    return running


def place(request: pytest.FixtureRequest) -> str:
    return f"s3://{BUCKET}/{request.node.name}"


def test_its_conditional_put_is_honest(server: Server, request: pytest.FixtureRequest) -> None:
    won: list[int] = []
    for number in range(10):

        def put(who: int, number: int = number) -> None:
            try:
                host.local().store(place(request)).put(f"n/{number}", b"%d" % who, if_absent=True)
                won.append(who)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=put, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(won) == number + 1
    assert len(host.local().store(place(request)).list("n")) == 10


def test_a_server_that_ignores_the_condition_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    careless = Server(tmp_path, honest=False)
    try:
        for name, value in careless.environment().items():
            monkeypatch.setenv(name, value)
        made = kedge.stream(f"s3://{BUCKET}/s", SCHEMA)
        with pytest.raises(UsageError, match="no conditional put"):
            made.append(rows(0, 1))
    finally:
        careless.kill()


def test_the_whole_public_face(server: Server, request: pytest.FixtureRequest) -> None:
    with kedge.stream(place(request), SCHEMA, 2, event_time="ts") as rides:
        tickets = [rides.append(rows(n * 10, n * 10 + 10), n % 2, producer="p", sequence=n) for n in range(30)]
        rides.append_atomic({0: rows(0, 2), 1: rows(0, 2)})
        assert [ticket.wait().end for ticket in tickets][-1] == 150
        reader = kedge.stream(place(request))
        assert reader.ends() == [152, 152]
        assert reader.to_table(1, 5, 12, ["v"])["v"].to_pylist() == [15, 16, 17, 18, 19, 30, 31]
        reader.subscribe("billing").commit([100, 150])
        assert rides.trim([120, 120]) == [120, 120]
        assert reader.begins() == [120, 120]
    assert kedge.stream(place(request)).to_table(0, 100)["v"].to_pylist()[-1] == 1


CHILD = """
import sys, pyarrow as pa, kedge
schema = pa.schema([("ts", pa.timestamp("us")), ("v", pa.int64())])
stream = kedge.stream(sys.argv[1], schema)
for n in range(100_000):
    data = pa.table([pa.array([n] * 50, pa.timestamp("us")), [n] * 50], schema=schema)
    print(n, stream.append(data).wait().first_offset, flush=True)
"""


def test_a_killed_writer_loses_nothing(server: Server, request: pytest.FixtureRequest) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, place(request)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    acknowledged = [child.stdout.readline() for _ in range(25)]
    child.send_signal(signal.SIGKILL)
    acknowledged += child.stdout.readlines()
    child.wait()
    whole = [line.split() for line in acknowledged if line.endswith("\n")]
    reader = kedge.stream(place(request))
    for number, offset in whole:
        assert reader.to_table(0, int(offset), int(offset) + 50)["v"].to_pylist() == [int(number)] * 50
    assert reader.ends()[0] in (len(whole) * 50, len(whole) * 50 + 50)
    end = reader.ends()[0]
    with kedge.stream(place(request)) as after:  # it waits until it is sure that the other one is silent
        assert after.append(rows(0, 1)).wait().first_offset == end


def test_a_server_that_dies_and_comes_back(server: Server, request: pytest.FixtureRequest) -> None:
    """Short of an answer the writer tries again; what was acknowledged is there, each row once."""
    with kedge.stream(place(request), SCHEMA) as rides:
        rides.append(rows(0, 10)).wait()
        server.kill()
        ticket = rides.append(rows(10, 20))
        time.sleep(0.3)
        server.start()
        assert ticket.wait().first_offset == 10
        server.pause()
        ticket = rides.append(rows(20, 30))
        time.sleep(0.3)
        server.resume()
        assert ticket.wait().first_offset == 20
    assert kedge.stream(place(request)).to_table()["v"].to_pylist() == list(range(30))


def test_a_server_that_stays_away_is_a_clear_error(
    server: Server, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(committer, "_TRIES", 2)
    rides = kedge.stream(place(request), SCHEMA)
    rides.append(rows(0, 10)).wait()
    server.kill()
    try:
        ticket = rides.append(rows(10, 20), producer="p", sequence=1)
        with pytest.raises(UnavailableError, match="no answer from the store") as caught:
            ticket.wait()
        assert os.environ["AWS_SECRET_ACCESS_KEY"] not in str(caught.value)
        with pytest.raises(ClosedError, match="takes no more appends"):
            rides.append(rows(10, 20))
    finally:
        server.start()
    with kedge.stream(place(request), takeover=True) as after:
        after.append(rows(10, 20), producer="p", sequence=1).wait()
    assert kedge.stream(place(request)).to_table()["v"].to_pylist() == list(range(20))


def test_a_reader_in_another_process_sees_whole_appends(server: Server, request: pytest.FixtureRequest) -> None:
    child = subprocess.Popen([sys.executable, "-c", CHILD, place(request)], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        child.stdout.readline()
        reader, last = kedge.stream(place(request)), 0
        for _ in range(20):
            values = reader.to_table(0, last)["v"].to_pylist()
            assert values == [n for n in range(last // 50, last // 50 + len(values) // 50) for _ in range(50)]
            last += len(values)
        assert last > 0
    finally:
        child.kill()
        child.wait()


def test_no_such_bucket(server: Server) -> None:
    with pytest.raises(UsageError, match="no such bucket"):
        kedge.stream("s3://there-is-none/x", SCHEMA)


QUERY = "SELECT window(ts, '1 seconds') AS w, count(*) AS n FROM rides GROUP BY window(ts, '1 seconds')"

RUN = """
import sys, kedge
base, query = sys.argv[1], sys.argv[2]
run = kedge.sql(query, rides=kedge.stream(base + "/rides")).start(base + "/run", into=base + "/out", rows_max=500)
print("going", flush=True)
run.drain()
print("drained", flush=True)
import time; time.sleep(600)
"""


def test_a_run_survives_the_death_of_its_process(server: Server, request: pytest.FixtureRequest) -> None:
    """Input, run and result in the bucket: killed in its midst, and continued in another process."""
    base = place(request)
    with kedge.stream(f"{base}/rides", SCHEMA, 2, event_time="ts", unit_rows=100) as rides:
        for n in range(10):
            data = [pa.array([v * 10_000 for v in range(n * 400, n * 400 + 400)], pa.timestamp("us")), [1] * 400]
            rides.append(pa.table(data, schema=SCHEMA), n % 2).wait()
    child = subprocess.Popen([sys.executable, "-c", RUN, base, QUERY], stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == "going\n"
        out = kedge.stream(f"{base}/rides")  # wait until a few batches are committed
        ledger = host.local().store(f"{base}/run")
        while len(ledger.list("ledger")) < 4:
            time.sleep(0.02)
    finally:
        child.send_signal(signal.SIGKILL)
        child.wait()
    query = kedge.sql(QUERY, rides=out)
    run = query.start(f"{base}/run", into=f"{base}/out", rows_max=500)
    run.finish()
    result = kedge.stream(f"{base}/out").to_table()
    assert sum(result["n"].to_pylist()) == 4000
    assert sorted(result["n"].to_pylist()) == [100] * 40
    assert kedge.stream(f"{base}/out").run[0] == f"{base}/run"
    with pytest.raises(ConflictError, match="result of run"):
        query.start(f"{base}/other", into=f"{base}/out")
    with pytest.raises(UsageError, match="only that run"):
        kedge.stream(f"{base}/out").append(result)
