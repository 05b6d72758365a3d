"""The paused clock: exact times, order of ties, sockets, and nothing to wait for."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Coroutine
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stages.paused_clock import PausedSelector, run_paused


def elapsed_ms(work: Coroutine[Any, Any, object]) -> int:
    """Run `work` under a fresh paused clock; return when it ended, in whole ms."""

    async def timed() -> float:
        await work
        return asyncio.get_running_loop().time()

    ended: float = run_paused(timed())
    ms = round(ended * 1000)
    assert ended == ms / 1000  # exactly: the clock has no other times
    return ms


async def sleeps(*delays: float) -> None:
    for delay in delays:
        await asyncio.sleep(delay)


def test_1000_sleeps_of_a_tenth_end_at_exactly_100_s() -> None:
    assert elapsed_ms(sleeps(*[0.1] * 1000)) == 100_000


def test_a_million_ms_in_sevenths_of_a_second_are_exact() -> None:
    # 1/7 s is 142.857… ms: each wait ends on the next whole millisecond.
    assert elapsed_ms(sleeps(*[1 / 7] * 7000)) == 143 * 7000


@pytest.mark.parametrize("days", [1, 195, 20_000])
def test_sums_stay_exact_after_days(days: int) -> None:
    day = 24 * 60 * 60
    assert elapsed_ms(sleeps(*[day] * days, 0.1, 0.001)) == (days * day) * 1000 + 101


@pytest.mark.parametrize(
    ("delay", "ms"),
    [(0, 0), (-1, 0), (1e-9, 1), (0.0004, 1), (0.0005, 1), (0.001, 1), (0.0011, 2)],
)
def test_a_wait_ends_on_the_first_whole_ms_at_or_after_its_deadline(
    delay: float, ms: int
) -> None:
    assert elapsed_ms(sleeps(delay)) == ms
    assert elapsed_ms(sleeps(10, delay)) == 10_000 + ms


def test_a_sleep_without_end_is_refused() -> None:
    with pytest.raises(OverflowError):
        run_paused(asyncio.sleep(float("inf")))


def test_no_real_time_passes() -> None:
    before = time.monotonic()
    assert elapsed_ms(sleeps(3600)) == 3_600_000
    assert time.monotonic() - before < 60  # an hour would be 3,600


def test_equal_deadlines_fire_in_the_order_they_were_set() -> None:
    order: list[int] = []

    async def sleeper(number: int) -> None:
        await asyncio.sleep(1)
        order.append(number)

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(200):
                group.create_task(sleeper(number))

    run_paused(main())
    assert order == list(range(200))


def test_deadlines_that_become_equal_by_rounding_keep_their_order_too() -> None:
    order: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_at(0.0029, order.append, "set first")
        loop.call_at(0.0021, order.append, "set second")
        await asyncio.sleep(0.003)

    run_paused(main())
    assert order == ["set first", "set second"]


def test_all_timers_of_one_ms_fire_before_a_task_they_wake_runs() -> None:
    order: list[str] = []

    async def sleeper() -> None:
        await asyncio.sleep(0.005)
        order.append("task")

    async def main() -> None:
        task = asyncio.create_task(sleeper())
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_later(0.005, order.append, "timer")
        await task

    run_paused(main())
    assert order == ["timer", "task"]


def test_a_cancelled_timer_neither_fires_nor_moves_the_clock() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        for ms in range(1, 500):  # enough for asyncio to sort its heap anew
            loop.call_later(ms / 1000, pytest.fail, "cancelled").cancel()
        await asyncio.sleep(0.7)
        return loop.time()

    assert run_paused(main()) == 0.7


def test_a_timer_set_from_a_callback_counts_from_the_callback() -> None:
    times: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()

        def first() -> None:
            times.append(loop.time())
            loop.call_later(0.25, lambda: times.append(loop.time()))

        loop.call_later(0.1, first)
        await asyncio.sleep(1)

    run_paused(main())
    assert times == [0.1, 0.35]


def test_a_timeout_around_a_wait_ends_at_its_limit() -> None:
    async def main() -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.03):
                await asyncio.sleep(5)
        async with asyncio.timeout(5):
            await asyncio.sleep(0.03)

    assert elapsed_ms(main()) == 60


def test_time_stands_still_while_a_task_can_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_later(0.001, lambda: None)
        for _ in range(1000):
            await asyncio.sleep(0)

    assert elapsed_ms(main()) == 0


# Sockets: looked at only when no task can run, once for each move of the clock.


async def echo_once() -> None:
    """One request and its answer over a socket pair of its own."""

    async def answer(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        writer.write(await reader.readline())
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
    writer.write(b"hello\n")
    assert await reader.read() == b"hello\n"
    writer.close()
    await writer.wait_closed()
    server.close()


def test_sockets_without_a_timer_cost_no_virtual_time() -> None:
    assert elapsed_ms(echo_once()) == 0


def test_each_look_at_the_sockets_moves_the_clock_to_the_next_wake_up() -> None:
    times: list[float] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        near, far = socket.socketpair()
        with near, far:
            near.setblocking(False)
            far.setblocking(False)
            timer = loop.call_later(0.7, lambda: None)
            for _ in range(2):
                received = asyncio.create_task(loop.sock_recv(near, 1))
                await asyncio.sleep(0)  # the task has begun to wait for the socket
                far.send(b".")
                assert await received == b"."
                times.append(loop.time())
            timer.cancel()

    run_paused(main())
    # 700 = 10 * 64 + 60: the first look ends where the slot of 64 ms begins.
    assert times == [0.64, 0.7]


@pytest.mark.parametrize(
    ("now", "due", "wakes"),
    [
        (0, 63, [63]),
        (0, 64, [64]),
        (0, 65, [64, 65]),
        (26, 326, [320, 326]),
        (0, 4095, [4032, 4095]),
        (0, 4097, [4096, 4097]),
        (1, 300_000, [262_144, 299_008, 299_968, 300_000]),
    ],
)
def test_the_wheel_wakes_where_the_coarser_slot_of_a_deadline_begins(
    now: int, due: int, wakes: list[int]
) -> None:
    clock = PausedSelector()
    clock.now = now
    seen = []
    while clock.now < due:
        clock.select((due - clock.now) / 1000)
        seen.append(clock.now)
    clock.close()
    assert seen == wakes


def test_when_nothing_can_wake_a_task_the_clock_says_so() -> None:
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match=r"^deadlock: no timer or socket can wake"):
        run_paused(main())


def test_a_deadlock_is_seen_after_the_last_timer_too() -> None:
    cleaned_up = []

    async def main() -> None:
        try:
            await asyncio.sleep(5)
            await asyncio.Queue[int]().get()
        finally:
            cleaned_up.append(asyncio.get_running_loop().time())

    with pytest.raises(RuntimeError, match="deadlock"):
        run_paused(main())
    assert cleaned_up == [5]


def test_the_loop_is_closed_and_the_result_returned() -> None:
    async def main() -> str:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.Event().wait(), 1)
        return "result"

    assert run_paused(main()) == "result"


# A tree: how long to sleep, then the children to run, in a row or side by side.
Tree = tuple[int, bool, list[Any]]
trees: st.SearchStrategy[Tree] = st.recursive(
    st.tuples(st.integers(0, 2000), st.booleans(), st.just([])),
    lambda children: st.tuples(
        st.integers(0, 2000), st.booleans(), st.lists(children, max_size=4)
    ),
    max_leaves=30,
)


def arithmetic(tree: Tree) -> int:
    ms, side_by_side, children = tree
    lengths = [arithmetic(child) for child in children]
    return ms + (max(lengths, default=0) if side_by_side else sum(lengths))


async def grow(tree: Tree) -> None:
    ms, side_by_side, children = tree
    await asyncio.sleep(ms / 1000)
    if side_by_side:
        async with asyncio.TaskGroup() as group:
            for child in children:
                group.create_task(grow(child))
    else:
        for child in children:
            await grow(child)


@given(trees)
@settings(deadline=None)
def test_random_trees_of_sleeping_tasks_end_when_arithmetic_says(tree: Tree) -> None:
    assert elapsed_ms(grow(tree)) == arithmetic(tree)
