"""`kedge stream` from a shell: files in, files out, exit codes."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import ipc, parquet

from kedge.cli import main


def test_files_in_and_out(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    def kedge(*arguments: str) -> tuple[int, Any]:
        code = main(["stream", *arguments, "--json"])
        return code, json.loads(capsys.readouterr().out)

    path = str(tmp_path / "s")
    (tmp_path / "a.csv").write_text("v,ts,name\n1,2024-01-01 00:00:00,a\n2,2024-01-01 00:00:01,\n")
    assert kedge("create", path, "ts:timestamp[us]", "v:int32", "name:string", "--event-time", "ts")[0] == 0
    assert kedge("append", path, str(tmp_path / "a.csv"))[1] == {"partition": 0, "rows": 2, "end": 2}
    for name in ("b.parquet", "c.arrow", "d.csv"):
        file = str(tmp_path / name)
        kedge("cat", path, "--end", "2", "--out", file)
        assert kedge("append", path, file, "--producer", name, "--sequence", "0")[1]["rows"] == 2
        assert kedge("append", path, file, "--producer", name, "--sequence", "0")[1]["rows"] == 0
    assert parquet.read_table(tmp_path / "b.parquet")["v"].to_pylist() == [1, 2]
    with pa.OSFile(str(tmp_path / "c.arrow")) as source:
        assert ipc.open_file(source).read_all()["v"].to_pylist() == [1, 2]
    assert [row["v"] for row in kedge("cat", path, "--columns", "v", "--start", "3")[1]] == [2, 1, 2, 1, 2]
    assert kedge("stat", path)[1]["partitions"][0]["end"] == 8
    assert kedge("trim", path)[1] == {"floors": [0]}
    assert kedge("trim", path, "4")[1] == {"floors": [4]}
    assert kedge("trim", path, "--older", "2024-01-01T00:00:00")[1] == {"floors": [4]}
    assert kedge("verify", path)[1]["problems"] == []
    segment = next((tmp_path / "s").rglob("*.seg"))
    raw = bytearray(segment.read_bytes())
    raw[4096 + 20] ^= 1  # in the header of the first unit
    segment.write_bytes(raw)
    code, found = kedge("verify", path)
    assert code == 1
    assert segment.name in found["problems"][0]
    assert kedge("repair", path)[1]["rows_kept"] == 6
    assert kedge("verify", path)[0] == 0
    assert kedge("create", str(tmp_path / "t"), "v:complex")[0] == 2
