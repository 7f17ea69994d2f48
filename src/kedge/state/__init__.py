"""Versioned structures: one log of net changes, forwards and backwards.

`open_store(url)` (`kedge.store` to users) chooses the backend; `store.py` is what a user holds; `collection.py` and
its siblings are the structures; `readers.py` is the seam to the backends (`embedded.py`, `redis_*.py`); `delta.py`
is the algebra that all of it rests on.
"""

from __future__ import annotations

from kedge.state.opening import open_store
from kedge.state.sink import into_counter, into_list, into_map, into_set, into_sorted_set
from kedge.state.store import Store

__all__ = ["Store", "into_counter", "into_list", "into_map", "into_set", "into_sorted_set", "open_store"]
