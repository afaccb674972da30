"""The client's end of a connection: requests out, responses in, in order."""

import asyncio
from collections import deque
from collections.abc import Sequence
from typing import Final, cast

from spindle.common.errors import ProtocolViolation
from spindle.common.ports import Bytes
from spindle.common.promise import Listener, Promise
from spindle.runtime.frame_receiver import FrameReceiver

_MAX_FRAME_BYTES: Final = 100 << 20
_FIRST_ALLOCATION_BYTES: Final = 16 << 20
_MAX_UNREAD: Final = 16


class ClosedHere(EOFError):
    """This side has closed the connection."""


class FrameStream(asyncio.BufferedProtocol):
    """Frames of one connection, in the order of their arrival."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._receiver = FrameReceiver(
            _MAX_FRAME_BYTES, "the maximum of a response", _FIRST_ALLOCATION_BYTES
        )
        self._unread: deque[memoryview] = deque()
        self._reader: Listener[memoryview] | None = None
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

    def read(self) -> Promise[memoryview]:
        """Return a promise of the next frame, without its size. There is one reader at a time.

        The promise fails with EOFError, OSError or ProtocolViolation if the connection ends.
        """
        promise: Promise[memoryview] = Promise(asyncio.get_running_loop())
        self.expect(promise.settle)
        return promise

    def expect(self, listener: Listener[memoryview]) -> None:
        """Call `listener` with the next frame, as `read` promises it."""
        if self._unread:
            listener(self._unread.popleft(), None)
        elif self._failure is not None:
            listener(None, self._failure)
        else:
            self._reader = listener

    def close(self) -> None:
        """Close the connection; nothing more is read."""
        self._fail(ClosedHere("the connection was closed here"))

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
        reader, self._reader = self._reader, None
        if reader is not None:
            reader(frame, None)
        elif len(self._unread) == _MAX_UNREAD:
            self._fail(ProtocolViolation("answers to no request"))
        else:
            self._unread.append(frame)

    def _fail(self, failure: Exception) -> None:
        if self._failure is None:
            self._failure = failure
            if self._transport is not None:
                self._transport.close()
            reader, self._reader = self._reader, None
            if reader is not None:
                reader(None, failure)
