"""Stage 1: a loan that gives itself back

A connection is expensive to open, so a pool keeps those it has and lends them out. What
is lent has to come back, whatever happens to the one who borrowed it.

`await pool.get()` gives a `PooledConn`, which is a context manager: at the end of its
block the connection goes back to the idle list and its slot becomes free. The slots are
a semaphore: they bound how many connections there can be.

Look for: conn 0 is lent a second time, since an idle connection is used before one is
created. The second is created only when two are held at once. Blocks end from the
inside to the outside, so conn 1 goes back first.
"""

import asyncio
from dataclasses import dataclass
from typing import Self

SIZE = 2


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
        print(f"  returning conn {self._conn.id}")
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


async def main() -> None:
    pool = Pool(SIZE)
    with await pool.get() as first:
        print(f"got conn {first.id}")
    with await pool.get() as second, await pool.get() as third:
        print(f"got conn {second.id} and conn {third.id}")
        print(f"created: {pool.created}")


if __name__ == "__main__":
    asyncio.run(main())
