"""Opening a versioned store: the URL says which backend."""

from __future__ import annotations

from kedge.errors import UsageError
from kedge.host import Host, is_url, local
from kedge.host.objects import SCHEMES
from kedge.state.store import Store


def open_store(
    url: str = "memory:", *, scheme: str = "undo", read_only: bool = False, host: Host | None = None
) -> Store:
    """Open the versioned store at `url`, or create it: `memory:`, a directory, an object store such as
    `s3://bucket/prefix`, or `redis://host:port/db?name=kedge`.

    `scheme` is for structures that are created from now on. A store that is opened `read_only` takes no epoch from
    a writer and refuses changes.
    """
    host = host or local()
    if url == "memory:":
        from kedge.state.embedded import Embedded

        return Store(url, Embedded(host.clock), host.clock, scheme)
    if url.startswith(("redis://", "rediss://", "unix://", "valkey://")):
        from kedge.state.redis_store import open_redis

        return Store(url, open_redis(url, host.clock, read_only=read_only), host.clock, scheme)
    if is_url(url) and url.partition("://")[0] not in (*SCHEMES, "file"):
        raise UsageError(
            f"A store can't be kept at {url}: use memory:, a directory, an object store such as s3://bucket/prefix, "
            "redis://, rediss:// or unix://."
        )
    from kedge.state.directory import open_directory

    root = url if is_url(url) else url.removeprefix("file:")
    return Store(url, open_directory(root, host, read_only=read_only), host.clock, scheme)
