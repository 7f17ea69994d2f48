"""Rows in the manner of Linear Road: cars that report where they are and how fast, seeded and cut anywhere.

Row i is the same whatever chunk it is made in, so that rows can be appended by several producers and made again
by a check.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

ROAD = pa.schema(
    [
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("vehicle", pa.int32()),
        pa.field("speed", pa.float32()),
        pa.field("highway", pa.int32()),
        pa.field("lane", pa.int32()),
        pa.field("direction", pa.int32()),
        pa.field("position", pa.int32()),
    ]
)

SEGMENT_FEET = 5280
_SEGMENTS = 100


def road(
    start: int, rows: int, *, seed: int = 0, rows_per_s: int = 100_000, vehicles: int = 50_000
) -> pa.RecordBatch:
    """Rows [start, start + rows): `rows_per_s` reports a second of event time, in order of time."""
    index = np.arange(start, start + rows, dtype=np.int64)
    noise = _hash(index, seed)
    vehicle = (noise % np.uint64(vehicles)).astype(np.int32)
    own = _hash(vehicle.astype(np.int64), seed + 1)
    speed_feet = (own >> np.uint64(8)) % np.uint64(60) + np.uint64(40)  # feet per second, each car its own
    seconds = index // rows_per_s
    length = np.uint64(_SEGMENTS * SEGMENT_FEET)
    position = ((own >> np.uint64(20)) + seconds.astype(np.uint64) * speed_feet) % length
    slow = (position // np.uint64(SEGMENT_FEET)) % np.uint64(17) == 0  # some segments are always jammed
    speed = np.where(slow, noise >> np.uint64(40) & np.uint64(15), speed_feet).astype(np.float32)
    columns = [
        pa.array(seconds * 1_000_000, pa.int64()).cast(ROAD.field("ts").type),
        pa.array(vehicle),
        pa.array(speed),
        pa.array(np.zeros(rows, np.int32)),
        pa.array((noise >> np.uint64(50) & np.uint64(3)).astype(np.int32)),
        pa.array((own & np.uint64(1)).astype(np.int32)),
        pa.array(position.astype(np.int32)),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROAD)


def _hash(values: np.ndarray, seed: int) -> np.ndarray:
    """Mixed bits of each value (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        x = values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15) * np.uint64(seed + 1)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))
