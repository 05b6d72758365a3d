"""The paused clock: asyncio's time stands still while any task can run.

This file holds the one text. Each script that needs the clock repeats everything
from the line of dashes on, word for word, as its last section; `nox -s clock` writes
it there again after a change.

The rules are Tokio's (`start_paused`, measured on 1.53):

1. The clock counts whole milliseconds from 0. A wait ends on the first whole
   millisecond at or after its deadline.
2. Sockets are looked at only when no task can run.
3. When no task can run: look at the sockets once without waiting, then move the
   clock to the next wake-up of the timer wheel, whether or not a socket was ready.
   With no timer pending, wait for a socket.
"""

import asyncio
import heapq
import math
import selectors
from collections.abc import Coroutine
from typing import Any

# ---------------------------------------------------------------- the paused clock


class PausedSelector(selectors.DefaultSelector):
    """Waits for sockets, but never for time: it moves its own clock instead."""

    now = 0  # ms

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:  # no timer is pending
            if len(self.get_map()) == 1:  # only the loop's own wake-up socket
                raise RuntimeError("deadlock: no timer or socket can wake any task")
            return super().select()
        if timeout <= 0:  # a task can run: the sockets wait, and so does the clock
            return []
        ready = super().select(0)
        # Tokio's timer wheel has levels of 64 slots. A deadline beyond the slots of
        # the lowest level first wakes the loop where its coarser slot begins.
        due = self.now + round(timeout * 1000)
        level = (((self.now ^ due) | 63).bit_length() - 1) // 6
        self.now = due >> 6 * level << 6 * level
        return ready


class PausedTimer(asyncio.TimerHandle):
    """A timer that goes off after those set before it for the same millisecond."""

    rank: int
    _scheduled: bool

    def __lt__(self, other: "PausedTimer") -> bool:  # type: ignore[override]
        return self.rank < other.rank


class PausedLoop(asyncio.SelectorEventLoop):
    """An event loop under the paused clock. It does not see threads: use none."""

    _scheduled: list[asyncio.TimerHandle]
    _clock_resolution: float

    def __init__(self) -> None:
        self.clock = PausedSelector()
        self.timers_set = 0
        super().__init__(self.clock)
        self._clock_resolution = 0.0005  # s: what is due within half a ms is due

    def time(self) -> float:
        return self.clock.now / 1000

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        # Up to the next whole millisecond, but not for the noise of a float sum.
        due = math.ceil(when * 1000 * (1 - 2**-48))
        timer = PausedTimer(due / 1000, callback, args, self, context)
        self.timers_set += 1
        timer.rank = (due << 64) + self.timers_set
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer


def run_paused(main: Coroutine[Any, Any, Any]) -> Any:
    """Run `main` like asyncio.run, under the paused clock; return its result."""
    with asyncio.Runner(loop_factory=PausedLoop) as runner:
        return runner.run(main)
