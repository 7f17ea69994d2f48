"""The stream's own ledger is compacted often enough that crashes meet it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kedge.streams import atomic


@pytest.fixture(autouse=True, scope="package")
def compact_often() -> Iterator[None]:
    """A short workload has few appends to several partitions."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(atomic, "COMPACT_EVERY", 2)
        yield
