"""Stage 1: a service with retries and a dead-letter queue

A service takes jobs over TCP, one line of text for each command, and a worker runs
them. Some jobs fail. A failed one is tried again, up to three attempts, with a longer
wait each time; one that fails every time goes to the list of dead letters. Here a job
says itself how many of its attempts fail.

The codec turns lines into typed commands. Bad input becomes a command as well
(`Invalid`), so it gets a reply and the connection goes on.

Look for: a client that asks every 50 ms, about jobs that wait 100 and 200 ms, is done
at 626 ms and not at 600 or 650. While the loop has nothing to do but to wait for a
socket, the paused clock moves on to the next wake-up of its timer wheel, and on the
way to a deadline the wheel wakes up where a coarser slot begins, such as at 576.
"""

import asyncio
import heapq
import math
import selectors
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

MAX_ATTEMPTS = 3
BASE_DELAY = 100  # ms
QUEUE_SIZE = 16  # jobs; when it is full, SUBMIT waits
MAX_LINE = 8 * 1024  # bytes, without the line's end
LAST_REPLIES = 1.0  # s that a client has to read its replies when its connection ends
MAX_FAILS = 2**32 - 1

LINES = ["SUBMIT resize 0", "SUBMIT upload 2", "SUBMIT export 5", "SUBMIT sync x"]
POLL = 50  # ms


# The codec: lines to commands, replies to lines.


@dataclass(frozen=True)
class Submit:
    name: str
    fails: int  # so many attempts fail before one succeeds


@dataclass(frozen=True)
class Stats:
    pass


@dataclass(frozen=True)
class Dead:
    pass


@dataclass(frozen=True)
class Invalid:
    message: str


Command = Submit | Stats | Dead | Invalid


@dataclass(frozen=True)
class Accepted:
    id: int


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Error:
    message: str


Reply = Accepted | Text | Error


def decode(line: str) -> Command:
    """Turn a line into a command. Bad input is a command too: Invalid."""
    match line.split():
        case ["SUBMIT", name, text]:
            fails = parse_fails(text)
            if fails is None:
                return Invalid(f"bad fail count {text}")
            return Submit(name, fails)
        case ["STATS"]:
            return Stats()
        case ["DEAD"]:
            return Dead()
        case _:
            return Invalid(f"unknown command {line}")


def parse_fails(text: str) -> int | None:
    """Return the number from 0 to MAX_FAILS that `text` spells, or None.

    int() alone takes too much: blanks, underscores, a minus, digits of any script.
    """
    digits = text.removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        return None
    digits = digits.lstrip("0") or "0"
    if len(digits) > len(str(MAX_FAILS)) or int(digits) > MAX_FAILS:
        return None
    return int(digits)


def encode(reply: Reply) -> bytes:
    match reply:
        case Accepted(job_id):
            line = f"OK {job_id}"
        case Text(text):
            line = text
        case Error(message):
            line = f"ERR {message}"
    return f"{line}\n".encode()


class BadLine(Exception):
    """A line that cannot be served. The connection goes on."""


async def read_line(reader: asyncio.StreamReader) -> str | None:
    """Return the next line without its end (LF or CRLF), or None after the last one.

    The last line may have no end. Raises BadLine for a line that is longer than
    MAX_LINE, when all of it has been thrown away, and for one that is not UTF-8.
    The reader needs a limit of MAX_LINE + 1, which leaves room for a CR.
    """
    try:
        line = await reader.readuntil(b"\n")
    except asyncio.IncompleteReadError as end:
        if not end.partial:
            return None
        line = end.partial
    except asyncio.LimitOverrunError:
        await skip_line(reader)
        raise BadLine("line too long") from None
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    if len(line) > MAX_LINE:
        raise BadLine("line too long")
    try:
        return line.decode()
    except UnicodeDecodeError:
        raise BadLine("line is not UTF-8") from None


async def skip_line(reader: asyncio.StreamReader) -> None:
    """Throw away the rest of a line, in pieces, so that memory stays bounded."""
    while True:
        try:
            await reader.readuntil(b"\n")
            return
        except asyncio.LimitOverrunError as overrun:
            await reader.readexactly(overrun.consumed)
        except asyncio.IncompleteReadError:
            return


async def read_command(reader: asyncio.StreamReader) -> Command | None:
    """Return the next command, or None after the last one."""
    try:
        line = await read_line(reader)
    except BadLine as bad:
        return Invalid(str(bad))
    return None if line is None else decode(line)


