"""The connection pool with other callers than its scenarios."""

import asyncio
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripts import load_script

STAGE_2 = load_script("workshops/p18/stage2.py")
STAGE_3 = load_script("workshops/p18/stage3.py")
WAITING = pytest.mark.parametrize("stage", [STAGE_2, STAGE_3], ids=["stage2", "stage3"])


def now() -> int:
    return round(asyncio.get_running_loop().time() * 1000)


async def check_whole(pool: Any, size: int) -> None:
    """Fail unless `size` connections can be held at once, and not one more.

    With a slot lost, the paused clock raises its deadlock error.
    """
    held = [await pool.get() for _ in range(size)]
    assert len({conn.id for conn in held}) == size
    one_more = asyncio.create_task(pool.get())
    await asyncio.sleep(0.001)
    assert not one_more.done()
    one_more.cancel()
    await asyncio.wait([one_more])
    for conn in held:
        conn.release()
    idle = [conn.id for conn in pool.idle]
    assert sorted(idle) == sorted(set(idle))
    assert len(idle) == size
    if isinstance(pool, STAGE_3.Pool):
        assert pool.slots.free == size


def given_back(conn: int) -> AbstractContextManager[object]:
    return pytest.raises(RuntimeError, match=f"^conn {conn} has been given back$")


async def hold(pool: Any, ms: int, served: list[Any], name: Any) -> None:
    with await pool.get():
        served.append(name)
        await asyncio.sleep(ms / 1000)


# One loan


@pytest.mark.parametrize("number", [1, 2, 3])
def test_connections_are_created_on_demand_and_the_last_returned_is_lent_first(
    number: int,
) -> None:
    stage = load_script(f"workshops/p18/stage{number}.py")

    async def main() -> None:
        pool = stage.Pool(3)
        assert pool.created == 0
        a, b, c = [await pool.get() for _ in range(3)]
        assert [a.id, b.id, c.id] == [0, 1, 2]
        for conn in (b, a, c):
            conn.release()
        assert [conn.id for conn in pool.idle] == [1, 0, 2]
        assert [(await pool.get()).id for _ in range(3)] == [2, 0, 1]
        assert pool.created == 3

    asyncio.run(main())


@WAITING
def test_the_connection_comes_back_when_the_block_raises(stage: ModuleType) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        with pytest.raises(ZeroDivisionError), await pool.get():
            raise ZeroDivisionError
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
def test_the_connection_comes_back_when_the_task_is_cancelled_in_the_block(
    stage: ModuleType,
) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        task = asyncio.create_task(hold(pool, 100, [], "cancelled"))
        await asyncio.sleep(0.050)
        task.cancel()
        with await pool.get() as conn:
            assert (conn.id, now()) == (0, 50)
        assert task.cancelled()
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
def test_an_inner_loan_that_never_comes_gives_the_outer_one_back(
    stage: ModuleType,
) -> None:
    async def main() -> None:
        pool = stage.Pool(2)
        with await pool.get():

            async def two_at_once() -> None:
                with await pool.get(), await pool.get():
                    raise AssertionError("the pool has two")

            task = asyncio.create_task(two_at_once())
            await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
        await check_whole(pool, 2)

    stage.run_paused(main())


@WAITING
def test_a_loan_cannot_be_used_after_it_was_given_back(stage: ModuleType) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        with await pool.get() as stale:
            pass
        with await pool.get() as conn:
            # It is the same connection, but no longer that caller's.
            assert conn.id == 0
            with given_back(0):
                _ = stale.id
            with given_back(0), stale:
                raise AssertionError("the block must not run")
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
def test_giving_back_twice_does_nothing(stage: ModuleType) -> None:
    async def main() -> None:
        pool = stage.Pool(2)
        with await pool.get() as conn:
            conn.release()
            conn.release()
        with await pool.get():
            conn.release()  # nor does it take the connection from its next borrower
            assert pool.idle == []
        await check_whole(pool, 2)

    stage.run_paused(main())


# The queue


@WAITING
def test_waiters_are_served_in_the_order_they_came(stage: ModuleType) -> None:
    async def main() -> list[int]:
        pool = stage.Pool(2)
        served: list[int] = []
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(hold(pool, 10, served, number))
        assert now() == 250
        await check_whole(pool, 2)
        return served

    assert stage.run_paused(main()) == list(range(50))


