"""Object stores through obstore: `s3://`, `gs://`, `az://` and `abfs://`, and `memory://` for this process only.

Credentials, region and endpoint come from the environment, as obstore reads them (AWS_*, GOOGLE_*, AZURE_*); they are
never in a URL, a message or a log.

Invariants:
- A put is one request, so an object is there whole or not at all, and it is there when the put returns.
- FileExistsError is said only of a name that is taken. It may be taken by an earlier try of the same put, whose
  answer was lost on the way: whoever must know reads the object.
- Whatever else goes wrong on the way is UnavailableError: nobody knows whether the call took effect.

Nothing is put to a local directory here: obstore never syncs a file, so those go through `host.store`'s own disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import lru_cache
from typing import Any, TypeVar, cast

from kedge.errors import UnavailableError, UsageError
from kedge.host.disk import Bytes
from kedge.host.store import checked_name

T = TypeVar("T")

SCHEMES = {
    "s3": "AWS",
    "s3a": "AWS",
    "gs": "GOOGLE",
    "az": "AZURE",
    "abfs": "AZURE",
    "abfss": "AZURE",
    "memory": "",
}
_LISTED = 1000  # names that a listing asks for at once
# How patient one call is. The environment may say otherwise, for example with AWS_TIMEOUT="5s".
_CLIENT = {"timeout": "60s", "connect_timeout": "5s"}
_CLIENT_KEYS = (*_CLIENT, "allow_http", "proxy_url", "allow_invalid_certificates")
_RETRIES: Any = {"max_retries": 3, "retry_timeout": timedelta(seconds=30)}
_CREDENTIALS = re.compile(
    r"credential|169\.254\.|metadata/|latest/api/token|unauthenticated|account must be", re.IGNORECASE
)
_REFUSED = re.compile(
    r"\b(401|403)\b|AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|permission"
)
_SETTINGS = re.compile(
    r"BadScheme|builder error|relative URL|invalid (uri|url)|Unable to recogni[sz]e", re.IGNORECASE
)
_NO_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|The specified bucket does not exist")


def is_url(root: str) -> bool:
    """Whether `root` is an address rather than a path of a disk."""
    return "://" in root


def split(url: str) -> tuple[str, str]:
    """(the store, the prefix inside it): `s3://bucket` and `a/b` of `s3://bucket/a/b`."""
    scheme, _, rest = url.partition("://")
    known = ", ".join(f"{name}://" for name in SCHEMES)
    if scheme not in SCHEMES:
        raise UsageError(f"{scheme}:// is not an object store that Kedge knows: use {known} or a directory.")
    place, _, prefix = rest.partition("/")
    if "@" in place and not scheme.startswith("abfs"):
        raise UsageError(
            f"An address like {scheme}://…@… would keep a secret in the open. Give credentials in the environment "
            f"({SCHEMES[scheme]}_...), and write only {scheme}://BUCKET/PREFIX."
        )
    if not place and scheme != "memory":
        raise UsageError(f"{url} names no bucket: write {scheme}://BUCKET/PREFIX.")
    if "?" in rest or "#" in rest:
        raise UsageError(f"An address of an object store has no '?' and no '#': write {scheme}://BUCKET/PREFIX.")
    prefix = prefix.strip("/")
    return f"{scheme}://{place}", checked_name(prefix) if prefix else ""


def open_store(url: str) -> ObjectStore:
    """The objects below an address; no request is made yet."""
    root, prefix = split(url)
    environment = frozenset(
        (key, value) for key, value in os.environ.items() if key.startswith(("AWS_", "AZURE_", "GOOGLE_"))
    )
    return ObjectStore(_opened(root, environment), url.rstrip("/"), prefix)


@lru_cache(maxsize=32)
def _opened(root: str, environment: frozenset[tuple[str, str]]) -> Any:
    """One client, and its connections, for each bucket and settings; `environment` is part of the key."""
    try:
        import obstore.store as stores
    except ImportError:
        raise UsageError(f"{root} is an object store: pip install 'kedge[s3]' to use it.") from None
    scheme = root.partition("://")[0]
    if scheme == "memory":
        return stores.MemoryStore()
    given = dict(environment)
    names = ((key, f"{SCHEMES[scheme]}_{key.upper()}") for key in _CLIENT_KEYS)
    client: Any = {**_CLIENT, **{key: given[name] for key, name in names if name in given}}
    return _asked(root, lambda: stores.from_url(root, client_options=client, retry_config=_RETRIES))


class ObjectStore:
    """Objects below a prefix of an obstore store."""

    def __init__(self, store: Any, root: str, prefix: str = "") -> None:
        self._store, self.root, self._prefix = store, root, prefix

    def put(self, name: str, data: Bytes, *, if_absent: bool = False) -> None:
        """One put, conditional on the name being free if it must be."""
        key, mode = self._key(name), "create" if if_absent else "overwrite"
        raw = data if isinstance(data, bytes) else memoryview(cast(bytes, data)).cast("B")
        try:
            self._ask(name, lambda: self._store.put(key, raw, mode=mode, use_multipart=False))
        except FileExistsError:
            if self._taken(key):
                raise
            # Some stores say so while another put of the same name is under way; that one may yet fail.
            raise UnavailableError(
                f"{self.root}/{name}: the store refused a put. Read before trying again."
            ) from None
        except FileNotFoundError:
            raise UsageError(f"{self.root}: there is no such bucket. Create it, or correct the address.") from None

    def _taken(self, key: str) -> bool:
        try:
            self._ask(key, lambda: self._store.head(key))
        except FileNotFoundError:
            return False
        return True

    def get(self, name: str, start: int = 0, end: int | None = None) -> bytes:
        """One get; of a range, no more than is there."""
        key = self._key(name)
        if (start, end) == (0, None):
            return self._ask(name, lambda: self._store.get(key).bytes().to_bytes())
        size = 1 << 62 if end is None else end
        if start < size:
            with suppress(_OutOfRange):
                return self._ask(name, lambda: self._range(key, start, end))
        self._ask(name, lambda: self._store.head(key))  # nothing of it, but of something that is there
        return b""

    def _range(self, key: str, start: int, end: int | None) -> bytes:
        if end is None:
            return self._store.get(key, options={"range": {"offset": start}}).bytes().to_bytes()
        return self._store.get_range(key, start=start, end=end).to_bytes()

    def list(self, prefix: str) -> list[str]:
        """All pages, in the order of names."""
        folder = "/".join(part for part in (self._prefix, prefix.rstrip("/")) if part)
        skip = len(self._prefix) + 1 if self._prefix else 0

        def names() -> list[str]:
            pages = self._store.list(folder or None, chunk_size=_LISTED)
            return sorted(str(meta["path"])[skip:] for page in pages for meta in page)

        try:
            return self._ask(prefix, names)
        except FileNotFoundError:
            return []

    def delete(self, name: str) -> None:
        """One delete; that there is nothing is as good."""
        key = self._key(name)
        with suppress(FileNotFoundError):
            self._ask(name, lambda: self._store.delete(key))

    def settle(self, folder: str) -> None:
        """What is visible in an object store is durable."""

    def sweep(self, folder: str) -> None:
        """Nothing is ever half-written in an object store."""

    def _key(self, name: str) -> str:
        name = checked_name(name)
        return f"{self._prefix}/{name}" if self._prefix else name

    def _ask(self, name: str, call: Callable[[], T]) -> T:
        return _asked(f"{self.root}/{name}", call)


class _OutOfRange(Exception):  # noqa: N818  (an answer, not an error)
    """A range begins behind the object's end."""


