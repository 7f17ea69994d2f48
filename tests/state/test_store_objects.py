"""A versioned store in an object store: the same journal, at an address."""

from __future__ import annotations

from pathlib import Path

import pytest

import kedge
from kedge.errors import ConflictError, UsageError


def test_versions_survive_in_an_object_store(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    url = f"memory://{tmp_path.name}/store"
    with kedge.store(url) as store:
        buses = store.set("buses")
        buses.add(1)
        first = store.checkpoint()
        buses.add(2)
        store.checkpoint()
    with kedge.store(url) as again:
        assert sorted(again.set("buses")) == [1, 2]
        again.rollback(first)
        assert sorted(again.set("buses")) == [1]
        with kedge.store(url) as newer:
            newer.set("buses").add(5)
            newer.checkpoint()
        again.set("buses").add(7)
        with pytest.raises(ConflictError):
            again.checkpoint()


def test_an_unknown_address_is_refused() -> None:
    with pytest.raises(UsageError, match="can't be kept at"):
        kedge.store("ftp://host/store")