@WAITING
def test_a_newcomer_does_not_overtake_a_woken_waiter(stage: ModuleType) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        served: list[str] = []
        conn = await pool.get()
        async with asyncio.TaskGroup() as group:
            group.create_task(hold(pool, 10, served, "waiter"))
            await asyncio.sleep(0.001)
            conn.release()
            # The waiter has the slot now, but has not run yet. Who released asks again
            # without a pause.
            await hold(pool, 10, served, "newcomer")
        assert served == ["waiter", "newcomer"]
        assert now() == 21
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
def test_a_slot_that_two_waiters_could_take_goes_to_one(stage: ModuleType) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        served: list[int] = []
        conn = await pool.get()
        tasks = [asyncio.create_task(hold(pool, 10, served, n)) for n in range(3)]
        await asyncio.sleep(0.001)
        conn.release()
        await asyncio.sleep(0.001)
        assert served == [0]
        await asyncio.wait(tasks)
        assert served == [0, 1, 2]
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
@pytest.mark.parametrize("cancelled", [0, 1, 2])
def test_a_waiter_that_is_cancelled_leaves_the_queue(
    stage: ModuleType, cancelled: int
) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        served: list[int] = []
        with await pool.get():
            tasks = [asyncio.create_task(hold(pool, 10, served, n)) for n in range(3)]
            await asyncio.sleep(0.001)
            tasks[cancelled].cancel()
            await asyncio.sleep(0.001)
        await asyncio.wait(tasks)
        assert served == [number for number in range(3) if number != cancelled]
        assert now() == 22
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
@pytest.mark.parametrize("others", [0, 1, 3])
@pytest.mark.parametrize("first", ["release", "cancel"])
def test_release_and_cancellation_at_once(
    stage: ModuleType, first: str, others: int
) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        served: list[Any] = []
        conn = await pool.get()
        waiter = asyncio.create_task(hold(pool, 10, served, "waiter"))
        tasks = [asyncio.create_task(hold(pool, 10, served, n)) for n in range(others)]
        await asyncio.sleep(0.001)
        steps = [conn.release, waiter.cancel]
        for step in steps if first == "release" else reversed(steps):
            step()
        await asyncio.wait([waiter, *tasks])
        # The slot goes back, to the next in the queue if there is one.
        assert waiter.cancelled()
        assert served == list(range(others))
        assert now() == 1 + 10 * others
        await check_whole(pool, 1)

    stage.run_paused(main())


@WAITING
@pytest.mark.parametrize("passes", range(6))
def test_a_slot_is_not_lost_wherever_the_cancellation_lands(
    stage: ModuleType, passes: int
) -> None:
    """It comes `passes` passes of the event loop after the slot was handed over."""

    async def main() -> None:
        pool = stage.Pool(1)
        served: list[str] = []
        conn = await pool.get()
        waiter = asyncio.create_task(hold(pool, 10, served, "waiter"))
        following = asyncio.create_task(hold(pool, 10, served, "following"))
        await asyncio.sleep(0.001)
        conn.release()
        for _ in range(passes):
            await asyncio.sleep(0)
        waiter.cancel()
        await asyncio.wait([waiter, following])
        assert waiter.cancelled()
        assert served in (["following"], ["waiter", "following"])
        assert now() == 11
        await check_whole(pool, 1)

    stage.run_paused(main())


# Time limits


async def release_at_50(pool: Any, first: bool) -> None:
    """Hold a connection until 50 ms; its timer is the `first` for that time or not."""
    with await pool.get():
        if not first:
            await asyncio.sleep(0.002)
        await asyncio.sleep((50 - now()) / 1000)


async def give_up_at_50(pool: Any) -> int | None:
    """Ask at 1 ms with a limit of 49 ms; return the connection's id, None without."""
    await asyncio.sleep(0.001)
    try:
        with await pool.get_timeout(0.049) as conn:
            assert now() == 50
            await asyncio.sleep(0.010)
            return int(conn.id)
    except TimeoutError:
        assert now() == 50
        return None


@pytest.mark.parametrize(("release_first", "given"), [(True, 0), (False, None)])
def test_release_and_time_limit_in_one_millisecond(
    release_first: bool, given: int | None
) -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(release_at_50(pool, release_first))
            caller = group.create_task(give_up_at_50(pool))
        assert caller.result() == given
        assert (pool.slots.free, pool.created) == (1, 1)
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())


