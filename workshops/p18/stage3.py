"""Stage 3: time limits and broken connections

A caller may have no time to wait until somebody is done. And a connection may break
while it is lent; then the next caller must not get it. This is the full program.

New since stage 2: `get_timeout` waits for a limited time, and `discard` gives back the
slot without the connection. `Slots` replaces the semaphore. It takes the time limit,
says how many slots are free, and decides what happens when the time is over in the
very millisecond in which a slot comes back.

Look for: both connections come back at 200 ms, conn 0 first. The caller that waits is
handed the slot of conn 0, but takes the connection from the top of the idle list, and
that is conn 1. It discards conn 1. Yet `created` stays at 2, because conn 0 is idle.
"""

import asyncio
import heapq
import math
import selectors
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, Self

SIZE = 2
HOLD = 200  # ms


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

    def discard(self) -> None:
        """Give the slot back, but throw the connection away because it is broken."""
        self._check()
        print(f"  discarding broken conn {self._conn.id}")
        self._given_back = True
        self._pool.slots.release()

    def _check(self) -> None:
        if self._given_back:
            raise RuntimeError(f"conn {self._conn.id} has been given back")


class Slots:
    """A semaphore that takes a time limit. It serves callers in the order they came.

    `free` slots are free. While a caller waits there are none: a slot that is released
    is handed to the first in the queue, so that no newcomer can take it.
    """

    def __init__(self, size: int) -> None:
        self.free = size
        self._waiters: deque[asyncio.Future[None]] = deque()

    async def acquire(self, timeout: float | None = None) -> None:
        """Take a slot, or wait for one: for `timeout` seconds, or without a limit.

        Raises TimeoutError if no slot was handed over in that time.
        """
        if self.free > 0:
            self.free -= 1
            return
        if timeout is not None and timeout <= 0:
            raise TimeoutError
        turn = asyncio.get_running_loop().create_future()
        self._waiters.append(turn)
        # asyncio.timeout around a semaphore ends the wait when the timer goes off, also
        # if a holder that was due before it, in the same millisecond, has not had its
        # chance to run. Here the timer only wakes the caller, and that holder runs
        # first. Then the caller looks for itself: a slot that has come by then counts.
        try:
            await asyncio.wait([turn], timeout=timeout)
            if not turn.done():
                raise TimeoutError
        except BaseException:
            if turn.done():
                self.release()  # it came together with a cancellation: pass it on
            else:
                self._waiters.remove(turn)
            raise

    def release(self) -> None:
        """Hand a slot to the caller that has waited longest, or else set it free."""
        if self._waiters:
            self._waiters.popleft().set_result(None)
        else:
            self.free += 1


class Pool:
    """Lends up to `size` connections, and creates one only if none is idle."""

    def __init__(self, size: int) -> None:
        self.slots = Slots(size)
        self.idle: list[Conn] = []  # the one that came back last is at the end
        self.created = 0

    async def get(self) -> PooledConn:
        """Borrow a connection. While all of them are lent, wait for one."""
        await self.slots.acquire()
        return self._lend()

    async def get_timeout(self, timeout: float) -> PooledConn:
        """Borrow a connection, or raise TimeoutError after `timeout` seconds."""
        await self.slots.acquire(timeout)
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


async def hold(pool: Pool) -> None:
    """Borrow a connection for HOLD ms."""
    with await pool.get():
        await asyncio.sleep(HOLD / 1000)


async def main() -> None:
    pool = Pool(SIZE)
    async with asyncio.TaskGroup() as holders:
        for _ in range(SIZE):
            holders.create_task(hold(pool))
        await asyncio.sleep(0.001)  # so that the holders borrow first

        try:
            with await pool.get_timeout(0.050):
                print(f"[{elapsed():>3} ms] get_timeout(50 ms): got one")
        except TimeoutError:
            print(f"[{elapsed():>3} ms] get_timeout(50 ms): gave up")

        with await pool.get_timeout(0.500) as conn:
            print(f"[{elapsed():>3} ms] get_timeout(500 ms): conn {conn.id}")
            conn.discard()

        with await pool.get() as conn:
            print(f"after discard: conn {conn.id}, created {pool.created}")
            print(f"free slots while held: {pool.slots.free}")


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
