"""Jobs of a directory's thread that wait until a client has taken what was sent."""

import asyncio
import errno
import gc
import os
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
from socket_pair import CONTENT, HEAD, TAIL, Pair
from waiting import until

from spindle.common.errors import LogDirectoryFailed
from spindle.disks.executor import Unfinished
from spindle.log.segments.file_range import FileRange, RangeLost
from spindle.runtime.disks import socket_poller
from spindle.runtime.disks.directory_thread import DirectoryThread
from spindle.runtime.network import sendfile_socket
from spindle.serving.fetch.response_parts import AnswerParts
from spindle.serving.fetch.sendfile_response import PartialResponse, StreamedResponse

WHOLE = HEAD + HEAD + CONTENT + TAIL
FOR_EVER_S = 1e6


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Pair]:
    made = Pair(tmp_path / "segment")
    yield made
    made.close()


def identity(parts: AnswerParts) -> AnswerParts:
    return parts


class Answer:
    """The answer of a pair, sent by a thread, and what its job returned at last."""

    def __init__(self, pair: Pair, thread: DirectoryThread, cuts: list[int]) -> None:
        self.end: asyncio.Future[PartialResponse | None] = (
            asyncio.get_running_loop().create_future()
        )
        records = FileRange(pair.handles, str(pair.path), 6, len(CONTENT), cuts)
        self.rest = StreamedResponse(thread, lambda: [HEAD, HEAD, records, TAIL])
        self.loan = pair.borrow_socket(may_wait=True)

    def start(self) -> None:
        self.rest.start_next_job(self._ended, self.loan)

    def _ended(self, sent: PartialResponse | None, error: BaseException | None) -> None:
        if error is None:
            self.end.set_result(sent)
        else:
            self.end.set_exception(error)


@asynccontextmanager
async def sending_thread(
    pair: Pair, *, most_wait_s: float, cuts: list[int] | None = None
) -> AsyncIterator[tuple[DirectoryThread, Answer]]:
    """Give a thread and the answer that it sends, and see that nothing is left of them."""
    before, loans = descriptors(pair), sendfile_socket.loans_left()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket_poller, "MAX_WAIT_S", most_wait_s)
        loop = asyncio.get_running_loop()
        thread = DirectoryThread("/d", loop, lambda _: None)
        try:
            yield thread, Answer(pair, thread, [] if cuts is None else cuts)
        finally:
            assert await asyncio.to_thread(thread.stop, 10.0)
    assert descriptors(pair) == before
    assert sendfile_socket.loans_left() == loans


def descriptors(pair: Pair) -> int:
    """Return how many are open but for the pair's file and client."""
    gc.collect()  # sockets of earlier tests
    is_client_open = pair.client.fileno() >= 0
    return len(os.listdir("/proc/self/fd")) - len(pair.handles) - is_client_open


async def end_while_read(pair: Pair, answer: Answer) -> PartialResponse | None:
    """Return how the job ends while the client reads all that comes."""
    reading = asyncio.create_task(asyncio.to_thread(pair.received, len(WHOLE)))
    try:
        return await answer.end
    finally:
        pair.own.shutdown(socket.SHUT_WR)
        await reading


async def client_reads(pair: Pair, size_bytes: int) -> bytes:
    return await asyncio.to_thread(pair.received, size_bytes)


