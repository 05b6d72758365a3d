"""Stage 2: a rate limiter, polled by hand

A rate limiter hands out slots: a call takes the later of "now" and the next free slot,
and sleeps until its slot has come. How long the calls take together is one thing to
test. The other is what happens in between: who waits, and when is it woken?

New since stage 1: `RateLimiter`, and `Spawn`, which runs a coroutine step by step. A
test polls it, moves the clock with `advance` and looks at it again. This is the full
program. `pytest` runs its tests as well.

Look for: a call with a slot at 100 ms is not woken after 99 ms and is woken after one
more. `retry` is tested a second time, now from one attempt to the next.
"""

import asyncio
import heapq
import io
import math
import os
import selectors
import sys
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

try:
    import pytest
    import time_machine
except ModuleNotFoundError as missing:
    if __name__ != "__main__":
        raise
    print(f"{missing}: python -m pip install pytest time-machine", file=sys.stderr)
    sys.exit(2)

P = ParamSpec("P")
T = TypeVar("T")

BASE = 100  # ms
GAP = 100  # ms


def now() -> int:
    """Return the time of the running loop, in whole milliseconds."""
    return round(asyncio.get_running_loop().time() * 1000)


async def retry(max_attempts: int, base: int, op: Callable[[int], Awaitable[T]]) -> T:
    """Await op(1), op(2), ... until one of them returns; return its result.

    The wait after the first failure is `base` ms, and each wait is twice as long as
    the one before. No wait follows the last of `max_attempts`: its error comes out.
    """
    if max_attempts < 1:
        raise ValueError("max_attempts must be 1 or more")
    for attempt in range(1, max_attempts):
        try:
            return await op(attempt)
        except Exception:  # a cancellation is none, so it ends the retry
            wait = base * 2 ** (attempt - 1)
        await asyncio.sleep(wait / 1000)
    return await op(max_attempts)


class RateLimiter:
    """Lets one call through every `gap` ms. Idle time is not saved up."""

    def __init__(self, gap: int) -> None:
        self._gap = gap
        self._next = 0  # ms: the next free slot

    async def acquire(self) -> None:
        """Wait for the slot of this call. A caller that gives up has used its slot."""
        called = now()
        slot = max(self._next, called)
        self._next = slot + self._gap
        if slot > called:
            await asyncio.sleep((slot - called) / 1000)


# ----------------------------------------------------------------------- the tests


@dataclass(frozen=True)
class Ready(Generic[T]):
    """What a poll gives when the coroutine has returned. A pending one gives None."""

    value: T


class Spawn(Generic[T]):
    """A coroutine that a test polls by hand.

    It may wait for whatever is made of asyncio's futures: a sleep, a lock, a queue, an
    event. It does not run in a task. So asyncio.timeout and TaskGroup, which have to
    cancel the task that they are used in, raise a RuntimeError that says so.
    """

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work
        self._waits_for: asyncio.Future[Any] | None = None

    @property
    def is_woken(self) -> bool:
        """Whether what the last poll had to wait for has come."""
        return self._waits_for is not None and self._waits_for.done()

    def poll(self) -> Ready[T] | None:
        """Run the coroutine as far as it goes; return Ready, or None if it waits.

        A poll that comes too early changes nothing. What the coroutine raises comes
        out of the poll.
        """
        if self._waits_for is not None and not self._waits_for.done():
            return None
        self._waits_for = None
        try:
            waits_for = self._step()
        except StopIteration as end:
            return Ready(end.value)
        if waits_for is None:  # sleep(0) waits for nothing but its next turn
            waits_for = asyncio.get_running_loop().create_future()
            waits_for.set_result(None)
        if not asyncio.isfuture(waits_for):
            raise TypeError(f"waits for {waits_for!r}, which is no asyncio future")
        self._waits_for = waits_for
        return None

    def _step(self) -> Any:
        """Run the coroutine up to its next wait, outside of the test's task."""
        loop = asyncio.get_running_loop()
        task = asyncio.current_task()
        assert task is not None, "poll from a test, not from a callback"
        asyncio._leave_task(loop, task)
        try:
            return self._work.send(None)
        finally:
            asyncio._enter_task(loop, task)


