"""The client's end of a connection: frames in, straight into buffers of their own.

What a follower fetches is megabytes per frame; it is received without a copy and handed to the log
as it is.
"""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes

_SIZE_BYTES: Final = 4
_MAX_FRAME_BYTES: Final = 100 << 20
_HEAD_BYTES: Final = 16 * 1024
"""The size of a frame comes with the beginning of it, or with all of it."""
_FIRST_ALLOCATION_BYTES: Final = 16 << 20
"""A frame that claims to be larger gets its memory as its bytes arrive."""
_MOST_UNREAD: Final = 16


class FrameStream(asyncio.BufferedProtocol):
    """Frames of one connection, in the order in which they come."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._head = bytearray(_HEAD_BYTES)
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._received = 0
        self._unread: deque[memoryview] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    @property
    def is_closed(self) -> bool:
        """Whether this side or the peer has ended the connection."""
        return self._failure is not None

    def write(self, parts: Sequence[Bytes]) -> None:
        """Send.

        Raises:
            EOFError, OSError, ProtocolViolation: the connection has ended.
        """
        if self._failure is not None or self._transport is None:
            raise self._failure or EOFError("not connected")
        self._transport.writelines(parts)

    async def read(self) -> memoryview:
        """The next frame, without its size. For one reader at a time.

        Raises:
            EOFError, OSError, ProtocolViolation: there will be none.
        """
        while not self._unread:
            if self._failure is not None:
                raise self._failure
            self._reader = asyncio.get_running_loop().create_future()
            try:
                await self._reader
            finally:
                self._reader = None
        return self._unread.popleft()

    def close(self) -> None:
        """End the connection; nothing more is read."""
        self._fail(EOFError("the connection was closed here"))

    # -- the transport's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports only behave like asyncio's, they are no subclass.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or EOFError("the peer closed the connection"))

    def eof_received(self) -> bool:
        self._fail(EOFError("the peer closed the connection"))
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        if self._frame is None:
            return memoryview(self._head)[self._received :]
        if self._received == len(self._frame):
            grown = bytearray(min(2 * len(self._frame), self._frame_bytes))
            grown[: self._received] = self._frame
            self._frame = grown
        return memoryview(self._frame)[self._received :]

    def buffer_updated(self, nbytes: int) -> None:
        self._received += nbytes
        if self._frame is None:
            self._cut()
        elif self._received == self._frame_bytes:
            self._accept(memoryview(self._frame))
            self._frame, self._received = None, 0

    def _cut(self) -> None:
        """Take the frames out of the head; the last one may be still to come."""
        start = 0
        while self._received - start >= _SIZE_BYTES and self._failure is None:
            body = start + _SIZE_BYTES
            size_bytes = int.from_bytes(self._head[start:body], "big", signed=True)
            if not 0 <= size_bytes <= _MAX_FRAME_BYTES:
                self._fail(
                    ProtocolViolation(
                        f"an answer of {size_bytes} bytes was announced, at most "
                        f"{_MAX_FRAME_BYTES} are accepted"
                    )
                )
                return
            end = body + size_bytes
            if end > self._received:
                if end - start > _HEAD_BYTES:
                    self._begin_frame(size_bytes, body)
                    return
                break
            self._accept(memoryview(self._head[body:end]))
            start = end
        rest = self._received - start
        self._head[:rest] = self._head[start : self._received]
        self._received = rest

    def _begin_frame(self, size_bytes: int, body: int) -> None:
        have = self._received - body
        self._frame = bytearray(min(size_bytes, _FIRST_ALLOCATION_BYTES))
        self._frame[:have] = self._head[body : self._received]
        self._frame_bytes, self._received = size_bytes, have

    def _accept(self, frame: memoryview) -> None:
        if len(self._unread) == _MOST_UNREAD:
            self._fail(ProtocolViolation("answers to no request"))
            return
        self._unread.append(frame)
        self._wake()

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
            if self._transport is not None:
                self._transport.close()
            self._wake()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)
