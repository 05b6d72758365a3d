"""The job queue with other inputs than its scenario, and clients that misbehave."""

import asyncio
import logging
import tracemalloc
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.scripts import load_script

STAGES = ["workshops/p27/stage1.py", "workshops/p27/stage2.py"]


@pytest.fixture(params=STAGES, ids=["stage1", "stage2"])
def stage(request: pytest.FixtureRequest) -> ModuleType:
    return load_script(request.param)


@pytest.fixture
def last() -> Iterator[Any]:
    """Stage 2, whose logger is as before when the test is done."""
    stage: Any = load_script(STAGES[1])
    yield stage
    stage.log.handlers.clear()


class Service:
    """A running service of one stage, with what its parts share."""

    def __init__(self, stage: Any) -> None:
        self.stage = stage
        self.shared = stage.Shared()
        self.jobs: Any = asyncio.Queue(stage.QUEUE_SIZE)
        self.connections: Any = set()
        self.has_stop = hasattr(stage, "CancellationToken")
        self.stop: Any = stage.CancellationToken() if self.has_stop else None

    async def __aenter__(self) -> "Service":
        self.working = asyncio.create_task(self.stage.worker(self.jobs, self.shared))
        arguments = [self.jobs, self.shared, self.connections]
        if self.has_stop:
            arguments.append(self.stop)
        self.server = await self.stage.serve(*arguments)
        self.address = self.server.sockets[0].getsockname()
        return self

    async def shut_down(self) -> None:
        await self.stage.shut_down(
            self.server, self.stop, self.connections, self.jobs, self.working
        )

    async def __aexit__(self, failed: object, *exc_info: object) -> None:
        if failed:
            return  # the loop ends what is left
        if self.has_stop:
            await self.shut_down()
            return
        self.server.close()
        while self.connections:
            await asyncio.wait(self.connections)
        self.working.cancel()

    async def client(self) -> Any:
        return await self.stage.Client.connect(self.server)

    async def raw(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.address, limit=2**24)

    async def answers(self, sent: bytes) -> list[str]:
        """Send bytes and the end of the stream; return the lines that come back."""
        reader, writer = await self.raw()
        writer.write(sent)
        writer.write_eof()
        received = await reader.read()
        writer.close()
        await writer.wait_closed()
        assert received.endswith(b"\n") or not received
        return received.decode().splitlines()


def answers(stage: Any, sent: bytes) -> list[str]:
    async def main() -> list[str]:
        async with Service(stage) as service:
            return await service.answers(sent)

    lines: list[str] = stage.run_paused(main())
    return lines


# The times of the design's table, measured on Tokio.


@pytest.mark.parametrize(
    ("poll", "jobs", "ms"),
    [
        (50, "resize 0, upload 2, export 5, sync x", 626),
        (30, "resize 0, upload 2, export 5, sync x", 606),
        (120, "a 3, b 4, c 2, d 1, e 0", 1016),
        (7, "a 1, b 1, c 1", 307),
    ],
)
def test_virtual_time_is_what_tokio_measures(
    capsys: pytest.CaptureFixture[str], poll: int, jobs: str, ms: int
) -> None:
    first: Any = load_script(STAGES[0])
    lines = [f"SUBMIT {job}" for job in jobs.split(", ")]
    first.run_paused(first.main(lines, poll))
    assert capsys.readouterr().out.splitlines()[-1] == f"virtual time: {ms} ms"


# What a line may be.


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("+7", 7),
        ("007", 7),
        ("4294967295", 2**32 - 1),
        ("0" * 8000 + "1", 1),
        *((text, None) for text in ("4294967296", "-1", "-0", "1_0", "٣", "")),
        *((text, None) for text in ("+", "++1", "1.0", "0x1", "x", "9" * 8000, "²")),
    ],
)
def test_a_fail_count_is_what_a_u32_parses(
    stage: Any, text: str, number: int | None
) -> None:
    assert stage.parse_fails(text) == number


@pytest.mark.parametrize("text", ["1_0", "-1", "٣", "4294967296"])
def test_a_bad_fail_count_is_answered(stage: Any, text: str) -> None:
    assert answers(stage, f"SUBMIT sync {text}\n".encode()) == [
        f"ERR bad fail count {text}"
    ]


