"""The supervised actor with other messages, limits and callers than its scenarios."""

import asyncio
import gc
from collections.abc import Awaitable, Coroutine, Sequence
from contextlib import suppress
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scripts import ROOT, load_script

STAGE_3 = load_script("workshops/p20/stage3.py")
STOPPED = 'Err("actor stopped")'
NO_REPLY = 'Err("no reply")'
EVERY_STAGE = pytest.mark.parametrize("number", [1, 2, 3])
DAY = 24 * 60 * 60 * 1000  # ms


@pytest.fixture
def stage() -> ModuleType:
    """Stage 3, as a module of its own, so that a test can give it another actor."""
    return load_script("workshops/p20/stage3.py")


def load(number: int) -> ModuleType:
    return load_script(f"workshops/p20/stage{number}.py")


def run(stage: ModuleType, main: Coroutine[Any, Any, None]) -> None:
    """Run `main` under the stage's clock. Fail if asyncio has an error to report.

    Errors that nobody fetched are reported when their task or future goes away, so the
    garbage collector runs before the loop is closed.
    """
    reports: list[dict[str, Any]] = []

    async def watched() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, report: reports.append(report))
        await main
        gc.collect()

    with asyncio.Runner(
        loop_factory=getattr(stage, "PausedLoop", asyncio.SelectorEventLoop)
    ) as runner:
        runner.run(watched())
    assert reports == []


def start(stage: ModuleType, limit: int = 3) -> Any:
    return stage.start(limit) if hasattr(stage, "MAX_RESTARTS") else stage.start()


async def stop(handle: Any, supervisor: asyncio.Task[Any]) -> None:
    """Stop an actor that runs. Fail if it did not run any more, or leaves a task."""
    assert not supervisor.done()
    handle.close()
    await supervisor
    assert len(asyncio.all_tasks()) == 1


def send(stage: ModuleType, *calls: Awaitable[int]) -> list[asyncio.Task[str]]:
    """Let each call wait in a task of its own. They start in the order of `calls`."""
    return [asyncio.create_task(stage.outcome(call)) for call in calls]


async def turn() -> None:
    """Let every task that can run come to its next wait. It takes 1 ms."""
    await asyncio.sleep(0.001)


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return capsys.readouterr().out.splitlines()


# The order of a crash: report, decision, caller


@pytest.mark.parametrize("turns", [0, 1, 2, 10])
@pytest.mark.parametrize("number", [2, 3])
def test_the_report_comes_before_the_caller_learns_however_late_the_supervisor_is(
    capsys: pytest.CaptureFixture[str], number: int, turns: int
) -> None:
    stage: Any = load(number)
    real_crashed = stage.crashed

    async def crashed(mailbox: Any) -> bool:
        result: bool = await real_crashed(mailbox)
        for _ in range(turns):
            await asyncio.sleep(0)
        return result

    stage.crashed = crashed
    run(stage, stage.main())
    golden = ROOT / f"tests/golden/p20/stage{number}.out"
    assert capsys.readouterr().out == golden.read_text()


