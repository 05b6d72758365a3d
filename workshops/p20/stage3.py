"""Stage 3: a limit, and giving up

An actor that crashes each time is not helped by one more restart. After three of them
the supervisor gives up, and everybody who calls is told so. This is the full program.

New since stage 2: `supervise` takes the most restarts there may be, and returns how
many it made. The mailbox ends with the supervisor, so nobody waits in vain.

Look for: the waits are 100, 200 and 400 ms, so the fourth crash comes at 700 ms. The
caller of that one gets `no reply`, since the actor had taken its message up. The call
after it finds the mailbox closed.
"""

import asyncio
import heapq
import math
import selectors
from collections import deque
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Self

CAPACITY = 8  # messages that wait in the mailbox
FIRST_DELAY = 100  # ms
MAX_DELAY = 24 * 60 * 60 * 1000  # ms: a day
MAX_RESTARTS = 3


class CallError(Exception):
    """A call that has no result."""


class NoReply(CallError):
    """The actor took the message up, and ended before it answered."""


class ActorStopped(CallError):
    """The actor is gone, and has not seen the message."""


def new_reply() -> asyncio.Future[int]:
    return asyncio.get_running_loop().create_future()


@dataclass(frozen=True, eq=False)
class Message:
    """A request to the actor, and the future in which its caller waits for the reply.

    A caller that is cancelled has cancelled the future. Then nobody wants the reply any
    more, and to give one does nothing.
    """

    reply: asyncio.Future[int] = field(default_factory=new_reply, kw_only=True)

    def answer(self, result: int) -> None:
        if not self.reply.done():
            self.reply.set_result(result)

    def fail(self, error: CallError) -> None:
        if not self.reply.done():
            self.reply.set_exception(error)
            # asyncio reports an error that nobody has looked at. But it is no fault if
            # the caller left before it came to wait for the reply.
            self.reply.exception()


@dataclass(frozen=True, eq=False)
class Add(Message):
    n: int


@dataclass(frozen=True, eq=False)
class Boom(Message):
    """Makes the actor crash."""


class Mailbox:
    """The messages for an actor, in the order in which they came.

    The actor reads them with `async for`. The mailbox remembers the message it handed
    out last until the next one is asked for. So when the actor has crashed, it is known
    whose request was lost.
    """

    def __init__(self, capacity: int) -> None:
        self._room = asyncio.Semaphore(capacity)
        self._messages: deque[Message] = deque()
        self._current: Message | None = None
        self._closed = False
        self._changed = asyncio.Event()

    async def put(self, message: Message) -> None:
        """Add `message`. While the mailbox is full, wait for room.

        Raises ActorStopped if the mailbox is closed, or is closed during the wait.
        """
        await self._room.acquire()
        if self._closed:
            self._room.release()  # the next one that waits has to learn of it, too
            raise ActorStopped("actor stopped")
        self._messages.append(message)
        self._changed.set()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Message:
        """Hand out the next message, or end when the mailbox is closed and empty."""
        self.fail_current()  # if the actor has not answered by now, it never will
        while not self._messages:
            if self._closed:
                raise StopAsyncIteration
            self._changed.clear()
            await self._changed.wait()
        self._current = self._messages.popleft()
        self._room.release()
        return self._current

    def fail_current(self) -> None:
        """Let the message that was handed out last fail, unless it is answered."""
        if self._current is not None:
            self._current.fail(NoReply("no reply"))
            self._current = None

    def close(self) -> None:
        """Take no more messages. Those that are in the mailbox are still handed out."""
        self._closed = True
        self._changed.set()
        self._room.release()

    def abandon(self) -> None:
        """Close the mailbox for good: nobody will read it again.

        The message that was handed out last fails with NoReply, all others fail with
        ActorStopped.
        """
        self.fail_current()
        while self._messages:
            self._messages.popleft().fail(ActorStopped("actor stopped"))
        self.close()


class Handle:
    """What callers have of an actor. It stays the same when the actor is restarted."""

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox

    async def call(self, message: Message) -> int:
        """Send `message` to the actor; return its reply.

        Raises NoReply if the actor ends while it handles the message, and ActorStopped
        if it does not come to that.
        """
        await self._mailbox.put(message)
        return await message.reply

    async def add(self, n: int) -> int:
        """Add `n` to the actor's total; return the new total."""
        return await self.call(Add(n))

    async def boom(self) -> int:
        """Make the actor crash."""
        return await self.call(Boom())

    def close(self) -> None:
        """Stop the actor when it has handled what is in its mailbox."""
        self._mailbox.close()


async def actor(mailbox: Mailbox) -> None:
    """Handle the messages one at a time. Only this function touches the total."""
    total = 0
    async for message in mailbox:
        match message:
            case Add(n):
                total += n
                message.answer(total)
            case Boom():
                raise RuntimeError("boom")


def backoff(restarts: int) -> int:
    """Return the wait in ms before the next restart, when `restarts` were made."""
    return min(FIRST_DELAY << restarts, MAX_DELAY)


def being_cancelled() -> bool:
    """Return whether somebody has cancelled the task that runs."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def crashed(mailbox: Mailbox) -> bool:
    """Run an actor until it ends; return whether that was a crash.

    A cancellation reaches the actor first, and goes on when the actor has ended.
    """
    task = asyncio.create_task(actor(mailbox))
    try:
        await task
    except (Exception, asyncio.CancelledError):
        if being_cancelled():
            raise
        # CancelledError can also come from a task that the actor waited for. When
        # nobody has cancelled the actor itself, that is a crash like any other.
        return not (task.cancelled() and task.cancelling())
    return False


async def supervise(mailbox: Mailbox, max_restarts: int) -> int:
    """Run an actor, and a new one after each crash; return the number of restarts.

    Ends when the actor stops, or crashes after `max_restarts` restarts.
    """
    restarts = 0
    while await crashed(mailbox):
        if restarts >= max_restarts:
            print(f"[{elapsed():>3} ms] actor panicked, giving up")
            break
        delay = backoff(restarts)
        restarts += 1
        print(f"[{elapsed():>3} ms] actor panicked, restart {restarts} in {delay}ms")
        # Only now does the caller learn of the crash. So what it does next comes after
        # the report, whichever task the loop would have run first.
        mailbox.fail_current()
        await asyncio.sleep(delay / 1000)
    return restarts


def start(max_restarts: int) -> tuple[Handle, asyncio.Task[int]]:
    """Start a supervised actor; return its handle and the task of the supervisor."""
    mailbox = Mailbox(CAPACITY)
    supervisor = asyncio.create_task(supervise(mailbox, max_restarts))
    # Not in a `finally`: a task that is cancelled before it has begun runs none.
    supervisor.add_done_callback(lambda _: mailbox.abandon())
    return Handle(mailbox), supervisor


def elapsed() -> int:
    """Return the time since the start in ms. The paused clock begins at 0."""
    return round(asyncio.get_running_loop().time() * 1000)


async def outcome(call: Awaitable[int]) -> str:
    """Wait for `call`; return its result, or its error, as text."""
    try:
        return f"Ok({await call})"
    except CallError as error:
        return f'Err("{error}")'


async def main() -> None:
    handle, supervisor = start(MAX_RESTARTS)

    print(f"add 5 -> {await outcome(handle.add(5))}")
    for number in range(1, 5):
        print(f"boom {number} -> {await outcome(handle.boom())}")
    print(f"add 1 -> {await outcome(handle.add(1))}")
    print(f"restarts used: {await supervisor}")


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
