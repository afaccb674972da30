"""Frames are complete, however the stream is cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.client.framing import FrameReader
from spindle.common.errors import ProtocolViolation


def feed(reader: FrameReader, data: bytes, step: int) -> list[bytes]:
    frames = []
    position = 0
    while position < len(data):
        space = reader.free_space()
        count = min(step, len(space), len(data) - position)
        space[:count] = data[position : position + count]
        position += count
        frame = reader.advance(count)
        if frame is not None:
            frames.append(bytes(frame))
    return frames


@given(
    bodies=st.lists(st.binary(max_size=200), max_size=8),
    step=st.integers(1, 64),
    reuse=st.booleans(),
)
def test_frames_survive_any_cutting(bodies: list[bytes], step: int, reuse: bool) -> None:
    reader = FrameReader(reuse_buffer=reuse)
    stream = b"".join(len(b).to_bytes(4, "big") + b for b in bodies)
    # A frame without a body is complete when its size has arrived.
    assert feed(reader, stream, step) == bodies
    assert reader.is_between_frames


def test_free_space_never_runs_into_the_next_frame() -> None:
    reader = FrameReader()
    reader.free_space()[:] = (3).to_bytes(4, "big")
    assert reader.advance(4) is None
    assert len(reader.free_space()) == 3
    assert not reader.is_between_frames


@pytest.mark.parametrize("size", [-1, 101])
def test_a_size_outside_the_limits_is_refused(size: int) -> None:
    reader = FrameReader(max_frame_bytes=100)
    reader.free_space()[:] = size.to_bytes(4, "big", signed=True)
    with pytest.raises(ProtocolViolation, match=rf"{size} bytes .* 100"):
        reader.advance(4)


@pytest.mark.parametrize(
    ("start", "name"),
    [
        (b"HTTP", "HTTP"),
        (b"GET ", "HTTP"),
        (b"\x16\x03\x01\x02", "TLS"),
        (b"\x7f\xff\xff\xff", None),
    ],
)
def test_another_protocol_is_named(start: bytes, name: str | None) -> None:
    reader = FrameReader(max_frame_bytes=100)
    reader.free_space()[:] = start
    with pytest.raises(ProtocolViolation) as caught:
        reader.advance(4)
    if name is None:
        assert str(caught.value).endswith("accepted")
    else:
        assert f"(the peer speaks {name}," in str(caught.value)


def test_a_reused_buffer_is_overwritten_and_a_fresh_one_is_not() -> None:
    for reuse in (True, False):
        reader = FrameReader(reuse_buffer=reuse)
        kept = []
        for letter in (b"aaaa", b"bbbb"):
            reader.free_space()[:] = (4).to_bytes(4, "big")
            reader.advance(4)
            reader.free_space()[:] = letter
            kept.append(reader.advance(4))
        first = kept[0]
        assert first is not None
        assert bytes(first) == (b"bbbb" if reuse else b"aaaa")