@EVERY_STAGE
def test_no_reply_rests_on_an_object_going_away(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    stage: Any = load(number)
    kept: list[Any] = []
    real_fail = stage.Message.fail

    def fail(message: Any, error: Exception) -> None:
        kept.extend([message, error])
        real_fail(message, error)

    async def main() -> None:
        kept.extend(asyncio.all_tasks())
        await stage.main()
        kept.extend(asyncio.all_tasks())

    stage.Message.fail = fail
    gc.disable()
    try:
        run(stage, main())
    finally:
        gc.enable()
    golden = ROOT / f"tests/golden/p20/stage{number}.out"
    assert capsys.readouterr().out == golden.read_text()


def test_a_limit_of_zero_gives_up_at_the_first_crash(
    stage: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage, 0)
        await asyncio.sleep(5)
        assert await stage.outcome(handle.add(-2)) == "Ok(-2)"
        assert await stage.outcome(handle.boom()) == NO_REPLY
        assert await stage.outcome(handle.add(1)) == STOPPED
        assert await supervisor == 0

    run(stage, main())
    assert lines(capsys) == ["[5000 ms] actor panicked, giving up"]


def test_the_two_errors_are_two_types(stage: ModuleType) -> None:
    async def main() -> None:
        handle, _ = start(stage, 0)
        with pytest.raises(stage.NoReply, match=r"^no reply$"):
            await handle.boom()
        for call in (handle.add(1), handle.boom(), handle.call(stage.Add(1))):
            with pytest.raises(stage.ActorStopped, match=r"^actor stopped$"):
                await call

    run(stage, main())


# What waits in the mailbox


def expected_outcomes(calls: Sequence[int | None], limit: int) -> list[str]:
    """Say what comes of `calls`, which are numbers to add, or None for a boom."""
    outcomes = []
    total = crashes = 0
    for n in calls:
        if crashes > limit:
            outcomes.append(STOPPED)
        elif n is None:
            crashes += 1
            total = 0
            outcomes.append(NO_REPLY)
        else:
            total += n
            outcomes.append(f"Ok({total})")
    return outcomes


@settings(max_examples=100, deadline=None)
@given(
    calls=st.lists(st.none() | st.integers(-9, 9), max_size=30),
    limit=st.integers(0, 4),
)
def test_messages_behind_a_crash_are_handled_in_order_none_lost_none_twice(
    calls: list[int | None], limit: int
) -> None:
    stage = STAGE_3

    async def main() -> None:
        handle, supervisor = start(stage, limit)
        # All at once: with more than eight of them, the mailbox is full.
        callers = send(
            stage, *(handle.boom() if n is None else handle.add(n) for n in calls)
        )
        assert list(await asyncio.gather(*callers)) == expected_outcomes(calls, limit)
        crashes = sum(n is None for n in calls)
        handle.close()
        assert await supervisor == min(crashes, limit)
        waits = [100 << number for number in range(min(crashes, limit))]
        assert stage.elapsed() == sum(waits)

    run(stage, main())


def test_what_is_sent_during_the_wait_is_handled_after_it(
    stage: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        await handle.add(100)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        await asyncio.sleep(0.03)
        first = send(stage, handle.add(1), handle.add(2))
        await asyncio.sleep(0.03)
        second = send(stage, handle.add(4))
        results = await asyncio.gather(*first, *second)
        assert results == ["Ok(1)", "Ok(3)", "Ok(7)"]
        assert stage.elapsed() == 100
        await stop(handle, supervisor)

    run(stage, main())
    assert lines(capsys) == ["[  0 ms] actor panicked, restart 1 in 100ms"]


def test_giving_up_fails_all_that_wait_in_the_mailbox_and_in_front_of_it(
    stage: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    learned: list[int] = []

    async def caller(number: int, call: Awaitable[int]) -> str:
        result: str = await stage.outcome(call)
        learned.append(number)
        return result

    async def main() -> None:
        handle, supervisor = start(stage, 1)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        callers = [
            asyncio.create_task(
                caller(number, handle.add(1) if number else handle.boom())
            )
            for number in range(13)
        ]
        await asyncio.gather(*callers)
        results = [task.result() for task in callers]
        assert results == [NO_REPLY] + [STOPPED] * 12
        assert learned == list(range(13))
        assert await supervisor == 1
        assert stage.elapsed() == 100

    run(stage, main())
    assert lines(capsys) == [
        "[  0 ms] actor panicked, restart 1 in 100ms",
        "[100 ms] actor panicked, giving up",
    ]


@EVERY_STAGE
def test_the_mailbox_holds_eight_and_the_next_callers_wait_in_order(
    number: int,
) -> None:
    stage = load(number)

    async def main() -> None:
        mailbox = stage.Mailbox(8)
        got: list[int] = []
        callers = [asyncio.create_task(mailbox.put(stage.Add(n))) for n in range(12)]
        await turn()
        assert [task.done() for task in callers] == [True] * 8 + [False] * 4
        callers[9].cancel()  # it leaves, and its message with it
        async for message in mailbox:
            got.append(message.n)
            if len(got) == 1:
                # Room has been made, and the first that waits is about to be told so.
                callers.append(asyncio.create_task(mailbox.put(stage.Add(12))))
                callers[8].cancel()
                await turn()
            if len(got) == 11:
                break
        assert got == [0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12]
        for n in range(8):  # no room was lost
            async with asyncio.timeout(0.001):
                await mailbox.put(stage.Add(n))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await mailbox.put(stage.Add(8))

    run(stage, main())


@EVERY_STAGE
def test_a_closed_mailbox_turns_away_also_when_a_caller_leaves_meanwhile(
    number: int,
) -> None:
    stage = load(number)

    async def main() -> None:
        mailbox = stage.Mailbox(1)
        await mailbox.put(stage.Add(0))
        callers = [asyncio.create_task(mailbox.put(stage.Add(n))) for n in range(1, 6)]
        await turn()
        mailbox.close()
        callers[0].cancel()  # the one that is told first
        callers[2].cancel()
        await asyncio.wait(callers)
        assert [task.cancelled() for task in callers] == [True, False] * 2 + [False]
        for number in (1, 3, 4):
            assert isinstance(callers[number].exception(), stage.ActorStopped)
        assert [message.n async for message in mailbox] == [0]

    run(stage, main())


# Callers that leave


def test_a_caller_that_is_cancelled_leaves_the_actor_running(
    stage: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        gone, stays = send(stage, handle.add(10), handle.add(1))
        await turn()
        gone.cancel()
        assert await stays == "Ok(11)"  # the message was in the mailbox and stays there
        assert gone.cancelled()
        assert await stage.outcome(handle.add(1)) == "Ok(12)"
        await stop(handle, supervisor)

    run(stage, main())
    assert lines(capsys) == ["[  0 ms] actor panicked, restart 1 in 100ms"]


def test_a_caller_whose_time_is_over_in_the_millisecond_of_the_answer(
    stage: ModuleType,
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):  # as long as the wait of the supervisor
                await handle.add(10)
        assert stage.elapsed() == 100
        assert await stage.outcome(handle.add(1)) == "Ok(11)"
        await stop(handle, supervisor)

    run(stage, main())


def test_a_caller_that_waits_for_room_and_is_cancelled_takes_its_message_along(
    stage: ModuleType,
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        callers = send(stage, *(handle.add(1) for _ in range(8)))
        gone, stays = send(stage, handle.add(100), handle.add(1))
        await turn()
        gone.cancel()
        assert await stays == "Ok(9)"
        assert [await caller for caller in callers] == [f"Ok({n})" for n in range(1, 9)]
        await stop(handle, supervisor)

    run(stage, main())


@EVERY_STAGE
def test_a_reply_that_nobody_waits_for_harms_nothing(number: int) -> None:
    stage = load(number)

    async def main() -> None:
        handle, task = start(stage, 1)
        for call in (handle.boom(), handle.add(1)):
            [gone] = send(stage, call)
            await asyncio.sleep(0)  # it has sent its message
            gone.cancel()
            with suppress(asyncio.CancelledError):
                await gone
        if number == 1:
            await asyncio.wait([task])
            assert str(task.exception()) == "boom"
        else:
            assert await stage.outcome(handle.add(1)) == "Ok(2)"
            handle.close()
            await task

    run(stage, main())


@EVERY_STAGE
def test_a_message_that_no_one_ever_waited_for_fails_without_a_report(
    number: int,
) -> None:
    stage = load(number)

    async def main() -> None:
        mailbox = stage.Mailbox(8)
        for message in (stage.Boom(), stage.Add(1)):
            await mailbox.put(message)
        del message
        with pytest.raises(RuntimeError, match=r"^boom$"):
            await stage.actor(mailbox)
        mailbox.abandon()

    run(stage, main())


def test_an_answer_stays_valid_when_the_actor_crashes_after_it(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def actor(mailbox: Any) -> None:
        async for message in mailbox:
            message.answer(message.n)
            message.answer(0)  # too late: the first one counts
            raise ZeroDivisionError

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage)
        callers = send(stage, handle.add(7), handle.add(8))
        assert await asyncio.gather(*callers) == ["Ok(7)", "Ok(8)"]
        await stop(handle, supervisor)

    run(stage, main())
    assert lines(capsys) == [
        "[  0 ms] actor panicked, restart 1 in 100ms",
        "[100 ms] actor panicked, restart 2 in 200ms",
    ]


def test_a_message_that_the_actor_does_not_answer_gets_no_reply(stage: Any) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        # A message that the actor does not know.
        assert await stage.outcome(handle.call(stage.Message())) == NO_REPLY
        assert await stage.outcome(handle.add(1)) == "Ok(1)"
        await stop(handle, supervisor)

    run(stage, main())


# What is no crash


@EVERY_STAGE
def test_a_clean_stop_is_no_crash(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    stage = load(number)

    async def main() -> None:
        handle, task = start(stage)
        callers = send(stage, *(handle.add(n) for n in (1, 2, 3)))
        await turn()
        handle.close()
        handle.close()
        assert await task == (0 if number == 3 else None)
        assert [await caller for caller in callers] == ["Ok(1)", "Ok(3)", "Ok(6)"]
        assert await stage.outcome(handle.add(1)) == STOPPED
        assert len(asyncio.all_tasks()) == 1

    run(stage, main())
    assert lines(capsys) == []


def test_a_stop_during_the_wait_still_handles_what_is_in_the_mailbox(
    stage: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        callers = send(stage, *(handle.add(1) for _ in range(11)))
        await turn()
        handle.close()
        results = await asyncio.gather(*callers)
        assert results == [f"Ok({n})" for n in range(1, 9)] + [STOPPED] * 3
        assert await supervisor == 1
        assert stage.elapsed() == 100

    run(stage, main())
    assert lines(capsys) == ["[  0 ms] actor panicked, restart 1 in 100ms"]


def test_a_crash_after_the_stop_is_still_a_crash(
    stage: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage)
        callers = send(stage, handle.add(1), handle.boom(), handle.add(2))
        await asyncio.sleep(0)
        handle.close()
        assert await asyncio.gather(*callers) == ["Ok(1)", NO_REPLY, "Ok(2)"]
        assert await supervisor == 1

    run(stage, main())
    assert lines(capsys) == ["[  0 ms] actor panicked, restart 1 in 100ms"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_is_not_a_restart(
    stage: Any, capsys: pytest.CaptureFixture[str], error: type[BaseException]
) -> None:
    async def actor(mailbox: Any) -> None:
        async for _ in mailbox:
            raise error

    stage.actor = actor
    callers: list[asyncio.Task[str]] = []
    supervisors: list[asyncio.Task[int]] = []

    async def main() -> None:
        handle, supervisor = start(stage)
        supervisors.append(supervisor)
        callers.extend(send(stage, handle.add(1), handle.add(2)))
        await asyncio.gather(*callers)

    async def results() -> list[str]:
        return await asyncio.gather(*callers)

    with asyncio.Runner(loop_factory=stage.PausedLoop) as runner:
        # It leaves the loop at once. If the loop goes on nevertheless, it comes out of
        # the supervisor as well, and then the callers learn that the actor is gone.
        for _ in range(2):
            with pytest.raises(error):
                runner.run(main() if not supervisors else results())
        assert runner.run(results()) == [NO_REPLY, STOPPED]
        assert isinstance(supervisors[0].exception(), error)
    assert lines(capsys) == []


def test_an_interrupt_ends_the_program_without_a_report(
    stage: Any, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def actor(mailbox: Any) -> None:
        async for _ in mailbox:
            raise KeyboardInterrupt

    stage.actor = actor
    with pytest.raises(KeyboardInterrupt):
        stage.run_paused(stage.main())
    gc.collect()
    assert lines(capsys) == []
    assert caplog.records == []


@pytest.mark.parametrize("messages", [0, 1, 12])
def test_a_cancelled_supervisor_takes_the_actor_along(
    stage: Any, capsys: pytest.CaptureFixture[str], messages: int
) -> None:
    ended: list[int] = []

    async def actor(mailbox: Any) -> None:
        try:
            async for _ in mailbox:
                await asyncio.sleep(1000)
        finally:
            await asyncio.sleep(0.02)  # it takes its time
            ended.append(stage.elapsed())

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage)
        callers = send(stage, *(handle.add(1) for _ in range(messages)))
        await asyncio.sleep(0.05)
        supervisor.cancel()
        await asyncio.wait([supervisor])
        assert supervisor.cancelled()
        assert ended == [70]
        expected = [NO_REPLY, *[STOPPED] * 11][:messages]
        assert [await caller for caller in callers] == expected
        assert await stage.outcome(handle.add(1)) == STOPPED
        assert stage.elapsed() == 70
        assert len(asyncio.all_tasks()) == 1

    run(stage, main())
    assert lines(capsys) == []


def test_an_error_on_the_way_out_of_a_cancelled_actor_is_raised_and_no_restart(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def actor(mailbox: Any) -> None:
        try:
            async for _ in mailbox:
                pass
        finally:
            raise ZeroDivisionError("while cleaning up")

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage)
        await turn()
        supervisor.cancel()
        with pytest.raises(ZeroDivisionError, match=r"^while cleaning up$"):
            await supervisor
        assert await stage.outcome(handle.add(1)) == STOPPED

    run(stage, main())
    assert lines(capsys) == []


@pytest.mark.parametrize("number", [2, 3])
def test_a_supervisor_that_is_cancelled_during_the_wait_starts_no_actor(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    stage = load(number)

    async def main() -> None:
        handle, supervisor = start(stage)
        assert await stage.outcome(handle.boom()) == NO_REPLY
        callers = send(stage, *(handle.add(1) for _ in range(10)))
        await asyncio.sleep(0.05)
        supervisor.cancel()
        assert await asyncio.gather(*callers) == [STOPPED] * 10
        assert supervisor.cancelled()
        assert stage.elapsed() == 50

    run(stage, main())
    assert lines(capsys) == ["[  0 ms] actor panicked, restart 1 in 100ms"]


@EVERY_STAGE
def test_a_task_that_is_cancelled_before_it_begins_leaves_no_caller_waiting(
    capsys: pytest.CaptureFixture[str], number: int
) -> None:
    stage = load(number)

    async def main() -> None:
        handle, task = start(stage)
        task.cancel()
        assert await stage.outcome(handle.add(1)) == STOPPED
        assert task.cancelled()

    run(stage, main())
    assert lines(capsys) == []


def test_a_supervisor_that_is_cancelled_in_the_turn_of_a_crash_does_not_restart(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    supervisors: list[asyncio.Task[int]] = []

    async def actor(mailbox: Any) -> None:
        async for _ in mailbox:
            # The actor's task ends before the supervisor can run.
            asyncio.get_running_loop().call_soon(supervisors[0].cancel)
            raise RuntimeError("boom")

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage)
        supervisors.append(supervisor)
        callers = send(stage, handle.add(1), handle.add(2))
        assert await asyncio.gather(*callers) == [NO_REPLY, STOPPED]
        assert supervisor.cancelled()

    run(stage, main())
    assert lines(capsys) == []


# CancelledError out of the actor


def test_somebody_elses_cancelled_task_is_a_crash_like_any_other(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    real_actor = stage.actor
    actors = 0

    async def actor(mailbox: Any) -> None:
        nonlocal actors
        actors += 1
        if actors == 1:
            async for _ in mailbox:
                job = asyncio.create_task(asyncio.sleep(10))
                asyncio.get_running_loop().call_later(0.02, job.cancel)
                await job
        await real_actor(mailbox)

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage)
        callers = send(stage, handle.add(1), handle.add(2), handle.add(3))
        assert await asyncio.gather(*callers) == [NO_REPLY, "Ok(2)", "Ok(5)"]
        assert stage.elapsed() == 120
        handle.close()
        assert await supervisor == 1

    run(stage, main())
    assert lines(capsys) == ["[ 20 ms] actor panicked, restart 1 in 100ms"]


def test_a_time_limit_inside_the_actor_is_a_crash_like_any_other(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    async def actor(mailbox: Any) -> None:
        async for _ in mailbox:
            async with asyncio.timeout(0.03):
                await asyncio.sleep(10)

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage, 1)
        assert await stage.outcome(handle.add(1)) == NO_REPLY
        assert await stage.outcome(handle.add(1)) == NO_REPLY
        assert await supervisor == 1

    run(stage, main())
    assert lines(capsys) == [
        "[ 30 ms] actor panicked, restart 1 in 100ms",
        "[160 ms] actor panicked, giving up",
    ]


def test_an_actor_that_is_cancelled_itself_was_stopped(
    stage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tasks: list[asyncio.Task[Any] | None] = []
    real_actor = stage.actor

    async def actor(mailbox: Any) -> None:
        tasks.append(asyncio.current_task())
        await real_actor(mailbox)

    stage.actor = actor

    async def main() -> None:
        handle, supervisor = start(stage)
        assert await stage.outcome(handle.add(1)) == "Ok(1)"
        assert tasks[0] is not None
        tasks[0].cancel()
        assert await supervisor == 0
        assert await stage.outcome(handle.add(1)) == STOPPED

    run(stage, main())
    assert lines(capsys) == []


# The waits


@pytest.mark.parametrize("limit", [6, 1100])
def test_the_wait_doubles_up_to_a_day_for_any_limit(
    stage: ModuleType, capsys: pytest.CaptureFixture[str], limit: int
) -> None:
    async def main() -> None:
        handle, supervisor = start(stage, limit)
        for _ in range(limit + 1):
            assert await stage.outcome(handle.boom()) == NO_REPLY
        assert await stage.outcome(handle.add(1)) == STOPPED
        assert await supervisor == limit

    run(stage, main())
    expected = []
    now = 0
    for number in range(1, limit + 1):
        wait = min(100 * 2 ** (number - 1), DAY)
        expected.append(
            f"[{now:>3} ms] actor panicked, restart {number} in {wait}ms",
        )
        now += wait
    expected.append(f"[{now:>3} ms] actor panicked, giving up")
    assert lines(capsys) == expected


@pytest.mark.parametrize("number", [2, 3])
def test_no_number_of_restarts_makes_a_wait_that_a_timer_cannot_hold(
    number: int,
) -> None:
    stage = load(number)
    waits = [stage.backoff(restarts) for restarts in (0, 1, 2, 19, 20, 1099, 10**6)]
    assert waits == [100, 200, 400, 52_428_800, DAY, DAY, DAY]
