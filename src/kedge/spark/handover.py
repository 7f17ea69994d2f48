"""How the driver hands a run over to the query's planner: two files in a private folder of the driver's machine.

    planner: `asked`, once it has everything open         driver: ends the batch under way, then `granted`

Invariants:
- The driver plans nothing after `granted`, and the planner nothing before it: there is one planner at a time.
- Both files stay: a planner that Spark starts again asks again, and has its answer at once.
- A folder that is gone is the answer no: the run is over.
"""

from __future__ import annotations

import os
import shutil

from kedge.errors import ClosedError, UnavailableError
from kedge.host import Clock

_ASKED, _GRANTED = "asked", "granted"
_WAIT_SECONDS = 600.0  # for one bounded batch, and the tables for it
_POLL_SECONDS = 0.005


class Handover:
    """One claim's handover; both sides open the same folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def open(self) -> None:
        """The driver: from now on a planner may ask."""
        os.mkdir(self._folder, mode=0o700)

    def asked(self) -> bool:
        """The driver: whether the planner is there."""
        return os.path.exists(os.path.join(self._folder, _ASKED))

    def grant(self) -> None:
        """The driver: it has stopped for good."""
        self._put(_GRANTED)

    def refuse(self) -> None:
        """The driver: the run is over; who waits, or asks from now on, is told."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def ask(self, clock: Clock, wait_s: float = _WAIT_SECONDS) -> None:
        """The planner: return when the driver has stopped."""
        deadline_ns = clock.monotonic_ns() + int(wait_s * 1e9)
        try:
            self._put(_ASKED)
            while _GRANTED not in os.listdir(self._folder):
                if clock.monotonic_ns() > deadline_ns:
                    raise UnavailableError(
                        f"The driver did not hand its run over within {wait_s:g} s ({self._folder}): its batch takes "
                        "too long. Start the run again, with a smaller `driver_rows` or with driver_rows=0."
                    )
                clock.sleep(_POLL_SECONDS)
        except FileNotFoundError:
            raise ClosedError("The run ended before Spark had started. Start it again to go on.") from None

    def _put(self, name: str) -> None:
        os.close(os.open(os.path.join(self._folder, name), os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600))