@pytest.mark.parametrize(("release_first", "served_at"), [(True, 60), (False, 50)])
def test_the_next_in_the_queue_is_served_when_the_first_has_its_slot_or_gave_up(
    release_first: bool, served_at: int
) -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        async with asyncio.TaskGroup() as group:
            group.create_task(release_at_50(pool, release_first))
            group.create_task(give_up_at_50(pool))
            await asyncio.sleep(0.003)
            with await pool.get():
                assert now() == served_at
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())


@WAITING
@pytest.mark.parametrize("release_first", [True, False])
def test_the_time_limit_of_asyncio_loses_no_slot_in_that_millisecond_either(
    stage: ModuleType, release_first: bool
) -> None:
    async def main() -> None:
        pool = stage.Pool(1)
        served: list[str] = []

        async def limited() -> None:
            await asyncio.sleep(0.001)
            async with asyncio.timeout(0.049):
                await hold(pool, 10, served, "limited")

        async with asyncio.TaskGroup() as group:
            group.create_task(release_at_50(pool, release_first))
            caller = asyncio.create_task(limited())
            await asyncio.sleep(0.001)
            group.create_task(hold(pool, 10, served, "following"))
        assert isinstance(caller.exception(), TimeoutError)
        assert served == ["following"]
        assert now() == 60
        await check_whole(pool, 1)

    stage.run_paused(main())


def test_limit_and_cancellation_in_one_millisecond() -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        with await pool.get():
            caller = asyncio.create_task(pool.get_timeout(0.050))
            await asyncio.sleep(0.001)
            await asyncio.sleep(0.049)
            caller.cancel()
            await asyncio.wait([caller])
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())


@pytest.mark.parametrize("seconds", [0, -1])
def test_get_timeout_0_does_not_wait(seconds: int) -> None:
    pool = STAGE_3.Pool(1)
    with pytest.raises(StopIteration) as got:
        pool.get_timeout(seconds).send(None)  # it ends without giving way once
    with pytest.raises(TimeoutError):
        pool.get_timeout(seconds).send(None)
    assert pool.slots.free == 0
    got.value.value.release()
    assert pool.slots.free == 1


def test_get_timeout_0_finds_the_slot_that_no_woken_waiter_needs() -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(2)
        held = [await pool.get() for _ in range(2)]
        async with asyncio.TaskGroup() as group:
            group.create_task(hold(pool, 10, [], "waiter"))
            await asyncio.sleep(0.001)
            for conn in held:
                conn.release()
            # asyncio.Semaphore calls itself locked here, until the waiter has run.
            with await pool.get_timeout(0), pytest.raises(TimeoutError):
                await pool.get_timeout(0)
        await check_whole(pool, 2)

    STAGE_3.run_paused(main())


def test_callers_that_give_up_leave_nothing_behind() -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        served: list[str] = []
        with await pool.get():
            last = asyncio.create_task(hold(pool, 1, served, "last"))
            for _ in range(100):
                with pytest.raises(TimeoutError):
                    await pool.get_timeout(0.003)
            assert now() == 300
            assert len(pool.slots._waiters) == 1
            assert pool.slots.free == 0
        await last
        assert pool.created == 1
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())


# Broken connections


def test_a_discarded_connection_is_replaced_when_one_is_needed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        with await pool.get() as conn:
            conn.discard()
            assert (pool.slots.free, pool.idle, pool.created) == (1, [], 1)
        assert (pool.slots.free, pool.idle, pool.created) == (1, [], 1)
        with await pool.get() as conn:
            assert (conn.id, pool.created) == (1, 2)
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())
    assert capsys.readouterr().out == "  discarding broken conn 0\n"


def test_discard_hands_the_slot_to_the_next_in_the_queue() -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        broken = await pool.get()
        caller = asyncio.create_task(pool.get_timeout(0.010))
        await asyncio.sleep(0.005)
        broken.discard()
        with await caller as conn:
            assert (conn.id, now()) == (1, 5)
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())


@pytest.mark.parametrize("end", ["release", "discard"])
def test_discard_is_too_late_after_giving_back(end: str) -> None:
    async def main() -> None:
        pool = STAGE_3.Pool(1)
        conn = await pool.get()
        getattr(conn, end)()
        with given_back(0):
            conn.discard()
        conn.release()
        await check_whole(pool, 1)

    STAGE_3.run_paused(main())


# Any program


@dataclass
class Caller:
    start: int  # ms
    limit: int | None  # ms
    hold: int  # ms
    end: Literal["block", "release", "raise", "discard"]
    cancel: int | None  # ms
    cancelled_by: Literal["task", "timer"]


