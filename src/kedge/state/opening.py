"""Opening a versioned store: the URL says which backend."""

from __future__ import annotations

import os
import re

from kedge.errors import UsageError
from kedge.host import Host, is_url, local
from kedge.host.objects import SCHEMES
from kedge.state.commands import check_scheme
from kedge.state.store import Store

_REDIS = ("redis://", "rediss://", "unix://", "valkey://")


def open_store(
    url: str | os.PathLike[str] = "memory:",
    *,
    scheme: str = "undo",
    read_only: bool = False,
    host: Host | None = None,
) -> Store:
    """Open the versioned store at `url`, or create it: `memory:`, a directory, an object store such as
    `s3://bucket/prefix`, or `redis://host:port/db?name=kedge`.

    `scheme` is for structures that are created from now on. A store that is opened `read_only` takes no epoch from
    a writer and refuses changes.
    """
    check_scheme(scheme)
    try:
        place = os.fspath(url)
    except TypeError:
        place = ""
    if not place:
        raise UsageError(f"A store can't be kept at {url!r}: use 'memory:', a directory, or a redis:// URL.")
    host = host or local()
    if place == "memory:":
        from kedge.state.embedded import Embedded

        return Store(place, Embedded(host.clock), host.clock, scheme)
    if place.startswith(_REDIS):
        from kedge.state.redis_store import open_redis

        backend = open_redis(place, host.clock, read_only=read_only)
        return Store(_without_password(place), backend, host.clock, scheme)
    root = place.removeprefix("file://").removeprefix("file:")
    if not root or (is_url(root) and root.partition("://")[0] not in SCHEMES):
        raise UsageError(
            f"A store can't be kept at {place}: use 'memory:', a directory, an object store such as "
            "s3://bucket/prefix, or a redis:// URL."
        )
    from kedge.state.directory import open_directory

    return Store(place, open_directory(root, host, read_only=read_only), host.clock, scheme)


def _without_password(url: str) -> str:
    """The URL as messages and notebooks may show it."""
    return re.sub(r"(://[^:/@?]*):[^@/]*@", r"\1:***@", url)
