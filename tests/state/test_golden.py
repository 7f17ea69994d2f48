"""Stores that a released Kedge wrote stay readable: a directory, and the keys of a store on Redis."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path

import pytest
from make_golden import answers

from kedge.state import open_store

GOLDEN = Path(__file__).parent / "golden"


def want():
    return json.loads((GOLDEN / "answers-1.json").read_text())


@pytest.mark.parametrize("read_only", [True, False])
def test_a_directory_of_format_1_reads(tmp_path, read_only):
    shutil.copytree(GOLDEN / "directory-1", tmp_path / "store")
    store = open_store(tmp_path / "store", read_only=read_only)
    assert answers(store) == want()
    if not read_only:
        store.forward(3)
        assert "later" in store.set("undo texts")
        store.compact(count=1)
        assert "later" in open_store(tmp_path / "store").set("undo texts")


@pytest.mark.parametrize("read_only", [True, False])
def test_a_store_on_redis_of_format_1_reads(redis_socket, read_only):
    import redis

    client = redis.Redis(unix_socket_path=redis_socket)
    verbs = {"set": "SADD", "hash": "HSET", "string": "SET", "list": "RPUSH", "zset": "ZADD"}
    for key, (kind, parts) in json.loads((GOLDEN / "redis-1.json").read_text()).items():
        name = key.replace("golden", f"golden{read_only}", 1)
        client.execute_command(verbs[kind], name, *[base64.b64decode(part) for part in parts])
    bounds = client.hgetall(f"golden{read_only}::bounds")  # its fields are keys' names
    for field, value in bounds.items():
        client.hset(f"golden{read_only}::bounds", field.replace(b"golden", f"golden{read_only}".encode(), 1), value)
    store = open_store(f"unix://{redis_socket}?name=golden{read_only}", read_only=read_only)
    assert answers(store) == want()
    if not read_only:
        store.forward(3)
        assert "later" in store.set("undo texts")
