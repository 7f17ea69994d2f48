"""A toy log with its safety lines marked, to test the simulator: each mutant leaves one of them out."""

from __future__ import annotations

import zlib
from typing import Any

from kedge.host import Disk
from kedge.host.sim import SimHost

LOG = "/data/log"


def append_all(host: SimHost, acked: list[Any]) -> None:
    host.disk.mkdir("/data")
    file = host.disk.open(LOG, "create")
    host.disk.sync_dir("/data")  # the file's name
    offset = 0
    for number in range(4):
        body = bytes([number]) * 700
        file.write(zlib.crc32(body).to_bytes(4, "big") + body, offset)
        file.sync()  # the record
        offset += 704
        acked.append(body)


def keeps(host: SimHost, acked: list[Any]) -> None:
    found = recover(host.disk)
    assert found[: len(acked)] == acked, "an acknowledged record is gone"
    for number, body in enumerate(found):
        assert body == bytes([number]) * 700, "a record that was never written"


def recover(disk: Disk) -> list[bytes]:
    if not disk.exists(LOG):
        return []
    data, found = disk.open(LOG).map(), list[bytes]()
    while len(data) >= 704:
        body = bytes(data[4:704])
        if zlib.crc32(body).to_bytes(4, "big") != data[:4]:  # the checksum
            break
        found.append(body)
        data = data[704:]
    return found
