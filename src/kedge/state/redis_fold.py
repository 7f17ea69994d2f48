"""Completing blind layers, and the difference of two images: the parts of folding that only read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kedge.state.cells import DictCells
from kedge.state.delta import UNKNOWN, CellDelta, Delta, IntDelta, cells_of, distinct, known
from kedge.state.readers import Reader


def complete_layers(base: Reader, layers: Sequence[Delta]) -> list[Delta]:
    """The same layers with every old value: from the layer before that wrote the cell, else from the base."""
    if not any(len(layer.unknown()) for layer in layers):
        return list(layers)
    if all(isinstance(layer, IntDelta) or not len(layer) for layer in layers):
        return _complete_ints(base, list(layers))
    asked = list(dict.fromkeys(cell for layer in layers for cell in cells_of(layer).changes))
    state = DictCells(UNKNOWN)
    state.load(dict(zip(asked, base.get(asked), strict=True)))
    done: list[Delta] = []
    for layer in layers:
        cells = cells_of(layer)
        whole = cells.complete({cell: known(state.get(cell)) for cell in cells.unknown()})
        state.load(cells.news())
        done.append(whole)
    return done


def _complete_ints(base: Reader, layers: list[Delta]) -> list[Delta]:
    parts = [layer for layer in layers if isinstance(layer, IntDelta)]
    if not parts:
        return layers
    keys = distinct(np.concatenate([part.keys for part in parts]))
    flags = base.get_ints(keys)
    done: list[Delta] = []
    for layer in layers:
        if not isinstance(layer, IntDelta):
            done.append(CellDelta())
            continue
        places = np.searchsorted(keys, layer.keys)
        done.append(layer.complete(flags[places][layer.old == 2]))
        flags[places] = layer.new
    return done


def difference(before: Reader, after: Reader) -> Delta:
    """The net change between two readers of one structure."""
    was, now = before.ints(), after.ints()
    if was is not None and now is not None:
        gone, come = np.setdiff1d(was, now), np.setdiff1d(now, was)
        flags = np.repeat(np.array([1, 0], np.uint8), [len(gone), len(come)])
        return IntDelta(np.concatenate([gone, come]), flags, (1 - flags).astype(np.uint8))
    old, new = dict(before.items()), dict(after.items())
    pairs = {cell: (old.get(cell), new.get(cell)) for cell in old.keys() | new.keys()}
    return CellDelta({cell: pair for cell, pair in pairs.items() if pair[0] != pair[1]})
