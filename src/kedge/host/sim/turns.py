"""Interleaves several actors on one thread of control, by a seed: one runs, the others wait for their turn.

Each actor is a function on a thread of its own, but only the one that holds the turn runs, and it changes only in
`step()`, which the simulated disk and store call before every I/O call. So a seed gives the same order for ever.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kedge.host.sim.calls import Crashed


@dataclass
class Outcome:
    """How an actor ended: with a value, or with an error (`Crashed` if it was killed)."""

    value: Any = None
    error: BaseException | None = None


class _Actor:
    def __init__(self, work: Callable[[], Any]) -> None:
        self.work = work
        self.outcome = Outcome()
        self.turn = threading.Lock()
        self.turn.acquire()
        self.dead = False
        self.asleep_until = 0


class Turns:
    """Runs actors in an order that the seed decides.

    Before each I/O call an actor dies with the chance `kills`, and sleeps for up to 100 calls of the others with
    the chance `stalls`: that is how a coordinator becomes a zombie that does not know it.
    """

    def __init__(self, seed: int, *, kills: float = 0.0, stalls: float = 0.02) -> None:
        self._rng = random.Random(f"turns/{seed}")  # noqa: S311  (a simulation must repeat)
        self._kills, self._stalls = kills, stalls
        self._steps = 0
        self._alive: list[_Actor] = []
        self._by_thread: dict[int, _Actor] = {}
        self._done = threading.Lock()

    def run(self, *works: Callable[[], Any]) -> list[Outcome]:
        """Run the actors until all have ended."""
        actors = [_Actor(work) for work in works]
        self._alive = list(actors)
        self._done.acquire()
        threads = [threading.Thread(target=self._run, args=(actor,), daemon=True) for actor in actors]
        for thread in threads:
            thread.start()
        self._rng.choice(actors).turn.release()
        self._done.acquire()
        self._done.release()
        for thread in threads:
            thread.join()
        return [actor.outcome for actor in actors]

    def step(self) -> None:
        """Perhaps let another actor run first; raises Crashed in an actor that was killed."""
        me = self._by_thread.get(threading.get_ident())
        if me is None:
            return
        if not me.dead:
            self._steps += 1
            if self._rng.random() < self._stalls:
                me.asleep_until = self._steps + self._rng.randrange(100)
            other = self._next()
            if other is not me:
                other.turn.release()
                me.turn.acquire()
            me.dead = self._rng.random() < self._kills
        if me.dead:
            raise Crashed("killed by the schedule")

    def _next(self) -> _Actor:
        awake = [actor for actor in self._alive if actor.asleep_until <= self._steps]
        return self._rng.choice(awake or self._alive)

    def _run(self, actor: _Actor) -> None:
        actor.turn.acquire()
        self._by_thread[threading.get_ident()] = actor
        try:
            actor.outcome.value = actor.work()
        except BaseException as error:
            actor.outcome.error = error
        del self._by_thread[threading.get_ident()]
        self._alive.remove(actor)
        if self._alive:
            self._next().turn.release()
        else:
            self._done.release()


def attempts(turns: Turns, task: Callable[[int], Any], count: int = 2) -> list[Outcome]:
    """Duplicate attempts of one task, interleaved: `task(number)` runs `count` times, as schedulers do."""
    return turns.run(*(lambda number=number: task(number) for number in range(count)))