def assert_pending(poll: Ready[T] | None) -> None:
    __tracebackhide__ = True  # pytest shows the line of the test instead
    assert poll is None, f"expected to be pending, is {poll}"


def assert_ready(poll: Ready[T] | None) -> T:
    """Return the result."""
    __tracebackhide__ = True
    assert poll is not None, "expected to be ready, is pending"
    return poll.value


def paused(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Have pytest run an async test, under a paused clock that starts at 0."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_paused(test(*args, **kwargs))

    return run


class AttemptFailed(Exception):
    """The error of the operation that the tests retry."""


def fails(times: int) -> Callable[[int], Awaitable[int]]:
    """Make an operation that fails so many times, then returns the attempt's number."""

    async def op(attempt: int) -> int:
        if attempt <= times:
            raise AttemptFailed(f"attempt {attempt}")
        return attempt

    return op


@paused
async def test_sequential_calls_are_spaced() -> None:
    limiter = RateLimiter(GAP)
    times = []
    for _ in range(3):
        await limiter.acquire()
        times.append(now())
    assert times == [0, 100, 200]


@paused
async def test_acquire_wakes_its_task_at_the_slot() -> None:
    limiter = RateLimiter(GAP)
    assert_ready(Spawn(limiter.acquire()).poll())  # the first call does not wait

    second = Spawn(limiter.acquire())
    assert_pending(second.poll())
    await advance(99)
    assert not second.is_woken
    await advance(1)
    assert second.is_woken
    assert_ready(second.poll())


@paused
async def test_retry_sleeps_between_attempts() -> None:
    run = Spawn(retry(3, BASE, fails(2)))
    assert_pending(run.poll())  # attempt 1 has failed, a sleep of 100 ms
    await advance(100)
    assert run.is_woken
    assert_pending(run.poll())  # attempt 2 has failed, a sleep of 200 ms
    await advance(199)
    assert not run.is_woken
    await advance(1)
    assert assert_ready(run.poll()) == 3


# ---------------------------------------------------------------------- the report


class Report:
    """A plugin of pytest that collects results and shows them as cargo test does."""

    def __init__(self) -> None:
        self.results: dict[str, str] = {}
        self.reasons: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take in the setup, the call or the teardown of a test. The worst counts."""
        name = self.shown(report.location[2])
        if report.failed:
            output = [f"{title}:\n{text}" for title, text in report.sections]
            self.results[name] = "FAILED"
            self.reasons[name] = "\n".join([report.longreprtext, *output]).rstrip()
        elif report.skipped and not hasattr(report, "wasxfail"):
            self.results[name] = "ignored"
        else:  # it passed, or it failed as it was expected to
            self.results.setdefault(name, "ok")

    def shown(self, function: str) -> str:
        """Return the name that the report has for a test function.

        A name in test_fail_ is that of a test which is about a failure. It stays whole.
        """
        if function.startswith("test_fail_"):
            return f"tests::{function} - should panic"
        return f"tests::{function.removeprefix('test_')}"

    def show(self, seconds: float) -> None:
        count = len(self.results)
        print(f"running {count} test{'' if count == 1 else 's'}")
        for name, result in sorted(self.results.items()):
            print(f"test {name} ... {result}")
        if self.reasons:
            print("\nfailures:")
        for name, reason in sorted(self.reasons.items()):
            print(f"\n---- {name} ----\n{reason}")
        results = list(self.results.values())
        print(
            f"\ntest result: {'FAILED' if self.reasons else 'ok'}. "
            f"{results.count('ok')} passed; {results.count('FAILED')} failed; "
            f"{results.count('ignored')} ignored; 0 measured; 0 filtered out; "
            f"finished in {seconds:.2f}s"
        )


def run_pytest(report: Report) -> int:
    """Have pytest run the tests of this file and nothing else; return its status.

    What pytest is told elsewhere is meant for other suites: by the environment, a
    settings file, a conftest.py, a plugin that happens to be installed.
    """
    for variable in [name for name in os.environ if name.startswith("PYTEST_")]:
        del os.environ[variable]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True  # no __pycache__ is left behind, and no other cache
    alone = ["-c", os.devnull, "--noconftest", "-p", "no:cacheprovider"]
    strict = ["-W", "error", "-o", "xfail_strict=true"]
    style = ["--import-mode=importlib", "--tb=short", "--color=no"]
    folder = f"--rootdir={Path(__file__).parent}"
    return pytest.main([*alone, *strict, *style, folder, __file__], plugins=[report])


def main() -> int:
    """Run the tests and show the report; return the exit status."""
    report = Report()
    # The suite has a paused clock too. No test moves it: each has one of its own.
    with (
        time_machine.travel(0, tick=False),
        redirect_stdout(io.StringIO()) as ordinary_report,
    ):
        start = time.time()
        status = run_pytest(report)
        seconds = time.time() - start
    if status in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
        report.show(seconds)
    else:  # there was something else than tests that failed
        print(ordinary_report.getvalue(), file=sys.stderr)
    return status


# ------------------------------------------- the paused clock, by time-machine

END = 2**48  # ms, or 8,900 years: below it the noise of a float sum is less than 1 ms


class PausedSelector(selectors.DefaultSelector):
    """Waits for sockets, but never for time: it has the clock moved instead."""

    def __init__(self, jump: Callable[[], None]) -> None:
        super().__init__()
        self.jump = jump
        self.idle: deque[asyncio.Future[None]] = deque()

    def select(
        self, timeout: float | None = None
    ) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:  # a task can run: the clock stands
            return []
        if self.idle:  # someone waits for the moment when no task can run
            moment = self.idle.popleft()
            if not moment.done():
                moment.set_result(None)
            return []
        if timeout is None:  # no timer is pending
            if len(self.get_map()) == 1:  # only the loop's own wake-up socket
                raise RuntimeError("deadlock: no timer or socket can wake any task")
            return super().select()
        ready = super().select(0)
        self.jump()
        return ready


class PausedTimer(asyncio.TimerHandle):
    """A timer that goes off after those set before it for the same millisecond."""

    rank: int
    _scheduled: bool

    def __lt__(self, other: "PausedTimer") -> bool:  # type: ignore[override]
        return self.rank < other.rank


class PausedLoop(asyncio.SelectorEventLoop):
    """An event loop under time-machine's clock. It does not see threads: use none."""

    _scheduled: list[PausedTimer]
    _clock_resolution: float

    def __init__(self, shift: Callable[[float], None]) -> None:
        self.shift = shift
        self.selector = PausedSelector(self.jump)
        self.timers_set = 0
        super().__init__(self.selector)
        self._clock_resolution = 0.0005  # s: what is due within half a ms is due

    def time(self) -> float:
        return time.time()

    def jump(self) -> None:
        """Shift the clock to the first timer."""
        due = self._scheduled[0].rank >> 64
        seconds, ms = divmod(due - time.time_ns() // 1_000_000, 1000)
        # In two steps: most releases of time-machine cut off the noise of the product
        # that makes nanoseconds of it. 1.001 s would lose one, 1 s and 0.001 s do not.
        self.shift(seconds)
        self.shift(ms / 1000)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        # Up to the next whole millisecond, but not for the noise of a float sum.
        due = math.ceil(when * 1000 * (1 - 2**-48))
        if due >= END:
            raise OverflowError("the paused clock ends after 2**48 ms, or 8,900 years")
        timer = PausedTimer(due / 1000, callback, args, self, context)
        self.timers_set += 1
        timer.rank = (due << 64) + self.timers_set
        heapq.heappush(self._scheduled, timer)
        timer._scheduled = True
        return timer


def run_paused(main: Coroutine[Any, Any, Any]) -> Any:
    """Run `main` like asyncio.run, under a paused clock of its own; return its result.

    time-machine has one clock for the whole process. So run one `main` at a time.
    """
    with (
        time_machine.travel(0, tick=False) as clock,
        asyncio.Runner(loop_factory=lambda: PausedLoop(clock.shift)) as runner,
    ):
        return runner.run(main)


async def advance(ms: int) -> None:
    """Move the clock on by `ms`; return when all that came due has run."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, PausedLoop), "only a paused clock can be moved"
    await asyncio.sleep(ms / 1000)
    moment = loop.create_future()
    loop.selector.idle.append(moment)
    await moment


if __name__ == "__main__":
    sys.exit(main())
