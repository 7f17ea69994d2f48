"""Net changes: chaining, inverting and packing, by property."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kedge.errors import CorruptError, UsageError
from kedge.state.commands import Raw
from kedge.state.delta import UNKNOWN, CellDelta, IntDelta, chain
from kedge.state.pack import Packed, blind, pack, unpack
from kedge.state.values import TYPES, decode, encode, encode_all

CELLS = st.sampled_from([b"a", b"b", b"c", b"\0", b""])
STATES = st.dictionaries(CELLS, st.sampled_from([b"1", b"2", b"long" * 80]))
INT_STATES = st.sets(st.sampled_from([-(2**63), -300, -1, 0, 1, 2, 3, 127, 128, 2**40, 2**63 - 1]))


def step(old, new):
    pairs = {cell: (old.get(cell), new.get(cell)) for cell in {**old, **new}}
    return CellDelta({cell: pair for cell, pair in pairs.items() if pair[0] != pair[1]})


def int_step(old, new):
    keys = np.array(sorted(old ^ new), np.int64)
    return IntDelta(keys, *[np.array([key in state for key in keys.tolist()], np.uint8) for state in (old, new)])


def as_cells(delta):
    return delta.to_cells().changes if isinstance(delta, IntDelta) else delta.changes


@given(st.lists(STATES, min_size=2, max_size=5))
def test_a_chain_is_the_difference_of_its_ends(states):
    steps = [step(old, new) for old, new in pairwise(states)]
    assert as_cells(chain(steps)) == step(states[0], states[-1]).changes
    back = chain([one.inverse() for one in reversed(steps)])
    assert as_cells(back) == step(states[-1], states[0]).changes


@given(st.lists(INT_STATES, min_size=2, max_size=5), st.integers(0, 3))
def test_a_chain_of_integers_is_the_difference_of_its_ends(states, cut):
    steps = [int_step(old, new) for old, new in pairwise(states)]
    want = int_step(states[0], states[-1]).to_cells().changes
    assert as_cells(chain(steps)) == want
    grouped = chain([chain(steps[:cut]), chain(steps[cut:])])  # any grouping gives the same
    assert as_cells(grouped) == want
    mixed = chain([one.to_cells() if at % 2 else one for at, one in enumerate(steps)])
    assert as_cells(mixed) == want


@given(INT_STATES, INT_STATES, STATES, STATES, st.booleans())
def test_packing_keeps_every_change(int_old, int_new, old, new, without):
    deltas = {"n": int_step(int_old, int_new), "é": step(old, new)}
    if without:
        deltas = {name: blind(delta) for name, delta in deltas.items()}
    raws = [
        Raw("n", "add", np.array(list(int_old), np.int64)),
        Raw("s", "discard", [b"x", b""]),
        Raw("l", "extend", [b"x"], CellDelta({b"0": (UNKNOWN, b"x"), b"tail": (None, b"1")})),
    ]
    read = unpack(pack(Packed(deltas, raws)), "here")
    assert {name: as_cells(delta) for name, delta in read.deltas.items()} == {
        name: as_cells(delta) for name, delta in deltas.items()
    }
    assert read.raws[0].args.tolist() == raws[0].args.tolist()
    assert read.raws[1:] == raws[1:]


@given(INT_STATES, STATES, st.data())
def test_a_damaged_blob_never_reads(ints, cells, data):
    blob = bytearray(pack(Packed({"n": int_step(set(), ints), "m": step({}, cells)})))
    at = data.draw(st.integers(0, len(blob) - 1))
    blob[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptError, match="layer 7"):
        unpack(bytes(blob), "layer 7")
    with pytest.raises(CorruptError):
        unpack(bytes(blob[:at]), "layer 7")


VALUES = st.one_of(st.text(), st.binary(), st.integers(), st.floats(allow_nan=False))


@given(VALUES)
def test_any_value_reads_back_with_its_type(value):
    found = decode(encode(value))
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@given(st.one_of(*[st.lists(one) for one in (st.text(), st.binary(), st.integers(), st.floats(), VALUES)]))
def test_many_values_are_encoded_like_each(values):
    assert encode_all(values) == [encode(value) for value in values]
    for type_, kind in (("str", str), ("bytes", bytes), ("int", int), ("float", float)):
        if all(type(value) is kind for value in values):
            assert encode_all(values, type_) == [encode(value, type_) for value in values]


@given(st.one_of(st.text(), st.integers().map(str), st.floats().map(repr), st.just("\0s")))
def test_a_string_that_looks_like_something_else_stays_a_string(text):
    assert decode(encode(text)) == text
    assert encode(text, "str") == text.encode()
    assert decode(encode(text, "str"), "str") == text


def test_values_that_have_no_place_are_refused():
    for value in (None, True, [1], {"a": 1}, "\ud800"):
        with pytest.raises(UsageError):
            encode(value)
    for type_, value in zip(TYPES[1:], (1, "a", 1.5, "x"), strict=True):
        with pytest.raises(UsageError):
            encode(value, type_)
