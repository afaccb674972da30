"""The client's end of a connection: frames out, answers in, in order."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.runtime.frame_receiver import FrameReceiver

_MAX_FRAME_BYTES: Final = 100 << 20
_FIRST_ALLOCATION_BYTES: Final = 16 << 20
_MOST_UNREAD: Final = 16


class FrameStream(asyncio.BufferedProtocol):
    """Frames of one connection, in the order in which they come."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._receiver = FrameReceiver(
            _MAX_FRAME_BYTES, "the largest answer", _FIRST_ALLOCATION_BYTES
        )
        self._unread: deque[memoryview] = deque()
        self._reader: asyncio.Future[None] | None = None
        self._failure: Exception | None = None

    @property
    def is_closed(self) -> bool:
        """True if this side or the peer has ended the connection."""
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
        """Return the next frame, without its size. For one reader at a time.

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
        # uvloop's transports behave like asyncio's but are no subclass.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self._receiver.drop()
        self._fail(exc or EOFError("the peer closed the connection"))

    def eof_received(self) -> bool:
        self._fail(EOFError("the peer closed the connection"))
        return False

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._receiver.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._receiver.received(nbytes):
                self._accept(frame)
        except ProtocolViolation as violation:
            self._fail(violation)

    def _accept(self, frame: memoryview) -> None:
        if self._failure is not None:
            return
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