few_ms = st.integers(0, 5)  # so few that most things happen at the same time
callers = st.builds(
    Caller,
    start=few_ms,
    limit=st.none() | few_ms,
    hold=few_ms,
    end=st.sampled_from(["block", "release", "raise", "discard"]),
    cancel=st.none() | st.integers(0, 12),
    cancelled_by=st.sampled_from(["task", "timer"]),
)


class Witness:
    """Runs callers on a pool; checks at each of their steps what has to hold."""

    def __init__(self, pool: Any, size: int) -> None:
        self.pool = pool
        self.size = size
        self.arrived = 0
        self.served: list[tuple[int, int]] = []  # arrival, ms
        self.queued: list[int] = []  # arrival
        self.lent: list[int] = []
        self.discarded: list[int] = []

    def check(self) -> None:
        idle = [conn.id for conn in self.pool.idle]
        assert self.pool.slots.free >= 0
        assert self.pool.slots.free + len(self.lent) <= self.size
        # Each connection that was created is in one place, and only one.
        known = sorted([*idle, *self.lent, *self.discarded])
        assert known == list(range(self.pool.created))

    async def run(self, caller: Caller) -> None:
        await asyncio.sleep(caller.start / 1000)
        arrival = self.arrived
        self.arrived += 1
        full = self.pool.slots.free == 0
        try:
            if caller.limit is None:
                conn = await self.pool.get()
            else:
                conn = await self.pool.get_timeout(caller.limit / 1000)
        except TimeoutError:
            assert caller.limit is not None
            assert now() == caller.start + caller.limit
            assert self.pool.slots.free == 0
            return
        with conn:
            self.served.append((arrival, now()))
            # A time limit that ends in the millisecond of the slot has woken its caller
            # already. That one may run before another that has its slot, too.
            if full and (caller.limit is None or now() < caller.start + caller.limit):
                self.queued.append(arrival)
            self.lent.append(conn.id)
            self.check()
            try:
                await asyncio.sleep(caller.hold / 1000)
                assert conn.id in self.lent
            finally:
                self.lent.remove(conn.id)
                if caller.end == "discard":
                    self.discarded.append(conn.id)
                    conn.discard()
                elif caller.end == "release":
                    conn.release()
            if caller.end == "raise":
                raise ZeroDivisionError
        self.check()


async def cancel_later(task: asyncio.Task[None], ms: int) -> None:
    await asyncio.sleep(ms / 1000)
    task.cancel()


async def any_program(size: int, callers: list[Caller]) -> None:
    pool = STAGE_3.Pool(size)
    witness = Witness(pool, size)
    loop = asyncio.get_running_loop()
    tasks: list[asyncio.Task[None]] = []
    cancellers = []
    for caller in callers:
        task = asyncio.create_task(witness.run(caller))
        tasks.append(task)
        if caller.cancel is None:
            continue
        if caller.cancelled_by == "timer":
            loop.call_later(caller.cancel / 1000, task.cancel)
        else:
            cancellers.append(asyncio.create_task(cancel_later(task, caller.cancel)))
    results = await asyncio.gather(*tasks, *cancellers, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(
            result, asyncio.CancelledError | ZeroDivisionError
        ):
            raise result

    assert witness.lent == []
    assert pool.slots.free == size
    witness.check()
    # Nobody overtakes: who came later is not served at an earlier millisecond, and
    # those who had to wait are served one after the other.
    times = [ms for _, ms in sorted(witness.served)]
    assert times == sorted(times)
    assert witness.queued == sorted(witness.queued)
    await check_whole(pool, size)


@given(st.integers(1, 3), st.lists(callers, max_size=8))
@settings(deadline=None, max_examples=300)
def test_any_program_keeps_the_pool_whole(size: int, callers: list[Caller]) -> None:
    STAGE_3.run_paused(any_program(size, callers))


# Many callers


@WAITING
def test_a_hundred_thousand_loans(stage: ModuleType) -> None:
    async def caller(pool: Any) -> None:
        for _ in range(100):
            with await pool.get():
                await asyncio.sleep(0.001)

    async def main() -> None:
        pool = stage.Pool(10)
        async with asyncio.TaskGroup() as group:
            for _ in range(1_000):
                group.create_task(caller(pool))
        assert now() == 10_000
        assert pool.created == 10
        await check_whole(pool, 10)

    stage.run_paused(main())