def test_a_line_may_end_in_lf_crlf_or_with_the_stream(stage: Any) -> None:
    assert answers(stage, b"SUBMIT a 0\r\nSUBMIT b 0\nSUBMIT c 0") == [
        "OK 1",
        "OK 2",
        "OK 3",
    ]
    assert answers(stage, b"DEAD\r") == ["DEAD "]


def test_an_unknown_command_is_answered_with_its_line(stage: Any) -> None:
    sent = b"PAUSE\n\n  submit a 0\nSUBMIT a\nSUBMIT a 0 0\nSTATS now\n"
    assert answers(stage, sent) == [
        "ERR unknown command PAUSE",
        "ERR unknown command ",
        "ERR unknown command   submit a 0",
        "ERR unknown command SUBMIT a",
        "ERR unknown command SUBMIT a 0 0",
        "ERR unknown command STATS now",
    ]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_a_line_of_8_kib_is_served_and_a_longer_one_thrown_away(
    stage: Any, end: bytes
) -> None:
    fits = b"x" * 8192
    assert answers(stage, fits + end + fits + b"x" + end + b"DEAD" + end) == [
        f"ERR unknown command {fits.decode()}",
        "ERR line too long",
        "DEAD ",
    ]


def test_a_long_line_may_be_the_last_one(stage: Any) -> None:
    assert answers(stage, b"DEAD\n" + b"x" * 8193) == ["DEAD ", "ERR line too long"]
    assert answers(stage, b"x" * 1_000_000) == ["ERR line too long"]


def test_bytes_that_are_not_utf_8_are_answered(stage: Any) -> None:
    assert answers(stage, b"SUBMIT \xff 0\nSUBMIT \xc3\xa9 5\nDEAD\n") == [
        "ERR line is not UTF-8",
        "OK 1",
        "DEAD ",
    ]


def test_a_line_without_end_is_read_in_bounded_memory(stage: Any) -> None:
    async def main() -> list[str]:
        async with Service(stage) as service:
            reader, writer = await service.raw()
            tracemalloc.start()
            for _ in range(1024):  # 64 MiB in all
                writer.write(b"x" * 65_536)
                await writer.drain()
            writer.write(b"\nSTATS\n")
            writer.write_eof()
            lines = (await reader.read()).decode().splitlines()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak < 2**20  # bytes
            writer.close()
            await writer.wait_closed()
            return lines

    assert stage.run_paused(main()) == [
        "ERR line too long",
        "STATS submitted=0 done=0 retried=0 dead=0 pending=0",
    ]


def test_1000_commands_in_one_write_get_1000_replies_in_order(stage: Any) -> None:
    sent = b"".join(b"SUBMIT job%d 0\n" % number for number in range(1000))
    assert answers(stage, sent) == [f"OK {number}" for number in range(1, 1001)]


# Clients that misbehave, and the others.


def test_a_client_that_vanishes_in_the_middle_of_a_line_disturbs_nobody(
    stage: Any,
) -> None:
    async def main() -> str:
        async with Service(stage) as service:
            client = await service.client()
            _, writer = await service.raw()
            writer.write(b"STATS\nSUBMIT half")
            await writer.drain()
            await client.ask("STATS")
            writer.transport.abort()
            reply: str = await client.ask("SUBMIT whole 0")
            await client.close()
            return reply

    assert stage.run_paused(main()) == "OK 1"


def test_a_client_that_never_reads_disturbs_nobody_and_is_let_go(last: Any) -> None:
    async def main() -> tuple[str, int]:
        async with Service(last) as service:
            _, writer = await service.raw()
            writer.write((b"x" * 8000 + b"\n") * 4000)  # 32 MB of replies
            client = await service.client()
            for _ in range(200):  # until the server cannot send any more
                await client.ask("STATS")
            assert len(service.connections) == 2
            reply = await client.ask("SUBMIT a 0")
            await service.shut_down()
            writer.transport.abort()
            await client.close()
            return reply, len(service.connections)

    assert last.run_paused(main()) == ("OK 1", 0)


