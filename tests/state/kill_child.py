"""A writer to be killed: adds batches, makes versions, and says what it has done after each call."""

from __future__ import annotations

import sys

import numpy as np

from kedge.state import open_store

BATCH = 2_000


def main(url: str, scheme: str) -> None:
    """Until somebody ends it."""
    store = open_store(url, scheme=scheme)
    members, number = store.set("k", "int"), store.set("done", "int").members()
    at = len(number)
    while True:
        members.update(np.arange(at * BATCH, (at + 1) * BATCH))
        print(f"added {at}", flush=True)
        if at % 3 == 2:
            store.set("done", "int").update(range(at + 1))
            store.checkpoint()
            print(f"version {at}", flush=True)
        at += 1


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