def _asked(where: str, call: Callable[[], T]) -> T:
    """What `call` gives, or its error in our words: obstore's own text may show more than it should."""
    from obstore import exceptions

    try:
        return call()
    except (exceptions.AlreadyExistsError, exceptions.PreconditionError):
        raised: Exception = FileExistsError(where)
    except FileNotFoundError as error:  # what obstore raises for its NotFoundError
        gone = _NO_BUCKET.search(str(error)) is not None
        raised = _no_bucket(where) if gone else FileNotFoundError(where)
    except (exceptions.PermissionDeniedError, exceptions.UnauthenticatedError) as error:
        raised = _refused(where, str(error))
    except exceptions.InvalidPathError as error:
        raised = UsageError(f"{where}: the store does not take this name ({_first_line(error)}).")
    except exceptions.NotSupportedError as error:
        raised = UsageError(
            f"{where}: this store can't do what a stream needs, a put that fails when the name is taken "
            f"({_first_line(error)}). Use one that can: S3, GCS, Azure, or a server with If-None-Match."
        )
    except (exceptions.BaseError, OSError, ValueError) as error:
        raised = _of(where, error)
    raise raised from None


def _of(where: str, error: Exception) -> Exception:
    text = str(error)
    if re.search(r"\b416\b|range", text, re.IGNORECASE) and "retries" not in text:
        return _OutOfRange(where)
    if _NO_BUCKET.search(text):
        return _no_bucket(where)
    if _CREDENTIALS.search(text):
        return UsageError(
            f"{where}: there are no credentials for this store. Set them in the environment "
            "(AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS, AZURE_STORAGE_ACCOUNT_NAME "
            "and AZURE_STORAGE_ACCOUNT_KEY); see docs/objects.md."
        )
    if _REFUSED.search(text):
        return _refused(where, text)
    if _SETTINGS.search(text):
        return UsageError(
            f"{where}: the address or the settings of this store can't be used ({_first_line(error)}). An endpoint "
            "without TLS needs AWS_ALLOW_HTTP=true (or AZURE_ALLOW_HTTP, GOOGLE_ALLOW_HTTP)."
        )
    return UnavailableError(
        f"{where}: no answer from the store ({_first_line(error)}). Try again; the call may have taken effect."
    )


def _no_bucket(where: str) -> UsageError:
    return UsageError(f"{where}: there is no such bucket. Create it, or correct the address.")


def _refused(where: str, text: str) -> UsageError:
    code = re.search(r"<Code>(\w+)</Code>", text)
    return UsageError(
        f"{where}: the store refuses these credentials{f' ({code[1]})' if code else ''}. Check them and their rights: "
        "reading, writing, listing and deleting below the prefix."
    )


def _first_line(error: Exception) -> str:
    """The gist of an obstore error: no debug output, no query of a URL, none of the secrets that we were given."""
    line = (
        str(error).split("Debug source")[0].strip().splitlines()[0] if str(error).strip() else type(error).__name__
    )
    line = re.sub(r"(https?://[^\s?]*)\?\S*", r"\1", line)
    for key, value in os.environ.items():
        if len(value) > 3 and re.search(r"(AWS|AZURE|GOOGLE)_.*(KEY|TOKEN|SECRET|SAS|PASSWORD)", key):
            line = line.replace(value, "…")
    return line[:300]
