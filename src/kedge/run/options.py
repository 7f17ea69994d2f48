"""What may change at every start of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from kedge.errors import UsageError
from kedge.host import Host


@dataclass(frozen=True, slots=True)
class Options:
    """How a run is executed: none of it changes a result."""

    nodes: int | None = None  # worker slots; by default one, on Spark the default parallelism
    threads: int | None = None  # embedded: fragments at once; by default the machine's cores
    tasks: int = 256  # key groups; decided by the first start of a run and kept
    rows_max: int = 16_000_000  # rows in one batch at most (a batch is at least one unit)
    poll_ms: int = 20  # how long to wait when there is no new input
    driver_rows: int = 4_000_000  # Spark: rows in a batch that the driver does while Spark starts; 0: it does none
    tables: str | None = None  # Spark: where task tables live on each host
    host: Host | None = None

    @staticmethod
    def of(given: Mapping[str, Any]) -> Options:
        """Options from keyword arguments; UsageError names what is wrong."""
        known = [field.name for field in fields(Options)]
        unknown = sorted(set(given) - set(known))
        if unknown:
            raise UsageError(f"Unknown option {', '.join(unknown)}; there are: {', '.join(known)}.")
        options = Options(**given)
        for name in ("nodes", "threads", "tasks", "rows_max", "poll_ms", "driver_rows"):
            value, least = getattr(options, name), 0 if name == "driver_rows" else 1
            if value is not None and (not isinstance(value, int) or value < least):
                raise UsageError(f"{name}={value!r}: give a whole number of at least {least}.")
        if (options.nodes or 1) > options.tasks:
            raise UsageError(f"nodes={options.nodes} is more than tasks={options.tasks}: some nodes would idle.")
        return options