def test_a_full_queue_lets_submit_wait_and_stats_answer(stage: Any) -> None:
    async def main() -> None:
        go_on = asyncio.Event()

        async def run_job(job: Any, shared: Any) -> None:
            await go_on.wait()
            shared.done += 1

        stage.run_job = run_job
        async with Service(stage) as service:
            submitting = await service.client()
            # One job is with the worker, and 16 are in the queue.
            for number in range(1, 18):
                assert await submitting.ask("SUBMIT slow 0") == f"OK {number}"
            waiting = asyncio.create_task(submitting.ask("SUBMIT slow 0"))
            asking = await service.client()
            for _ in range(10):
                reply = await asking.ask("STATS")
            assert reply == "STATS submitted=18 done=0 retried=0 dead=0 pending=18"
            assert not waiting.done()
            go_on.set()
            assert await waiting == "OK 18"
            await asking.settle(50)
            await submitting.close()
            await asking.close()

    stage.run_paused(main())


# The shutdown loses nothing.


@pytest.mark.parametrize("polls", range(8))
def test_100_submits_in_flight_at_the_stop_are_answered_and_run_or_neither(
    last: Any, polls: int
) -> None:
    async def main() -> tuple[list[str], Any]:
        service = Service(last)
        async with service:
            clients = [await service.raw() for _ in range(10)]
            for number, (_, writer) in enumerate(clients):
                for job in range(10):
                    writer.write(b"SUBMIT job%d.%d %d\n" % (number, job, job % 5))
            watching = await service.client()
            for _ in range(polls):
                await watching.ask("STATS")
            await service.shut_down()
            await watching.close()
            replies = []
            for reader, writer in clients:
                replies += (await reader.read()).decode().splitlines()
                writer.close()
                await writer.wait_closed()
        return replies, service.shared

    replies, shared = last.run_paused(main())
    assert all(reply.startswith("OK ") for reply in replies)
    assert shared.submitted == shared.done + len(shared.dead)
    accepted = {int(reply.removeprefix("OK ")) for reply in replies}
    assert accepted == set(range(1, shared.submitted + 1))
    assert len(replies) == shared.submitted
    # The queue of 16 was full, and each connection had one more job waiting for room.
    assert 26 <= shared.submitted < 100


def test_the_shutdown_ends_connections_and_refuses_new_ones(last: Any) -> None:
    async def main() -> None:
        async with Service(last) as service:
            idle = await service.client()
            await idle.ask("STATS")
            await service.shut_down()
            assert await idle.ask("STATS") == ""
            await idle.close()
            with pytest.raises(ConnectionRefusedError):
                await service.raw()
            assert asyncio.all_tasks() == {asyncio.current_task()}

    last.run_paused(main())


def test_a_second_shutdown_is_harmless(last: Any) -> None:
    async def main() -> None:
        async with Service(last) as service:
            service.stop.cancel()
            service.stop.cancel()

    last.run_paused(main())


# The log.


def logged(last: Any) -> list[str]:
    buffer = last.LogBuffer()
    last.log.addHandler(buffer)
    last.log.setLevel(logging.INFO)
    lines: list[str] = buffer.lines
    return lines


def test_two_jobs_in_flight_never_mix_their_spans(last: Any) -> None:
    lines = logged(last)

    async def main() -> None:
        shared = last.Shared()
        async with asyncio.TaskGroup() as group:
            for number in range(1, 6):
                job = last.Job(number, f"job{number}", number % 3)
                group.create_task(last.run_job(job, shared))
        last.log.info("nobody's line")

    last.run_paused(main())
    spans = [line.split("}: ")[0][5:] for line in lines if "done" in line]
    assert sorted(spans) == [f" run_job{{id={n} name=job{n}" for n in range(1, 6)]
    retries = [line for line in lines if "retrying" in line]
    assert len(retries) == sum(number % 3 for number in range(1, 6))
    assert lines[-1] == " INFO nobody's line"


def test_a_span_ends_with_its_job_also_when_that_raises(last: Any) -> None:
    lines = logged(last)

    def fail() -> None:
        with last.span("inner: "):
            last.log.warning("a warning")
            raise ZeroDivisionError

    with last.span("outer: "):
        with pytest.raises(ZeroDivisionError):
            fail()
        last.log.info("behind it")
    assert lines == [" WARN inner: a warning", " INFO outer: behind it"]
