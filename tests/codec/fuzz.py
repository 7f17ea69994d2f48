"""Hostile columns: encoded bytes and parameters are damaged; a decoder answers with values or CorruptError.

    python tests/codec/fuzz.py SEED COUNT

With NUMBA_BOUNDSCHECK=1 every access of every kernel outside its arrays becomes an IndexError.
"""

from __future__ import annotations

import sys

import numpy as np
from codec_columns import DTYPES, PATTERNS, column

from kedge import codec
from kedge.errors import CorruptError

NASTY = (0, 1, -1, 63, 64, 65, 127, 255, 1 << 31, (1 << 32) - 1, 1 << 40, (1 << 63) - 1, -(1 << 63))


def damage(rng: np.random.Generator, encoded: codec.Encoded) -> codec.Encoded:
    """Flip, cut, extend, zero or overwrite a word of the body, or change a parameter or the codec."""
    body = encoded.body.copy()
    params = list(encoded.params)
    code = encoded.codec
    for _ in range(int(rng.integers(1, 4))):
        kind = int(rng.integers(0, 8))
        place = int(rng.integers(0, max(1, min(body.size, 200 if kind % 2 else body.size))))
        if kind == 0:
            params[int(rng.integers(0, 3))] = int(rng.choice(np.array(NASTY, np.int64)))
        elif kind == 1:
            body = body[:place]
        elif kind == 2:
            body = np.concatenate([body, rng.integers(0, 256, int(rng.integers(1, 200)), dtype=np.uint8)])
        elif kind == 3 and body.size >= place // 8 * 8 + 8:
            body[place // 8 * 8 :][:8] = np.array([NASTY[int(rng.integers(0, len(NASTY)))]], np.int64).view(
                np.uint8
            )
        elif kind == 4:
            body[place : place + 100] = 0
        elif kind == 5 and rng.random() < 0.2:
            code = int(rng.integers(0, len(codec.BY_CODE) + 1))
        elif body.size:
            body[place] ^= 1 << int(rng.integers(0, 8))
    return codec.Encoded(code, (params[0], params[1], params[2]), body)


def fuzz(seed: int) -> bool:
    """One damaged column; True when it was refused."""
    rng = np.random.default_rng(seed)
    dtype = DTYPES[int(rng.integers(0, len(DTYPES)))]
    names = [name for name, one in codec.BY_NAME.items() if np.dtype(dtype).kind in one.kinds]
    name = names[int(rng.integers(0, len(names)))]
    pattern = sorted(PATTERNS)[int(rng.integers(0, len(PATTERNS)))]
    values = column(seed, pattern, dtype, int(rng.integers(1, 1500)))
    damaged = damage(rng, codec.encode(values, name))
    rows = values.size if rng.random() < 0.8 else int(rng.integers(0, 3000))
    try:
        decoded = codec.decode(damaged, values.dtype, rows)
    except CorruptError:
        return True
    assert decoded.shape == (rows,), (seed, name)
    assert decoded.dtype == values.dtype, (seed, name)
    return False


def main() -> None:
    """Fuzz COUNT columns from SEED on."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    refused = 0
    for seed in range(first, first + count):
        try:
            refused += fuzz(seed)
        except BaseException:
            print(f"seed {seed}", file=sys.stderr)
            raise
    print(f"{count} damaged columns, {refused} refused")


if __name__ == "__main__":
    main()
