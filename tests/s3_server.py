"""An S3-compatible server on the loopback interface, for tests: moto's, in a process that can be killed.

moto looks whether a name is free and writes it in two steps, so its conditional put is honest only when requests
come one at a time: a lock around the application sees to that. What it holds is kept in a file, so that a server
that is started again after a kill has what it had acknowledged.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

BUCKET = "bucket"
ACCOUNT = "123456789012"


class Server:
    """The server, from outside."""

    def __init__(self, folder: Path, *, honest: bool = True) -> None:
        self.folder, self.honest = folder, honest
        self.port = 0
        self.start()

    def start(self) -> None:
        """Start, or start again on the same port with what was there."""
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(self.folder), str(self.port), str(int(self.honest))],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self.process.stdout is not None
        self.port = int(self.process.stdout.readline())

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()

    def pause(self) -> None:
        """It answers nobody, and its connections stay open."""
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on."""
        self.process.send_signal(signal.SIGCONT)

    def environment(self) -> dict[str, str]:
        """What tells obstore where it is."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{self.port}",
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "not-for-any-message",
            "AWS_TIMEOUT": "5s",
        }


class OneAtATime:
    """The application behind a lock; every change is on disk before it is answered."""

    def __init__(self, app: Any, log: Path, honest: bool) -> None:
        import threading

        self.app, self.log, self.honest = app, log, honest
        self.lock = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterator[bytes]:
        if not self.honest:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        with self.lock:
            if environ["REQUEST_METHOD"] not in ("PUT", "DELETE"):
                return self.app(environ, start)
            import io

            body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            statuses: list[str] = []

            def remember(status: str, *rest: Any) -> Any:
                statuses.append(status)
                return start(status, *rest)

            answer = list(self.app({**environ, "wsgi.input": io.BytesIO(body)}, remember))
            if statuses[-1].startswith("2"):
                change = [environ["REQUEST_METHOD"], environ["PATH_INFO"], base64.b64encode(body).decode()]
                with self.log.open("a") as out:
                    out.write(json.dumps(change) + "\n")
            return iter(answer)


def serve(folder: Path, port: int, honest: bool) -> None:
    """The server's own process."""
    from moto.s3.models import s3_backends
    from moto.server import create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    app = create_backend_app("s3")
    s3_backends[ACCOUNT]["aws"].create_bucket(BUCKET, "us-east-1")
    log = folder / "log"
    if log.exists():
        client = app.test_client()
        for line in log.read_text().splitlines():
            with suppress(ValueError):  # the last line may be cut: it was not answered
                method, path, body = json.loads(line)
                client.open(path, method=method, data=base64.b64decode(body), headers={"Host": f"127.0.0.1:{port}"})
    WSGIRequestHandler.protocol_version = "HTTP/1.1"
    server = make_server("127.0.0.1", port, OneAtATime(app, log, honest), threaded=True)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]), bool(int(sys.argv[3])))
    os._exit(0)
