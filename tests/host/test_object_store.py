"""Object stores through obstore: the same answers as the other stores, and errors that show no secret."""

from __future__ import annotations

import builtins
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from kedge import host
from kedge.errors import UnavailableError, UsageError
from kedge.host.objects import ObjectStore, split
from kedge.host.sim import SimStore

obstore = pytest.importorskip("obstore.store")


def stores(folder: Path) -> list[Any]:
    return [
        SimStore(1),
        host.local().store(str(folder / "own")),
        host.local().store(f"memory://{folder.name}/a/b"),
        ObjectStore(obstore.MemoryStore(), "memory"),
        ObjectStore(obstore.LocalStore(folder / "local", mkdir=True), "local", "p/q"),
    ]


def test_all_stores_answer_alike(tmp_path: Path) -> None:
    rng = random.Random(3)
    there = stores(tmp_path)
    for _ in range(300):
        name = rng.choice(["a/1", "a/2", "b/c/1", "d", "ü b/%41"])
        body = bytes(rng.randrange(256) for _ in range(rng.randrange(9)))
        act, low, high = rng.randrange(7), rng.randrange(6), rng.randrange(9)
        answers = [answer(store, act, name, body, low, high) for store in there]
        assert all(one == answers[0] for one in answers), (act, name, low, high, answers)


def answer(store: Any, act: int, name: str, body: bytes, low: int, high: int) -> Any:
    try:
        if act < 2:
            return store.put(name, body, if_absent=bool(act))
        if act == 2:
            return store.delete(name)
        if act == 3:
            return store.list(name.partition("/")[0]) + store.list("") + store.list("nothing")
        if act == 4:
            return store.get(name)
        return store.get(name, low) if act == 5 else store.get(name, low, high)
    except OSError as error:
        return type(error)


@pytest.mark.parametrize("kind", ["memory", "local"])
def test_a_name_is_won_once(kind: str, tmp_path: Path) -> None:
    inner = obstore.MemoryStore() if kind == "memory" else obstore.LocalStore(tmp_path)
    for number in range(30):
        won: list[int] = []

        def put(who: int, name: str = f"n/{number}", won: list[int] = won) -> None:
            try:
                ObjectStore(inner, kind).put(name, b"%d" % who, if_absent=True)
                won.append(who)
            except FileExistsError:
                pass

        threads = [threading.Thread(target=put, args=(who,)) for who in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [b"%d" % who for who in won] == [ObjectStore(inner, kind).get(f"n/{number}")]


@pytest.mark.parametrize(
    ("url", "root", "prefix"),
    [
        ("s3://bucket", "s3://bucket", ""),
        ("s3://bucket/a/b/", "s3://bucket", "a/b"),
        ("gs://b/x", "gs://b", "x"),
        ("az://container/x", "az://container", "x"),
        ("abfss://c@account.dfs.core.windows.net/x", "abfss://c@account.dfs.core.windows.net", "x"),
        ("memory:///x", "memory://", "x"),
    ],
)
def test_an_address_is_a_store_and_a_prefix(url: str, root: str, prefix: str) -> None:
    assert split(url) == (root, prefix)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("ftp://x/y", "s3://"),
        ("https://bucket.example/x", "not an object store that Kedge knows"),
        ("s3://", "names no bucket"),
        ("s3://key:hush@bucket/x", "AWS_"),
        ("s3://bucket/../x", "not a name"),
        ("s3://bucket/x?secret=hush", "no '\\?'"),
        ("az://container/x", "AZURE_STORAGE_ACCOUNT_NAME"),
    ],
)
def test_a_bad_address_says_what_to_write(url: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(UsageError, match=says) as caught:
        host.local().store(url)
    assert "hush" not in str(caught.value)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("obstore"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'kedge\[s3\]'"):
        host.local().store("gs://never-opened-before/x")


class Answers:
    """A store whose every call fails as it is told."""

    def __init__(self, error: Exception, there: bool = False) -> None:
        self.error, self.there = error, there

    def put(self, *_: Any, **__: Any) -> None:
        raise self.error

    get = get_range = list = delete = put

    def head(self, _: str) -> None:
        if not self.there:
            raise FileNotFoundError


def test_errors_are_ours_and_keep_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    from obstore import exceptions

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hush-hush")
    for error, kind in (
        (
            exceptions.GenericError("HTTP error: timed out http://h/x?X-Amz-Signature=hush-hush hush-hush"),
            UnavailableError,
        ),
        (exceptions.PermissionDeniedError("<Code>AccessDenied</Code> hush-hush"), UsageError),
        (exceptions.UnauthenticatedError("hush-hush"), UsageError),
        (exceptions.GenericError("403 Forbidden <Code>SignatureDoesNotMatch</Code> hush-hush"), UsageError),
        (exceptions.GenericError("PUT http://169.254.169.254/latest/api/token hush-hush"), UsageError),
        (exceptions.NotSupportedError("conditional put hush-hush"), UsageError),
        (exceptions.InvalidPathError("hush-hush"), UsageError),
    ):
        store = ObjectStore(Answers(error), "s3://b")
        for call in (
            lambda s=store: s.put("n", b"", if_absent=True),
            lambda s=store: s.get("n"),
            lambda s=store: s.list("n"),
        ):
            with pytest.raises(kind) as caught:
                call()
            assert "hush" not in str(caught.value)
            assert caught.value.__cause__ is None
            assert caught.value.__suppress_context__


def test_a_refusal_without_an_object_is_no_answer() -> None:
    """S3 says 409 while another put of the name is under way, which may fail: the name is not taken yet."""
    from obstore import exceptions

    taken = exceptions.AlreadyExistsError("x")
    with pytest.raises(UnavailableError):
        ObjectStore(Answers(taken), "s3://b").put("n", b"", if_absent=True)
    with pytest.raises(FileExistsError):
        ObjectStore(Answers(taken, there=True), "s3://b").put("n", b"", if_absent=True)
