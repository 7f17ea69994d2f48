"""The process from which Spark forks Python workers, with Kedge's modules already in it.

Spark starts it as `python -m kedge.spark.daemon WORKER` when `spark.python.daemon.module` names it, which
`kedge.spark.session` does; without it each worker imports for itself, half a second later. Only the daemon of plain
workers imports anything: the ones that plan a source live for a moment.
"""

from __future__ import annotations

import gc
import importlib
import sys

if __name__ == "__main__":
    from pyspark import daemon

    if sys.argv[1:2] == ["pyspark.worker"]:
        importlib.import_module("kedge.spark.nodes")

        gc.freeze()  # what is here stays: workers share its pages
    daemon.manager()
