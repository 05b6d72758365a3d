"""Stage 3: error policy

Sometimes every result counts, with errors as some of them. Sometimes the first error
makes the rest pointless. The caller chooses. This is the full program.

New since stage 2: `crawl` takes a `Policy`. Under FailFast the first error cancels
every task of the crawl, those that fetch and those that still wait for a permit. A
cancelled task is done as well, so it comes out of the same queue and is counted.

Look for: under FailFast the crawl ends at 80 ms. Two fetches were running and four
pages were waiting, which makes six cancelled.
"""

import asyncio
import heapq
import math
import selectors
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Policy(Enum):
    COLLECT_ALL = "CollectAll"
    FAIL_FAST = "FailFast"


@dataclass(frozen=True)
class Page:
    path: str
    ms: int
    fails: bool = False


PAGES = [
    Page("/home", 120),
    Page("/about", 80, fails=True),
    Page("/blog", 200),
    Page("/blog/1", 60),
    Page("/blog/2", 90),
    Page("/contact", 150),
    Page("/faq", 70),
]
LIMIT = 3


class FetchError(Exception):
    """A page could not be fetched. That is a result like any other."""


async def fetch(page: Page) -> int:
    """Download `page`; return its size in bytes or raise FetchError."""
    await asyncio.sleep(page.ms / 1000)
    if page.fails:
        raise FetchError(f"{page.path}: timeout")
    return len(page.path) * 100


class InFlight:
    """Counts the fetches that run. One that fails or is cancelled is counted out."""

    def __init__(self) -> None:
        self.active = 0
        self.peak = 0

    def __enter__(self) -> None:
        self.active += 1
        self.peak = max(self.peak, self.active)

    def __exit__(self, *exc_info: object) -> None:
        self.active -= 1


async def visit(
    page: Page, permits: asyncio.Semaphore, in_flight: InFlight
) -> tuple[Page, int | FetchError]:
    """Fetch `page`; return it with its size, or with the error it met."""
    try:
        async with permits:
            with in_flight:
                return page, await fetch(page)
    except FetchError as error:
        return page, error


async def crawl(pages: Sequence[Page], limit: int, policy: Policy) -> None:
    """Fetch all `pages`, `limit` at a time; print each result as it comes."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    permits = asyncio.Semaphore(limit)
    in_flight = InFlight()
    # Each task puts itself into the queue when it is done. So the queue holds them
    # in the order in which they finish.
    finished: asyncio.Queue[asyncio.Task[tuple[Page, int | FetchError]]]
    finished = asyncio.Queue()
    tasks = []
    ok = errors = cancelled = 0
    async with asyncio.TaskGroup() as group:
        for page in pages:
            task = group.create_task(visit(page, permits, in_flight))
            task.add_done_callback(finished.put_nowait)
            tasks.append(task)
        for _ in pages:
            task = await finished.get()
            at = round((loop.time() - start) * 1000)
            if task.cancelled():
                cancelled += 1
                continue
            match task.result():
                case page, FetchError() as error:
                    errors += 1
                    print(f"[{at:>3} ms] error: {error}")
                    if policy is Policy.FAIL_FAST:
                        for other in tasks:
                            other.cancel()
                case page, size:
                    ok += 1
                    print(f"[{at:>3} ms] {page.path} -> {size} bytes")
    print(
        f"{policy.value}: ok={ok} errors={errors} cancelled={cancelled} "
        f"peak={in_flight.peak}"
    )


async def main() -> None:
    await crawl(PAGES, LIMIT, Policy.COLLECT_ALL)
    print("---")
    await crawl(PAGES, LIMIT, Policy.FAIL_FAST)


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
