"""Stage 1: retry, tested without waiting

Code that retries is about time. A test that lets real time pass is slow, and it can
say only "about 300 ms". Here the clock stands still while any task can run, and jumps
to the next deadline when none can. So a test takes no time and says "300 ms, exactly".

The clock is time-machine's: `time.time()` is what the event loop goes by. pytest runs
the tests, here or with `pytest` and this file's name, and a plugin of a few lines
shows the results.

Look for: three attempts mean two waits, 100 and 200 ms. The last failure comes out at
once, so a test that expects a third wait of 400 ms fails.
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
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

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


# ----------------------------------------------------------------------- the tests


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
async def test_first_success_waits_for_nothing() -> None:
    assert await retry(3, BASE, fails(0)) == 1
    assert now() == 0


@paused
async def test_two_failures_wait_100_then_200() -> None:
    assert await retry(3, BASE, fails(2)) == 3
    assert now() == 300


@paused
async def test_exhausted_retries_return_the_last_error() -> None:
    with pytest.raises(AttemptFailed, match="attempt 3"):
        await retry(3, BASE, fails(3))
    # Two waits: after attempt 1 and after attempt 2. None after the last.
    assert now() == 300


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
