"""How a stage's input is cut into partitions: finer than Spark would, and the same again in every process.

Spark cuts files by the number of cores and by options, so partition 3 of another process may hold other rows. The
options of an attempt are therefore kept with it and set again, and what every task reads is digested: where that is
another layout, finished partitions of the attempt are not mixed with new ones.

A long stage with as many tasks as cores ends all at once: there is no finished partition to save before its end.
Then its files are cut into several waves.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kedge.spark.resume.identity import digest
from kedge.spark.resume.plan import kind, seq

WAVES_MAX = 8
WAVE_US = 400_000  # shorter waves cost more than they protect
_SPLIT_BYTES_MIN = 1 << 16


def tasks_wanted(time_us: int, tasks: int, cores: int) -> int:
    """How many tasks a stage over files should have, given its time on the whole machine."""
    return max(tasks, cores * min(WAVES_MAX, time_us // WAVE_US))


def splits(sizes: Iterable[int], tasks: int) -> dict[str, str]:
    """The options under which Spark cuts these files into about `tasks` partitions."""
    most = max(_SPLIT_BYTES_MIN, sum(sizes) // max(1, tasks))
    return {
        "spark.sql.files.maxPartitionBytes": str(most),
        "spark.sql.files.openCostInBytes": "0",
        "spark.sql.files.minPartitionNum": str(tasks),
    }


def of(rdd: Any) -> str:
    """What each task of an RDD reads of files, as a digest; shuffles behind it do not count."""
    lines: list[str] = []
    stack, seen = [rdd], set[int]()
    while stack:
        here = stack.pop()
        if int(here.id()) in seen:
            continue
        seen.add(int(here.id()))
        if kind(here) == "FileScanRDD":
            for partition in seq(here.filePartitions()):
                lines.append("|".join(str(file.toString()) for file in partition.files()))
        stack.extend(each.rdd() for each in seq(here.dependencies()) if kind(each) != "ShuffleDependency")
    return digest("\n".join(lines))
