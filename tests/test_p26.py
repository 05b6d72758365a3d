"""The suite's parts with other inputs than its tests, and the suite as a program."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.scripts import ROOT, load_script

STAGES = ["stage1", "stage2"]
STRICT = ["-I", "-X", "dev", "-W", "error"]
CLOCK = (
    "# ------------------------------------------- the paused clock, by time-machine"
)
REPORT = CLOCK[:2] + "-" * 70 + " the report"


@pytest.fixture
def stage() -> Any:
    return load_script("workshops/p26/stage2.py")


def source(name: str) -> str:
    return (ROOT / "workshops/p26" / f"{name}.py").read_text()


def run(*args: object, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run Python with `args`, without what pytest has set in the environment."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTEST_", "PYTHON"))
    }
    environment.update(kwargs.pop("env", {}))
    return subprocess.run(
        [sys.executable, *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        env=environment,
        **kwargs,
    )


# ------------------------------------------------------------------------- retry


def failing(attempts: list[int]) -> Callable[[int], Coroutine[Any, Any, int]]:
    """Make an operation that notes its attempts and fails in all of them."""

    async def op(attempt: int) -> int:
        attempts.append(attempt)
        raise ValueError(attempt)

    return op


def test_one_attempt_that_fails_is_not_followed_by_a_wait(stage: Any) -> None:
    attempts: list[int] = []

    async def scenario() -> int:
        with pytest.raises(ValueError, match=r"^1$"):
            await stage.retry(1, 100, failing(attempts))
        return stage.now()  # type: ignore[no-any-return]

    assert stage.run_paused(scenario()) == 0
    assert attempts == [1]


def test_of_different_errors_the_last_comes_out(stage: Any) -> None:
    errors = [KeyError("first"), OSError("second"), ZeroDivisionError("third")]

    async def op(attempt: int) -> None:
        raise errors[attempt - 1]

    async def scenario() -> int:
        with pytest.raises(ZeroDivisionError) as caught:
            await stage.retry(3, 50, op)
        assert caught.value is errors[2]
        return stage.now()  # type: ignore[no-any-return]

    assert stage.run_paused(scenario()) == 150


def test_each_wait_is_twice_as_long_as_the_one_before(stage: Any) -> None:
    times = []

    async def op(attempt: int) -> None:
        times.append(stage.now())
        raise ValueError

    async def scenario() -> None:
        with pytest.raises(ValueError, match=r"^$"):
            await stage.retry(6, 7, op)

    stage.run_paused(scenario())
    assert times == [0, 7, 21, 49, 105, 217]


def test_a_retry_that_is_cancelled_in_a_wait_makes_no_further_attempt(
    stage: Any,
) -> None:
    attempts: list[int] = []

    async def scenario() -> None:
        task = asyncio.create_task(stage.retry(5, 100, failing(attempts)))
        await stage.advance(150)
        task.cancel()
        await stage.advance(10_000)
        assert task.cancelled()

    stage.run_paused(scenario())
    assert attempts == [1, 2]


def test_a_retry_that_is_cancelled_in_an_attempt_makes_no_further_one(
    stage: Any,
) -> None:
    attempts = []

    async def op(attempt: int) -> None:
        attempts.append(attempt)
        await asyncio.sleep(1)

    async def scenario() -> None:
        task = asyncio.create_task(stage.retry(5, 100, op))
        await stage.advance(150)
        task.cancel()
        await stage.advance(10_000)
        assert task.cancelled()

    stage.run_paused(scenario())
    assert attempts == [1]


def test_fewer_attempts_than_one_are_refused(stage: Any) -> None:
    attempts: list[int] = []
    with pytest.raises(ValueError, match="max_attempts must be 1 or more"):
        stage.run_paused(stage.retry(0, 100, failing(attempts)))
    assert attempts == []


def test_a_power_that_no_float_can_hold_is_no_wait_at_a_base_of_0(stage: Any) -> None:
    attempts: list[int] = []

    async def scenario() -> int:
        with pytest.raises(ValueError, match=r"^1100$"):
            await stage.retry(1100, 0, failing(attempts))
        return stage.now()  # type: ignore[no-any-return]

    assert stage.run_paused(scenario()) == 0
    assert attempts == list(range(1, 1101))


def test_a_wait_beyond_the_end_of_the_clock_is_an_error_and_no_hang(
    stage: Any,
) -> None:
    attempts: list[int] = []

    async def scenario() -> int:
        with pytest.raises(OverflowError, match="8,900 years"):
            await stage.retry(1100, 1, failing(attempts))
        return stage.now()  # type: ignore[no-any-return]

    # The waits add up to the last millisecond of the clock, and not one is lost.
    assert stage.run_paused(scenario()) == 2**48 - 1
    assert attempts == list(range(1, 50))


# ------------------------------------------------------------------- the limiter


def test_a_limiter_that_is_idle_for_a_second_does_not_save_it_up(stage: Any) -> None:
    async def scenario() -> list[int]:
        limiter = stage.RateLimiter(100)
        times = []
        await limiter.acquire()
        await stage.advance(1000)
        for _ in range(4):
            await limiter.acquire()
            times.append(stage.now())
        return times

    assert stage.run_paused(scenario()) == [1000, 1100, 1200, 1300]


def test_a_pause_shorter_than_the_gap_counts_towards_it(stage: Any) -> None:
    async def scenario() -> list[int]:
        limiter = stage.RateLimiter(100)
        times = []
        for pause in (0, 30, 150):
            await stage.advance(pause)
            await limiter.acquire()
            times.append(stage.now())
        return times

    assert stage.run_paused(scenario()) == [0, 100, 250]


@pytest.mark.parametrize(("gap", "end"), [(100, 99.9), (7, 6.993), (333, 332.667)])
def test_1000_calls_one_after_the_other_end_exactly(
    stage: Any, gap: int, end: float
) -> None:
    async def scenario() -> float:
        limiter = stage.RateLimiter(gap)
        for _ in range(1000):
            await limiter.acquire()
        return asyncio.get_running_loop().time()

    assert stage.run_paused(scenario()) == end


def test_1000_calls_at_once_end_exactly_and_in_the_order_of_the_calls(
    stage: Any,
) -> None:
    calls = []

    async def call(limiter: Any, number: int) -> None:
        await limiter.acquire()
        calls.append((number, stage.now()))

    async def scenario() -> float:
        limiter = stage.RateLimiter(100)
        async with asyncio.TaskGroup() as group:
            for number in range(1000):
                group.create_task(call(limiter, number))
        return asyncio.get_running_loop().time()

    assert stage.run_paused(scenario()) == 99.9
    assert calls == [(number, 100 * number) for number in range(1000)]


def test_a_caller_that_gives_up_has_used_its_slot(stage: Any) -> None:
    async def scenario() -> int:
        limiter = stage.RateLimiter(100)
        await limiter.acquire()
        second = asyncio.create_task(limiter.acquire())
        await stage.advance(10)
        second.cancel()
        await limiter.acquire()
        assert second.cancelled()
        return stage.now()  # type: ignore[no-any-return]

    assert stage.run_paused(scenario()) == 200


# ------------------------------------------------------------------------- Spawn


def test_spawn_of_a_sleep(stage: Any) -> None:
    async def scenario() -> None:
        sleep = stage.Spawn(asyncio.sleep(0.05, "slept"))
        assert not sleep.is_woken
        stage.assert_pending(sleep.poll())
        await stage.advance(49)
        assert not sleep.is_woken
        stage.assert_pending(sleep.poll())  # too early: nothing has changed
        await stage.advance(1)
        assert sleep.is_woken
        assert stage.assert_ready(sleep.poll()) == "slept"
        assert not sleep.is_woken

    stage.run_paused(scenario())


def test_spawn_of_a_lock(stage: Any) -> None:
    async def scenario() -> None:
        lock = asyncio.Lock()
        await lock.acquire()
        first = stage.Spawn(lock.acquire())
        second = stage.Spawn(lock.acquire())
        stage.assert_pending(first.poll())
        stage.assert_pending(second.poll())
        lock.release()
        assert (first.is_woken, second.is_woken) == (True, False)
        assert stage.assert_ready(first.poll()) is True
        lock.release()
        assert second.is_woken
        assert stage.assert_ready(second.poll()) is True

    stage.run_paused(scenario())


def test_spawn_of_a_queue(stage: Any) -> None:
    async def scenario() -> None:
        queue: asyncio.Queue[str] = asyncio.Queue(1)
        get = stage.Spawn(queue.get())
        stage.assert_pending(get.poll())
        queue.put_nowait("one")
        assert get.is_woken
        assert stage.assert_ready(get.poll()) == "one"
        queue.put_nowait("two")
        put = stage.Spawn(queue.put("three"))
        stage.assert_pending(put.poll())
        assert not put.is_woken
        assert queue.get_nowait() == "two"
        assert put.is_woken
        stage.assert_ready(put.poll())
        assert queue.get_nowait() == "three"

    stage.run_paused(scenario())


def test_spawn_of_an_event(stage: Any) -> None:
    async def scenario() -> None:
        event = asyncio.Event()
        waits = [stage.Spawn(event.wait()) for _ in range(2)]
        for wait in waits:
            stage.assert_pending(wait.poll())
            assert not wait.is_woken
        event.set()
        for wait in waits:
            assert wait.is_woken
            stage.assert_ready(wait.poll())

    stage.run_paused(scenario())


def test_spawn_goes_from_wait_to_wait(stage: Any) -> None:
    steps = []

    async def work(event: asyncio.Event) -> str:
        steps.append("started")
        await asyncio.sleep(0)
        steps.append("had its turn")
        await event.wait()
        steps.append("saw the event")
        await asyncio.sleep(0.01)
        return "done"

    async def scenario() -> None:
        event = asyncio.Event()
        spawn = stage.Spawn(work(event))
        assert steps == []
        stage.assert_pending(spawn.poll())
        assert spawn.is_woken  # sleep(0) asks for no more than the next turn
        stage.assert_pending(spawn.poll())
        assert not spawn.is_woken
        event.set()
        assert spawn.is_woken
        assert steps == ["started", "had its turn"]
        stage.assert_pending(spawn.poll())
        assert not spawn.is_woken
        await stage.advance(10)
        assert stage.assert_ready(spawn.poll()) == "done"

    stage.run_paused(scenario())
    assert steps == ["started", "had its turn", "saw the event"]


def test_what_the_coroutine_raises_comes_out_of_the_poll(stage: Any) -> None:
    async def scenario() -> None:
        event = asyncio.Event()

        async def work() -> None:
            await event.wait()
            raise KeyError("from the work")

        spawn = stage.Spawn(work())
        stage.assert_pending(spawn.poll())
        event.set()
        with pytest.raises(KeyError, match="from the work"):
            spawn.poll()
        assert not spawn.is_woken
        with pytest.raises(RuntimeError, match="already awaited"):
            spawn.poll()

    stage.run_paused(scenario())


def test_a_wait_that_is_cancelled_wakes_and_is_raised_by_the_poll(stage: Any) -> None:
    async def scenario() -> None:
        future = asyncio.get_running_loop().create_future()

        async def work() -> None:
            await future

        spawn = stage.Spawn(work())
        stage.assert_pending(spawn.poll())
        future.cancel()
        assert spawn.is_woken
        with pytest.raises(asyncio.CancelledError):
            spawn.poll()

    stage.run_paused(scenario())


async def with_a_timeout() -> None:
    async with asyncio.timeout(1):
        await asyncio.sleep(2)


async def with_a_group() -> None:
    async with asyncio.TaskGroup():
        pass


@pytest.mark.parametrize("work", [with_a_timeout, with_a_group])
def test_what_needs_a_task_says_so_and_leaves_the_test_alone(
    stage: Any, work: Callable[[], Coroutine[Any, Any, None]]
) -> None:
    async def scenario() -> None:
        before = asyncio.current_task()
        with pytest.raises(RuntimeError, match="task"):
            stage.Spawn(work()).poll()
        assert asyncio.current_task() is before
        async with asyncio.timeout(1):  # the test itself has its task as before
            await stage.advance(999)

    stage.run_paused(scenario())


def test_what_is_no_future_of_asyncio_is_refused(stage: Any) -> None:
    class Odd:
        def __await__(self) -> Any:
            yield "odd"

    async def work() -> None:
        await Odd()

    async def scenario() -> None:
        with pytest.raises(TypeError, match="'odd', which is no asyncio future"):
            stage.Spawn(work()).poll()

    stage.run_paused(scenario())


def test_the_assertions_about_a_poll_can_fail(stage: Any) -> None:
    stage.assert_pending(None)
    assert stage.assert_ready(stage.Ready(None)) is None
    with pytest.raises(AssertionError, match="expected to be ready, is pending"):
        stage.assert_ready(None)
    with pytest.raises(AssertionError, match=r"to be pending, is Ready\(value=None\)"):
        stage.assert_pending(stage.Ready(None))


# --------------------------------------------------------------------- the clock


def test_the_clock_and_the_report_are_the_same_text_in_both_files() -> None:
    first, second = (source(name) for name in STAGES)
    for start in (REPORT, CLOCK):
        assert first.count(start) == second.count(start) == 1
        assert first[first.index(start) :] == second[second.index(start) :]
    assert first.index(REPORT) < first.index(CLOCK)


@pytest.mark.parametrize("ms", [1, 7, 999, 1001, 86_400_001])
def test_sums_of_sleeps_are_exact_to_the_nanosecond(stage: Any, ms: int) -> None:
    async def scenario() -> tuple[int, float]:
        for _ in range(1000):
            await asyncio.sleep(ms / 1000)
        return time.time_ns(), asyncio.get_running_loop().time()

    assert stage.run_paused(scenario()) == (ms * 10**9, float(ms))


def test_equal_deadlines_fire_in_the_order_they_were_set(stage: Any) -> None:
    woken = []

    async def sleeper(number: int) -> None:
        await asyncio.sleep(1)
        woken.append(number)

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(50):
                group.create_task(sleeper(number))

    stage.run_paused(scenario())
    assert woken == list(range(50))


def test_when_nothing_can_wake_a_task_there_is_an_error_and_no_hang(
    stage: Any,
) -> None:
    async def scenario() -> None:
        await asyncio.sleep(5)
        await asyncio.Event().wait()

    with pytest.raises(RuntimeError, match="deadlock"):
        stage.run_paused(scenario())


def test_the_clock_is_given_back_after_an_error(stage: Any) -> None:
    async def scenario() -> None:
        await asyncio.sleep(5)
        raise KeyError

    with pytest.raises(KeyError):
        stage.run_paused(scenario())
    assert time.time() > 1_000_000_000


def test_a_socket_wakes_its_task_when_no_timer_is_pending(stage: Any) -> None:
    async def scenario() -> tuple[bytes, int]:
        served = asyncio.Event()

        async def serve(
            reader: asyncio.StreamReader, writer: asyncio.StreamWriter
        ) -> None:
            writer.write(await reader.readline())
            writer.close()
            await writer.wait_closed()
            served.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"hello\n")
        line = await reader.readline()
        writer.close()
        await writer.wait_closed()
        await served.wait()
        server.close()
        await server.wait_closed()
        return line, stage.now()

    assert stage.run_paused(scenario()) == (b"hello\n", 0)


def test_advance_returns_when_all_that_came_due_has_run(stage: Any) -> None:
    steps = []

    async def in_two_steps() -> None:
        await asyncio.sleep(0.05)
        steps.append(stage.now())
        await asyncio.sleep(0.05)  # due at 100, set after the timer of the advance
        for _ in range(20):
            await asyncio.sleep(0)
        steps.append(stage.now())
        await asyncio.sleep(0.001)
        steps.append(stage.now())

    async def scenario() -> None:
        task = asyncio.create_task(in_two_steps())
        await stage.advance(100)
        assert steps == [50, 100]
        await stage.advance(0)
        assert steps == [50, 100]
        await stage.advance(1)
        assert steps == [50, 100, 101]
        assert task.done()

    stage.run_paused(scenario())


def test_two_tasks_can_advance_the_clock_at_once(stage: Any) -> None:
    async def scenario() -> int:
        async with asyncio.TaskGroup() as group:
            for ms in (10, 20, 20, 30):
                group.create_task(stage.advance(ms))
        return stage.now()  # type: ignore[no-any-return]

    assert stage.run_paused(scenario()) == 30


def test_a_task_that_gives_up_its_advance_does_not_hold_up_another(
    stage: Any,
) -> None:
    async def scenario() -> int:
        given_up = asyncio.create_task(stage.advance(0))
        while not asyncio.get_running_loop().selector.idle:  # type: ignore[attr-defined]
            await asyncio.sleep(0)
        given_up.cancel()
        await stage.advance(20)
        assert given_up.cancelled()
        return stage.now()  # type: ignore[no-any-return]

    assert stage.run_paused(scenario()) == 20


def test_only_a_paused_clock_can_be_advanced(stage: Any) -> None:
    with pytest.raises(AssertionError, match="only a paused clock can be moved"):
        asyncio.run(stage.advance(1))


# ----------------------------------------------------------- the suite as a program


@pytest.mark.parametrize("name", STAGES)
def test_pytest_runs_the_same_tests_from_the_root(name: str) -> None:
    path = f"workshops/p26/{name}.py"
    done = run("-B", "-W", "error", "-m", "pytest", path, cwd=ROOT)
    assert "3 passed" in done.stdout
    assert done.returncode == 0


def test_pytest_runs_the_same_tests_in_a_copy_alone(tmp_path: Path) -> None:
    (tmp_path / "stage2.py").write_text(source("stage2"))
    done = run(*STRICT, "-m", "pytest", "stage2.py", cwd=tmp_path)
    assert "3 passed" in done.stdout
    assert done.returncode == 0


def test_a_failing_test_is_reported_with_its_reason_and_the_status_is_1(
    tmp_path: Path,
) -> None:
    broken = source("stage1").replace("now() == 300", "now() == 700", 1)
    (tmp_path / "stage1.py").write_text(broken)
    done = run(*STRICT, "stage1.py", cwd=tmp_path)
    lines = done.stdout.splitlines()
    line = 1 + broken.splitlines().index("    assert now() == 700")
    assert lines[:9] == [
        "running 3 tests",
        "test tests::exhausted_retries_return_the_last_error ... ok",
        "test tests::first_success_waits_for_nothing ... ok",
        "test tests::two_failures_wait_100_then_200 ... FAILED",
        "",
        "failures:",
        "",
        "---- tests::two_failures_wait_100_then_200 ----",
        f"stage1.py:{line}: in test_two_failures_wait_100_then_200",
    ]
    assert "E   assert 300 == 700" in lines
    assert lines[-2:] == [
        "",
        "test result: FAILED. 2 passed; 1 failed; 0 ignored; 0 measured; "
        "0 filtered out; finished in 0.00s",
    ]
    assert done.stderr == ""
    assert done.returncode == 1


def test_a_reason_has_no_colours(tmp_path: Path) -> None:
    broken = source("stage2").replace("[0, 100, 200]", "[0, 100, 300]")
    (tmp_path / "stage2.py").write_text(broken)
    done = run(*STRICT, "stage2.py", cwd=tmp_path, env={"FORCE_COLOR": "1"})
    assert "E   assert [0, 100, 200] == [0, 100, 300]" in done.stdout
    assert "At index 2 diff: 200 != 300" in done.stdout
    assert "\x1b" not in done.stdout
    assert done.returncode == 1


OTHER_TESTS = """\
@pytest.mark.xfail(raises=AssertionError)
@paused
async def test_fail_as_expected() -> None:
    assert now() == 1


