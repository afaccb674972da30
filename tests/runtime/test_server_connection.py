"""Frames in, answers out, in order: one connection with a transport that only notes things."""

import asyncio
import gc
import weakref
from random import Random
from struct import pack
from typing import Any

import pytest

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.common.promise import Promise
from spindle.runtime.frame_receiver import FrameReceiver
from spindle.runtime.network.connection import Connection, ConnectionLanes, ConnectionState
from spindle.runtime.network.request_limits import RequestLimits
from spindle.runtime.network.response_writer import Answer, Deferred

PRODUCE, METADATA = 0, 3


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.is_closed = False
        self._is_reading = True
        self.unsent_bytes = 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.9", 5555) if name == "peername" else default

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def write(self, data: Any) -> None:
        self.sent.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.sent.append(b"".join(map(bytes, list_of_data)))

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def is_reading(self) -> bool:
        return self._is_reading

    def pause_reading(self) -> None:
        self._is_reading = False

    def resume_reading(self) -> None:
        self._is_reading = True


class Server:
    """Answers with the frame itself, when told to."""

    lanes: ConnectionLanes | None = None

    def __init__(self, max_held_bytes: int = -1) -> None:
        self.limits = RequestLimits(
            max_request_bytes=10_000_000,
            max_connections=100,
            max_connections_per_ip=100,
            per_ip_overrides={},
            max_idle_ms=1000,
            max_held_bytes=max_held_bytes,
            max_descriptors=100,
        )
        self.frames: list[bytes] = []
        self.waiting: list[asyncio.Future[Answer]] = []
        self.answers_at_once = False
        self.promises_at_once = False
        self.accepts = True
        self.cannot_write = False
        self.is_alone = False
        self.open = 0

    def dispatch(self, connection: Connection, frame: Bytes) -> Answer | Deferred:
        self.frames.append(bytes(frame))
        if bytes(frame).endswith(b"bad"):
            raise ProtocolViolation("bad")
        if self.answers_at_once:
            return [bytes(frame)]
        loop = asyncio.get_running_loop()
        if self.promises_at_once:
            promise: Promise[Answer] = Promise(loop)
            promise.settle([bytes(frame)])
            return Deferred(promise, self._write)
        future: asyncio.Future[Answer] = loop.create_future()
        self.waiting.append(future)
        return Deferred(future, self._write, self.is_alone)

    def _write(self, answer: Answer) -> Answer:
        if self.cannot_write:
            raise ValueError("does not fit its field")
        return answer

    def connection_opened(self, connection: Connection) -> bool:
        self.open += self.accepts
        return self.accepts

    def connection_closed(self, connection: Connection) -> None:
        self.open -= self.accepts

    def on_protocol_violation(self, connection: Connection, violation: ProtocolViolation) -> None:
        connection.close()

    def bytes_received(self, count: int, /) -> None:
        pass

    def bytes_sent(self, count: int, /) -> None:
        pass


def frame(api_key: int, text: bytes) -> bytes:
    body = pack(">h", api_key) + text
    return pack(">i", len(body)) + body


class Session:
    def __init__(self, server: Server | None = None) -> None:
        self.server = server or Server()
        self.connection = Connection(self.server, "PLAINTEXT")
        self.transport = Transport()
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes, piece: int = 1 << 30) -> None:
        """Give the bytes to the connection, as a socket would."""
        view = memoryview(data)
        while view and not self.transport.is_closed:
            buffer = self.connection.get_buffer(-1)
            assert len(buffer) > 0
            count = min(len(buffer), len(view), piece)
            buffer[:count] = view[:count]
            self.connection.buffer_updated(count)
            view = view[count:]

    async def answer(self, index: int, text: bytes) -> None:
        self.server.waiting[index].set_result([text])
        await asyncio.sleep(0)
        await asyncio.sleep(0)


async def test_frames_may_come_in_any_pieces() -> None:
    session = Session()
    session.server.answers_at_once = True
    frames = [frame(METADATA, b"x" * size) for size in (0, 1, 100, 65_000, 70_000, 3_000_000)]
    session.receive(b"".join(frames[:3]))
    session.receive(b"".join(frames[:4]), piece=7)
    session.receive(b"".join(frames), piece=60_001)
    expected = [f[4:] for f in frames[:3] + frames[:4] + frames]
    assert session.server.frames == expected
    assert session.transport.sent == expected


async def test_a_request_waits_for_the_one_before_it() -> None:
    session = Session()
    session.receive(frame(METADATA, b"1") + frame(METADATA, b"2"))
    assert len(session.server.frames) == 1
    assert not session.transport.is_reading()
    await session.answer(0, b"one")
    assert len(session.server.frames) == 2
    assert session.transport.is_reading()
    await session.answer(1, b"two")
    assert session.transport.sent == [b"one", b"two"]