# The worker: attempts, waits between them, and the dead-letter list.


@dataclass(frozen=True)
class Job:
    name: str
    fails: int


@dataclass
class Shared:
    """What the connections and the worker both write to, and STATS reads."""

    submitted: int = 0
    done: int = 0
    retried: int = 0
    dead: list[str] = field(default_factory=list)

    def stats(self) -> str:
        pending = self.submitted - self.done - len(self.dead)
        return (
            f"STATS submitted={self.submitted} done={self.done} "
            f"retried={self.retried} dead={len(self.dead)} pending={pending}"
        )


async def run_job(job: Job, shared: Shared) -> None:
    """Try `job` up to MAX_ATTEMPTS times, then give it up as dead."""
    for attempt in range(1, MAX_ATTEMPTS + 1):
        if attempt > job.fails:
            shared.done += 1
            return
        if attempt < MAX_ATTEMPTS:
            shared.retried += 1
            delay = BASE_DELAY * 2 ** (attempt - 1)
            await asyncio.sleep(delay / 1000)
    shared.dead.append(job.name)


async def worker(jobs: asyncio.Queue[Job], shared: Shared) -> None:
    """Run the jobs one after the other."""
    while True:
        await run_job(await jobs.get(), shared)


# The server: one task for each connection.


async def perform(command: Command, jobs: asyncio.Queue[Job], shared: Shared) -> Reply:
    """Carry out `command`. SUBMIT waits here while the queue is full."""
    match command:
        case Submit(name, fails):
            shared.submitted += 1
            job_id = shared.submitted
            await jobs.put(Job(name, fails))
            return Accepted(job_id)
        case Stats():
            return Text(shared.stats())
        case Dead():
            return Text(f"DEAD {','.join(shared.dead)}")
        case Invalid(message):
            return Error(message)


async def handle(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    jobs: asyncio.Queue[Job],
    shared: Shared,
) -> None:
    """Serve one connection until the client ends it."""
    try:
        while command := await read_command(reader):
            reply = await perform(command, jobs, shared)
            writer.write(encode(reply))
            await writer.drain()
    except OSError:
        pass  # the client is gone; what it submitted stays
    finally:
        await hang_up(writer)


async def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close the connection once the client has its replies, or does not read them."""
    writer.close()
    try:
        async with asyncio.timeout(LAST_REPLIES):
            await writer.wait_closed()
    except TimeoutError:
        writer.transport.abort()
    except OSError:
        pass  # the client is gone


async def serve(
    jobs: asyncio.Queue[Job],
    shared: Shared,
    connections: set[asyncio.Task[None]],
    port: int = 0,
) -> asyncio.Server:
    """Listen on `port`, 0 for any free one; keep the open connections in the set."""

    def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(handle(reader, writer, jobs, shared))
        connections.add(task)
        task.add_done_callback(connections.discard)

    return await asyncio.start_server(connect, "127.0.0.1", port, limit=MAX_LINE + 1)


# The scenario: a client in the same process.


class Client:
    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def connect(cls, server: asyncio.Server) -> Self:
        host, port = server.sockets[0].getsockname()
        return cls(*await asyncio.open_connection(host, port))

    async def ask(self, line: str) -> str:
        """Send `line`; return the reply to it, or nothing at the end of the stream."""
        self.writer.write(f"{line}\n".encode())
        return (await self.reader.readline()).decode().removesuffix("\n")

    async def settle(self, poll: int) -> str:
        """Ask for STATS every `poll` ms until no job is pending; return the last."""
        while not (stats := await self.ask("STATS")).endswith("pending=0"):
            await asyncio.sleep(poll / 1000)
        return stats

    async def close(self) -> None:
        self.writer.close()
        await self.writer.wait_closed()


async def main(lines: Sequence[str] = LINES, poll: int = POLL) -> None:
    loop = asyncio.get_running_loop()
    shared = Shared()
    jobs: asyncio.Queue[Job] = asyncio.Queue(QUEUE_SIZE)
    connections: set[asyncio.Task[None]] = set()
    working = asyncio.create_task(worker(jobs, shared))
    server = await serve(jobs, shared, connections)

    client = await Client.connect(server)
    start = loop.time()
    for line in lines:
        print(f"{line:<16} -> {await client.ask(line)}")
    print(await client.settle(poll))
    print(await client.ask("DEAD"))
    print(f"virtual time: {round((loop.time() - start) * 1000)} ms")

    await client.close()
    server.close()
    while connections:
        await asyncio.wait(connections)
    working.cancel()


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
