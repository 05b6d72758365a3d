"""Stage 2: callers wait for a connection

Five tasks share two connections. Whoever finds both of them lent waits until one comes
back. Callers are served in the order in which they came.

New since stage 1: the paused clock, so that the times are exact, and tasks that hold
their connections for a while. The pool itself is the same: its semaphore makes them
wait. Giving back prints nothing any more.

Look for: tasks 2 to 4 start when another task is done, with the connection that it
gave back. Two connections were enough for five tasks.
"""

import asyncio
import heapq
import math
import selectors
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Self

SIZE = 2
TASKS = 5


@dataclass(frozen=True)
class Conn:
    """An expensive connection. Here it is only a number."""

    id: int


class PooledConn:
    """A connection on loan. It goes back at the end of a `with` block, or by release.

    To use it after that raises RuntimeError: it may be lent to somebody else by then.
    """

    def __init__(self, conn: Conn, pool: "Pool") -> None:
        self._conn = conn
        self._pool = pool
        self._given_back = False

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    @property
    def id(self) -> int:
        self._check()
        return self._conn.id

    def release(self) -> None:
        """Give the connection back. A second call does nothing."""
        if self._given_back:
            return
        self._given_back = True
        # The connection goes first: whoever is given the slot has to find it idle.
        self._pool.idle.append(self._conn)
        self._pool.slots.release()

    def _check(self) -> None:
        if self._given_back:
            raise RuntimeError(f"conn {self._conn.id} has been given back")


class Pool:
    """Lends up to `size` connections, and creates one only if none is idle."""

    def __init__(self, size: int) -> None:
        self.slots = asyncio.Semaphore(size)
        self.idle: list[Conn] = []  # the one that came back last is at the end
        self.created = 0

    async def get(self) -> PooledConn:
        """Borrow a connection. While all of them are lent, wait for one."""
        await self.slots.acquire()
        return self._lend()

    def _lend(self) -> PooledConn:
        # The caller has taken a slot. Nothing from here to its `with` block awaits, so
        # no cancellation can come in between and lose it.
        if self.idle:
            return PooledConn(self.idle.pop(), self)
        self.created += 1
        return PooledConn(Conn(self.created - 1), self)


def elapsed() -> int:
    """Return the time since the start in ms. The paused clock begins at 0."""
    return round(asyncio.get_running_loop().time() * 1000)


async def use(pool: Pool, number: int) -> None:
    """Borrow a connection for 100 ms, plus 10 ms for each task before this one."""
    with await pool.get() as conn:
        print(f"[{elapsed():>3} ms] task {number} uses conn {conn.id}")
        await asyncio.sleep((100 + 10 * number) / 1000)


async def main() -> None:
    pool = Pool(SIZE)
    async with asyncio.TaskGroup() as group:
        for number in range(TASKS):
            group.create_task(use(pool, number))
    print(f"created: {pool.created}")


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


if __name__ == "__main__":
    run_paused(main())
