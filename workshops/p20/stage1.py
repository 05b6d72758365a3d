"""Stage 1: an actor that crashes

An actor is a task with a state and a mailbox. It handles one message at a time, so its
state needs no lock. Callers send messages through a handle, each with a future for the
reply. When the actor crashes, no caller may wait for a reply that never comes.

Look for: the two errors differ. `no reply` means that the actor took the message up and
crashed before it answered; `actor stopped`, that the mailbox is closed.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable
from dataclasses import dataclass, field
from typing import Self

CAPACITY = 8  # messages that wait in the mailbox


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


def start() -> tuple[Handle, asyncio.Task[None]]:
    """Start an actor; return its handle and its task."""
    mailbox = Mailbox(CAPACITY)
    task = asyncio.create_task(actor(mailbox))
    # Not in a `finally`: a task that is cancelled before it has begun runs none.
    task.add_done_callback(lambda _: mailbox.abandon())
    return Handle(mailbox), task


async def outcome(call: Awaitable[int]) -> str:
    """Wait for `call`; return its result, or its error, as text."""
    try:
        return f"Ok({await call})"
    except CallError as error:
        return f'Err("{error}")'


async def main() -> None:
    handle, task = start()

    print(f"add 5 -> {await outcome(handle.add(5))}")
    print(f"add 3 -> {await outcome(handle.add(3))}")
    print(f"boom -> {await outcome(handle.boom())}")
    await asyncio.wait([task])
    panicked = task.exception() is not None
    print(f"task panicked: {str(panicked).lower()}")
    print(f"add 1 -> {await outcome(handle.add(1))}")


if __name__ == "__main__":
    asyncio.run(main())