async def test_other_jobs_run_while_one_waits_and_continues_as_the_client_reads(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (thread, answer):
        answer.start()
        for number in range(50):
            assert await thread.submit(abs, -number) == number
        assert not answer.end.done()
        assert await client_reads(pair, len(WHOLE)) == WHOLE
        assert await answer.end == (len(WHOLE), [], None)


async def test_a_job_that_comes_while_the_thread_only_waits_is_not_held_up(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (thread, answer):
        answer.start()
        await until(lambda: thread.is_asleep)
        assert await thread.submit(abs, -1) == 1
        assert await client_reads(pair, len(WHOLE)) == WHOLE
        await answer.end


async def test_a_client_that_takes_nothing_is_left_to_the_event_loop(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=0.001) as (_, answer):
        answer.start()
        sent = await answer.end
        assert sent is not None
        assert sent.rest is answer.rest
        assert 0 < len(b"".join(sent.next)) < 10_000
        begun = await client_reads(pair, sent.sent_bytes)
        assert begun + b"".join(sent.next) == WHOLE[: sent.sent_bytes + len(b"".join(sent.next))]
        answer.rest.give_up()


async def test_a_client_that_goes_while_its_answer_waits_ends_the_job(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (thread, answer):
        answer.start()
        await thread.submit(int)
        pair.client.close()
        sent = await answer.end
        assert sent is not None
        assert sent.sent_bytes < len(WHOLE)
        answer.rest.give_up()


async def test_records_that_are_cut_while_they_wait_are_not_sent(pair: Pair) -> None:
    cuts: list[int] = []

    async with sending_thread(pair, most_wait_s=FOR_EVER_S, cuts=cuts) as (thread, answer):
        answer.start()
        await thread.submit(cuts.append, 1000)
        with pytest.raises(RangeLost):
            await end_while_read(pair, answer)


async def test_a_directory_that_fails_ends_the_jobs_that_wait(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (thread, answer):
        answer.start()
        await thread.submit(int)
        thread.fail("broken")
        with pytest.raises(LogDirectoryFailed):
            await end_while_read(pair, answer)


async def test_a_thread_that_stops_waits_for_no_client(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (thread, answer):
        answer.start()
        await thread.submit(int)
        assert await asyncio.to_thread(thread.stop, 10.0)
        sent = await answer.end
        assert sent is not None
        assert sent.rest is answer.rest


async def test_a_thread_that_was_abandoned_frees_what_waits(pair: Pair) -> None:
    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (thread, answer):
        answer.start()
        await thread.submit(int)
        thread.wait_at_most(0)
        thread.watch.look()
        with pytest.raises(LogDirectoryFailed):
            await end_while_read(pair, answer)  # the socket has room, so the thread wakes up
        await until(lambda: not thread.hangs())


def test_nothing_waits_while_few_loans_are_left_or_none_may(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    for may_wait, left in ((True, 1000), (False, 0)):
        monkeypatch.setattr(sendfile_socket, "_RESERVED", left)
        loan, parts = pair.borrow_socket(may_wait=may_wait), pair.parts()
        assert loan is not None
        room = loan.send(partial(identity, parts))
        assert room is not None
        assert room.is_full
        assert loan.descriptor == -1
        pair.received(room.sent_bytes)


async def test_a_job_that_cannot_wait_is_left_to_the_event_loop(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_descriptor(*_: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    monkeypatch.setattr(os, "eventfd", no_descriptor)

    async with sending_thread(pair, most_wait_s=FOR_EVER_S) as (_, answer):
        answer.start()
        sent = await answer.end
        assert sent is not None
        assert sent.rest is answer.rest
        answer.rest.give_up()


async def test_jobs_that_are_queued_together_run_together_beside_busy_sockets() -> None:
    """The sockets of all jobs that wait have room all the time."""
    order: list[str] = []

    class Busy(Unfinished):
        def resume(self) -> object:
            order.append("socket")
            return self if len(order) < 100 else None

        def close(self, *, has_failed: bool) -> None:
            pass

    loop = asyncio.get_running_loop()
    thread = DirectoryThread("/d", loop, lambda _: None)
    end, queued = loop.create_future(), threading.Event()

    def start_waiting() -> object:
        assert queued.wait(10)
        return Busy(pipe.fileno())

    with socket.socketpair()[0] as pipe:
        thread.call(lambda *_: end.set_result(None), start_waiting)
        for _ in range(10):
            thread.submit_nowait(order.append, "append")
        queued.set()
        await end
    assert await asyncio.to_thread(thread.stop, 10.0)
    first = order.index("append")
    assert order[first : first + 10] == ["append"] * 10


async def test_a_file_that_cannot_be_closed_does_not_end_the_thread(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts: list[int] = []

    def broken(_: AnswerParts) -> None:
        raise OSError(errno.EIO, "Input/output error")

    async with sending_thread(pair, most_wait_s=FOR_EVER_S, cuts=cuts) as (thread, answer):
        answer.start()
        await thread.submit(cuts.append, 1000)
        monkeypatch.setattr(AnswerParts, "unpin_files", broken)
        with pytest.raises(RangeLost):
            await end_while_read(pair, answer)
        monkeypatch.undo()
        assert await thread.submit(abs, -1) == 1