@pytest.mark.xfail(raises=AssertionError)
@paused
async def test_fail_not_at_all() -> None:
    assert now() == 0


@pytest.mark.xfail(raises=AssertionError)
@paused
async def test_fail_for_another_reason() -> None:
    raise KeyError("another reason")


@paused
async def test_fail_in_the_body() -> None:
    with pytest.raises(AssertionError, match="the clock is at 1"):
        assert now() == 1, "the clock is at 1"


@pytest.mark.skip
@paused
async def test_left_out() -> None:
    raise KeyError


@pytest.mark.parametrize("ms", [3, 4])
@paused
async def test_with(ms: int) -> None:
    await advance(ms)
    assert now() == ms


@paused
async def test_waits_for_ever() -> None:
    print("what it printed")
    await asyncio.Event().wait()


@paused
async def test_forgets_a_coroutine() -> None:
    retry(1, BASE, fails(0))


@pytest.fixture
def broken_teardown():
    yield
    raise KeyError("in the teardown")


@paused
async def test_teardown(broken_teardown: None) -> None:
    pass


"""


def test_the_report_has_a_word_for_each_outcome(tmp_path: Path) -> None:
    text = source("stage1")
    start = text.index("@paused\n")
    text = text[:start] + OTHER_TESTS + text[text.index(REPORT) :]
    (tmp_path / "stage1.py").write_text(text)
    done = run("-I", "stage1.py", cwd=tmp_path)
    head, *reasons = done.stdout.split("\n---- ")
    assert head.splitlines() == [
        "running 10 tests",
        "test tests::forgets_a_coroutine ... FAILED",
        "test tests::left_out ... ignored",
        "test tests::teardown ... FAILED",
        "test tests::test_fail_as_expected - should panic ... ok",
        "test tests::test_fail_for_another_reason - should panic ... FAILED",
        "test tests::test_fail_in_the_body - should panic ... ok",
        "test tests::test_fail_not_at_all - should panic ... FAILED",
        "test tests::waits_for_ever ... FAILED",
        "test tests::with[3] ... ok",
        "test tests::with[4] ... ok",
        "",
        "failures:",
    ]
    why = dict(reason.split(" ----\n", 1) for reason in reasons)
    assert "'retry' was never awaited" in why["tests::forgets_a_coroutine"]
    assert "KeyError: 'in the teardown'" in why["tests::teardown"]
    another = why["tests::test_fail_for_another_reason - should panic"]
    assert "KeyError: 'another reason'" in another
    assert "XPASS" in why["tests::test_fail_not_at_all - should panic"]
    assert "RuntimeError: deadlock" in why["tests::waits_for_ever"]
    assert "what it printed" in why["tests::waits_for_ever"]
    assert "FAILED. 4 passed; 5 failed; 1 ignored; 0 measured;" in done.stdout
    assert done.stderr == ""
    assert done.returncode == 1


@pytest.mark.parametrize("name", STAGES)
def test_the_report_does_not_depend_on_what_surrounds_the_file(
    tmp_path: Path, name: str
) -> None:
    folder = tmp_path / "a folder"
    folder.mkdir()
    (folder / f"{name}.py").write_text(source(name))
    for place in (tmp_path, folder):
        (place / "conftest.py").write_text("raise OSError('a conftest was loaded')\n")
        (place / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    installed = tmp_path / "installed"
    (installed / "odd-1.0.dist-info").mkdir(parents=True)
    (installed / "odd-1.0.dist-info/METADATA").write_text("Name: odd\nVersion: 1.0\n")
    (installed / "odd-1.0.dist-info/entry_points.txt").write_text(
        "[pytest11]\nodd = odd\n"
    )
    (installed / "odd.py").write_text("raise OSError('a plugin was loaded')\n")
    before = sorted(folder.iterdir())
    done = run(
        *("-X", "dev", "-W", "error", folder / f"{name}.py"),
        cwd=tmp_path,
        env={
            "PYTEST_ADDOPTS": "--no-such-option",
            "PYTEST_PLUGINS": "no_such_plugin",
            "FORCE_COLOR": "1",
            "PYTHONPATH": str(installed),
        },
    )
    golden = ROOT / "tests/golden/p26" / f"{name}.out"
    assert (done.stdout, done.stderr) == (golden.read_text(), "")
    assert done.returncode == 0
    assert sorted(folder.iterdir()) == before  # nor does it leave anything behind


@pytest.mark.parametrize("name", STAGES)
@pytest.mark.parametrize("missing", ["pytest", "time_machine"])
def test_a_package_that_is_missing_takes_one_line_and_exit_status_2(
    name: str, missing: str
) -> None:
    script = str(ROOT / "workshops/p26" / f"{name}.py")
    done = run(
        *("-I", "-c"),
        f"import runpy, sys; sys.modules[{missing!r}] = None; "
        f"runpy.run_path({script!r}, run_name='__main__')",
    )
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert missing in done.stderr
    assert "pip install pytest time-machine" in done.stderr
    assert done.returncode == 2