async def test_produce_requests_are_started_at_once_and_answered_in_order() -> None:
    session = Session()
    session.receive(frame(PRODUCE, b"1") + frame(PRODUCE, b"2") + frame(METADATA, b"3"))
    assert len(session.server.frames) == 2
    await session.answer(1, b"second")
    assert session.transport.sent == []
    await session.answer(0, b"first")
    assert session.transport.sent == [b"first", b"second"]
    assert len(session.server.frames) == 3


async def test_thousands_of_requests_that_are_answered_at_once_can_wait_for_one() -> None:
    session = Session()
    session.receive(frame(METADATA, b"slow") + frame(METADATA, b"1") * 5_000)
    session.server.promises_at_once = True
    await session.answer(0, b"slow")
    assert len(session.transport.sent) == 5_001


async def test_acks_0_gets_no_response() -> None:
    session = Session()
    session.receive(frame(PRODUCE, b"1") + frame(METADATA, b"2"))
    session.server.waiting[0].set_result(None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert session.transport.sent == []
    assert len(session.server.frames) == 2


@pytest.mark.parametrize("size", [0, -1, 2**31 - 1])
async def test_an_impossible_size_closes_the_connection(size: int) -> None:
    session = Session()
    session.receive(pack(">i", size) + b"xxxx")
    assert session.transport.is_closed
    assert session.server.frames == []


async def test_a_bad_request_closes_its_connection_only() -> None:
    session = Session()
    other = Session()
    session.receive(frame(METADATA, b"bad") + frame(METADATA, b"more"))
    assert session.transport.is_closed
    assert len(session.server.frames) == 1
    other.server.answers_at_once = True
    other.receive(frame(METADATA, b"fine"))
    assert other.transport.sent


async def test_an_answer_that_cannot_be_written_closes_its_connection() -> None:
    session = Session()
    session.server.cannot_write = True
    session.receive(frame(METADATA, b"1"))
    await session.answer(0, b"one")
    assert session.transport.is_closed
    assert session.transport.sent == []


async def test_a_claimed_size_takes_no_memory_before_its_bytes_come() -> None:
    session = Session()
    session.receive(pack(">i", 9_000_000))
    assert len(session.connection.get_buffer(-1)) <= 2 * 1024 * 1024
    session.receive(b"\0\3" + b"y" * 8_999_998)
    assert len(session.server.frames[0]) == 9_000_000


async def test_a_frame_that_the_memory_does_not_hold_closes_its_connection_only(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def grow(receiver: FrameReceiver) -> None:
        raise MemoryError

    session = Session()
    monkeypatch.setattr(FrameReceiver, "_grow_large", grow)
    session.receive(pack(">i", 9_000_000) + b"\0\3" + b"y" * 8_999_998)
    is_closed_within = session.transport.is_closed
    await asyncio.sleep(0)
    # Not within `get_buffer`: libuv aborts the process then.
    assert (is_closed_within, session.transport.is_closed) == (False, True)
    assert "no memory for a frame of 9000000 bytes" in caplog.text
    session.connection.buffer_updated(len(session.connection.get_buffer(-1)))
    assert session.server.frames == []


async def test_a_peer_that_does_not_read_is_not_read_from() -> None:
    session = Session()
    session.server.answers_at_once = True
    session.connection.pause_writing()
    session.receive(frame(METADATA, b"1"))
    assert session.server.frames == []
    assert not session.transport.is_reading()
    session.connection.resume_writing()
    assert len(session.transport.sent) == 1
    assert session.transport.is_reading()


async def test_a_lost_connection_cancels_what_waits() -> None:
    session = Session()
    session.receive(frame(METADATA, b"1"))
    session.connection.connection_lost(None)
    await asyncio.sleep(0)
    assert session.server.waiting[0].cancelled()
    assert session.server.open == 0


async def test_a_refused_connection_is_closed() -> None:
    server = Server()
    server.accepts = False
    transport = Transport()
    Connection(server, "PLAINTEXT").connection_made(transport)
    assert transport.is_closed


async def test_above_the_limit_of_held_bytes_nothing_more_is_read() -> None:
    server = Server(max_held_bytes=100)
    first, second = Session(server), Session(server)
    first.receive(frame(METADATA, b"x" * 200))
    second.receive(frame(METADATA, b"small"))
    assert len(server.frames) == 2
    assert not second.transport.is_reading()
    await first.answer(0, b"done")
    assert second.transport.is_reading()
    await second.answer(1, b"done")
    assert server.limits.held_bytes == 0


async def test_a_large_frame_is_begun_only_while_there_is_room_and_then_comes_to_its_end() -> None:
    server = Server(max_held_bytes=1000)
    first, second = Session(server), Session(server)
    large = frame(METADATA, b"y" * 300_000)
    first.receive(large[:100_000])
    assert first.transport.is_reading()
    second.receive(large[:10_000])
    assert not second.transport.is_reading()
    first.receive(large[100_000:])
    assert len(server.frames) == 1
    await first.answer(0, b"done")
    assert second.transport.is_reading()
    second.connection.connection_lost(None)
    assert server.limits.held_bytes == 0


async def test_a_lost_connection_gives_back_what_it_held() -> None:
    session = Session()
    session.receive(frame(PRODUCE, b"1") + frame(METADATA, b"2"))
    session.receive((frame(METADATA, b"z" * 100_000))[:5_000])
    session.connection.connection_lost(None)
    assert session.server.limits.held_bytes > 0, "the produce request is being worked on"
    session.server.waiting[0].set_result(None)
    await asyncio.sleep(0)
    assert session.server.limits.held_bytes == 0


async def test_a_request_that_must_be_alone_is_not_overtaken() -> None:
    session = Session()
    session.server.is_alone = True
    session.receive(frame(PRODUCE, b"1") + frame(PRODUCE, b"2"))
    assert len(session.server.frames) == 1
    await session.answer(0, b"one")
    assert len(session.server.frames) == 2


async def test_a_peer_that_does_not_read_is_idle_unless_it_reads_slowly() -> None:
    session = Session()
    session.server.answers_at_once = True
    connection, limits = session.connection, session.server.limits
    session.transport.unsent_bytes = 50_000
    connection.pause_writing()
    session.receive(frame(METADATA, b"1"))
    assert limits.unsent.total_bytes == 50_000
    connection.last_active_s = 0.0
    assert connection.is_idle_since(10.0)
    session.transport.unsent_bytes = 40_000
    assert not connection.is_idle_since(asyncio.get_running_loop().time() - 1)
    assert limits.unsent.total_bytes == 40_000
    session.transport.unsent_bytes = 0
    connection.resume_writing()
    assert limits.unsent.total_bytes == 0


@pytest.mark.parametrize("seed", range(30))
async def test_events_in_any_order_make_only_legal_moves(seed: int) -> None:
    rng = Random(seed)
    session = Session()
    connection, transport = session.connection, session.transport

    def take_all() -> None:
        transport.unsent_bytes = 0
        connection.resume_writing()

    def fill() -> None:
        transport.unsent_bytes = 50_000
        connection.pause_writing()

    def finish_one() -> None:
        for waiting in session.server.waiting:
            if not waiting.done():
                waiting.set_result([b"answer"])
                return

    events = [
        lambda: session.receive(frame(rng.choice((PRODUCE, METADATA)), b"1")),
        lambda: connection.mute(rng.choice((0.0, 3600.0))),
        connection.unmute,
        fill,
        take_all,
        finish_one,
        finish_one,
        lambda: session.receive(frame(METADATA, b"bad")),
        lambda: connection.refuse(0.0, [b"refused"]),
        connection.close,
        connection.abort,
    ]
    for _ in range(100):
        rng.choice(events[: rng.choice((7, 7, 7, 7, len(events)))])()
        if rng.random() < 0.3:
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            if connection.state is ConnectionState.SERVING and not transport.unsent_bytes:
                is_busy = not all(waiting.done() for waiting in session.server.waiting)
                assert is_busy or transport.is_reading()
    connection.connection_lost(None)
    while session.server.limits.held_bytes:
        finish_one()
        await asyncio.sleep(0)
    connection.abort()
    assert connection.state is ConnectionState.CLOSED
    assert session.server.open == session.server.limits.unsent.total_bytes == 0


@pytest.mark.parametrize("is_produce", [False, True])
async def test_an_ended_connection_is_freed_without_the_garbage_collector(
    is_produce: bool,
) -> None:
    server = Server()
    session = Session(server)
    session.receive(frame(PRODUCE if is_produce else METADATA, b"asked"))
    ended = weakref.ref(session.connection)
    gc.disable()
    try:
        session.connection.connection_lost(None)
        del session
        for waiting in server.waiting:
            if not waiting.done():
                waiting.set_result(None)
        server.waiting.clear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert ended() is None
    finally:
        gc.enable()


async def test_a_connection_that_closes_is_idle_although_its_last_requests_get_no_response() -> (
    None
):
    session = Session()
    session.transport.unsent_bytes = 9_000  # which the client never reads
    session.receive(frame(PRODUCE, b"1") + frame(PRODUCE, b"bad") + frame(PRODUCE, b"3"))
    assert session.transport.is_closed
    session.connection.last_active_s = 0.0
    assert session.connection.is_idle_since(10.0)
    await session.answer(0, b"one")
    assert session.connection.is_idle_since(10.0)
