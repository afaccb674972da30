"""Frames at the client's end of a connection, however they are cut by the network."""

import asyncio
from struct import pack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.common.errors import ProtocolViolation
from spindle.runtime.frame_receiver import FrameReceiver
from spindle.runtime.peers import frames
from spindle.runtime.peers.frames import FrameStream


class Transport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.is_closed = False

    def close(self) -> None:
        self.is_closed = True


def connected() -> tuple[FrameStream, Transport]:
    stream, transport = FrameStream(), Transport()
    stream.connection_made(transport)
    return stream, transport


def receive(stream: FrameStream, data: bytes) -> None:
    while data:
        buffer = stream.get_buffer(-1)
        count = min(len(buffer), len(data))
        assert count > 0
        buffer[:count] = data[:count]
        stream.buffer_updated(count)
        data = data[count:]


def framed(body: bytes) -> bytes:
    return pack(">i", len(body)) + body


sizes = st.one_of(st.integers(1, 40), st.integers(65_520, 65_550), st.integers(40_000, 70_000))


@settings(deadline=None, max_examples=60)
@given(st.lists(sizes, min_size=1, max_size=6), st.lists(st.integers(1, 70_000), max_size=12))
async def test_frames_come_whole_and_in_order(lengths: list[int], cuts: list[int]) -> None:
    bodies = [bytes([number]) * length for number, length in enumerate(lengths)]
    data = b"".join(map(framed, bodies))

    stream, _ = connected()
    position = 0
    for cut in [*cuts, len(data)]:
        receive(stream, data[position : position + cut])
        position += cut
    assert [bytes(await stream.read()) for _ in bodies] == bodies


async def test_a_large_frame_gets_its_memory_as_its_bytes_arrive(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "_FIRST_ALLOCATION_BYTES", 100_000)

    stream, _ = connected()
    body = bytes(range(256)) * 2000
    data = framed(body)
    receive(stream, data[:80_000])
    assert len(stream.get_buffer(-1)) < 100_000
    receive(stream, data[80_000:])
    assert bytes(await stream.read()) == body


@pytest.mark.parametrize("size_bytes", [-1, 0, (100 << 20) + 1])
async def test_an_impossible_size_ends_the_connection(size_bytes: int) -> None:
    stream, transport = connected()
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    receive(stream, pack(">i", size_bytes))
    with pytest.raises(ProtocolViolation, match=str(size_bytes)):
        await reading
    assert transport.is_closed


async def test_answers_to_no_request_end_the_connection() -> None:
    stream, transport = connected()
    receive(stream, framed(b"x") * 20)
    assert transport.is_closed


async def test_a_reader_is_notified_of_the_end_of_the_stream() -> None:
    stream, _ = connected()
    receive(stream, framed(b"last"))
    stream.eof_received()
    assert stream.is_closed
    assert bytes(await stream.read()) == b"last"
    with pytest.raises(EOFError):
        await stream.read()
    with pytest.raises(EOFError):
        stream.write([b"x"])


async def test_a_reset_connection_says_so() -> None:
    stream, _ = connected()
    reading = asyncio.ensure_future(stream.read())
    await asyncio.sleep(0)
    stream.connection_lost(ConnectionResetError("reset"))
    with pytest.raises(ConnectionResetError):
        await reading


def test_a_peer_that_speaks_tls_is_named() -> None:
    receiver = FrameReceiver(100, "socket.request.max.bytes", 100)
    hello = b"\x16\x03\x01\x02\x00\x01"
    receiver.buffer()[: len(hello)] = hello
    with pytest.raises(ProtocolViolation, match=r"is 100 \(the peer speaks TLS, "):
        list(receiver.received(len(hello)))
