"""Cut a byte stream into frames: four bytes of size, then as many bytes (Kafka protocol guide).

The form suits `recv_into` and `asyncio.BufferedProtocol`: the transport asks for a buffer for the
next bytes and reports how many arrived. A frame is received into one buffer and not copied.
"""

from struct import Struct
from typing import Final

from spindle.common.errors import ProtocolViolation
from spindle.common.foreign_protocols import foreign_protocol

_SIZE: Final = Struct(">i")
MAX_FRAME_BYTES: Final = 1 << 30


class FrameReader:
    """Collects the bytes of frames, one frame after another.

    Args:
        max_frame_bytes: The largest size that a peer may announce.
        reuse_buffer: Keep one buffer for all frames, which saves page faults for large answers. A
            frame is then valid only until the next byte is received.
    """

    __slots__ = ("_body", "_buffer", "_filled", "_max_frame_bytes", "_reuse", "_size")

    def __init__(
        self, *, max_frame_bytes: int = MAX_FRAME_BYTES, reuse_buffer: bool = False
    ) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._reuse = reuse_buffer
        self._size = memoryview(bytearray(_SIZE.size))
        self._buffer = bytearray()
        self._body: memoryview | None = None
        self._filled = 0

    def free_space(self) -> memoryview:
        """Return the buffer for the next bytes; it is never empty."""
        target = self._size if self._body is None else self._body
        return target[self._filled :]

    def advance(self, count: int) -> memoryview | None:
        """Note that `count` bytes were received; return the frame if they completed it, else None.

        Raises:
            ProtocolViolation: the announced size is negative or beyond the limit.
        """
        self._filled += count
        if self._body is None:
            if self._filled < len(self._size):
                return None
            self._body = self._room(_SIZE.unpack(self._size)[0])
            self._filled = 0
        if self._filled < len(self._body):
            return None
        frame, self._body, self._filled = self._body, None, 0
        return frame

    @property
    def is_between_frames(self) -> bool:
        """True if no byte of the next frame has arrived."""
        return self._body is None and self._filled == 0

    def _room(self, size_bytes: int) -> memoryview:
        if not 0 <= size_bytes <= self._max_frame_bytes:
            raise ProtocolViolation(
                f"a frame of {size_bytes} bytes was announced, "
                f"at most {self._max_frame_bytes} are accepted{foreign_protocol(size_bytes)}"
            )
        if not self._reuse:
            return memoryview(bytearray(size_bytes))
        if len(self._buffer) < size_bytes:
            # Do not resize the old buffer: earlier frames are views of it.
            self._buffer = bytearray(size_bytes)
        return memoryview(self._buffer)[:size_bytes]
