"""Bytes of a connection in, whole frames out, for client and server connections.

Small frames are cut from a buffer, which a connection has only while it contains a part of a frame.
A large frame is received directly into its own memory, which is passed on without a copy: the
response to a follower's fetch has megabytes. `FrameBuffers` lends that memory.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Final

from spindle.common.errors import ProtocolViolation
from spindle.common.foreign_protocols import foreign_protocol
from spindle.runtime.frame_buffers import FrameBuffers

_SIZE: Final = Struct(">i")
_SMALL_BYTES: Final = 64 * 1024
"""Frames up to this size are cut from a buffer of this size."""
_NO_BYTES: Final = bytearray()
_NO_VIEW: Final = memoryview(_NO_BYTES)
_free_buffers: Final[list[bytearray]] = []
"""Small buffers that no connection uses now; they belong to the event loop of the process."""
_MAX_FREE_BUFFERS: Final = 64
_large_buffers: Final = FrameBuffers(16 * 1024 * 1024)
"""Memory of large frames, for all connections of the process."""


class FrameReceiver:
    """The part of a protocol between `get_buffer` and `buffer_updated`.

    Args:
        max_frame_bytes: a frame whose size field is larger is a violation.
        limit_name: the name of that limit in the text of the violation.
        first_allocation_bytes: the memory of a larger frame grows as its bytes arrive.

    Attributes:
        large_bytes: size of the large frame that is being received, 0 if there is none.
    """

    __slots__ = (
        "_end",
        "_first_allocation_bytes",
        "_large",
        "_large_end",
        "_limit_name",
        "_max_frame_bytes",
        "_small",
        "_small_view",
        "_start",
        "large_bytes",
    )

    def __init__(self, max_frame_bytes: int, limit_name: str, first_allocation_bytes: int) -> None:
        self.large_bytes = 0
        self.limit(max_frame_bytes, limit_name, first_allocation_bytes)
        self._small = _NO_BYTES
        self._small_view = _NO_VIEW
        self._start = 0
        self._end = 0
        self._large = _NO_VIEW
        self._large_end = 0

    def limit(self, max_frame_bytes: int, limit_name: str, first_allocation_bytes: int) -> None:
        """Set the limits of the frames that begin from now on."""
        self._max_frame_bytes = max_frame_bytes
        self._limit_name = limit_name
        self._first_allocation_bytes = first_allocation_bytes

    @property
    def memory_bytes(self) -> int:
        """Memory of the frame that is being received; 0 between frames."""
        return len(self._small) + len(self._large)

    def buffer(self) -> memoryview:
        """Return the memory for the next bytes; it is never empty."""
        if self.large_bytes:
            if self._large_end == len(self._large):
                self._grow_large()
            return self._large[self._large_end :]
        if self._small is _NO_BYTES:
            self._small = _free_buffers.pop() if _free_buffers else bytearray(_SMALL_BYTES)
            self._small_view = memoryview(self._small)
        return self._small_view[self._end :]

    def received(self, count: int) -> Iterable[memoryview]:
        """Return the frames that `count` more bytes complete, without their size fields.

        The caller may write to the frames, and must process all of them before the next bytes
        arrive.

        Raises:
            ProtocolViolation: a size field is invalid; raised after the frames before it.
        """
        if not self.large_bytes:
            self._end = end = self._end + count
            if not self._start and end > 4:
                (size,) = _SIZE.unpack_from(self._small)
                if size + 4 == end and size <= self._max_frame_bytes:
                    # The common case: exactly one complete frame.
                    frame = memoryview(self._small[4:end])
                    self._end = 0
                    self._drop_small()
                    return (frame,)
            return self._cut()
        self._large_end += count
        if self._large_end < self.large_bytes:
            return ()
        frame = self._large[: self.large_bytes]
        self._drop_large()
        return (frame,)

    def take(self) -> bytes:
        """Return the received part of a frame, with its size field, and drop it."""
        if self.large_bytes:
            received = _SIZE.pack(self.large_bytes) + bytes(self._large[: self._large_end])
        else:
            received = bytes(self._small_view[self._start : self._end])
        self.drop()
        return received

    def drop(self) -> None:
        """Drop the received part of a frame."""
        self._start = self._end = 0
        self._drop_large()
        self._drop_small()

    def _cut(self) -> Iterator[memoryview]:
        """Cut complete frames from the small buffer; start a large frame if one begins."""
        small, start, end = self._small, self._start, self._end
        while end - start >= 4:
            (size,) = _SIZE.unpack_from(small, start)
            if not 0 < size <= self._max_frame_bytes:
                raise ProtocolViolation(
                    f"frame of {size} bytes; {self._limit_name} is {self._max_frame_bytes}"
                    f"{foreign_protocol(size)}"
                )
            have = end - start - 4
            if have >= size:
                # A copy: the buffer is used again.
                yield memoryview(small[start + 4 : start + 4 + size])
                start += 4 + size
            elif size + 4 <= _SMALL_BYTES:
                break
            else:
                self._begin_large(size, self._small_view[start + 4 : end])
                start = end
        if start == end:
            start = end = 0
        elif start and (end == _SMALL_BYTES or self._needs_room(start, end)):
            small[: end - start] = small[start:end]
            start, end = 0, end - start
        self._start, self._end = start, end
        if not end:
            self._drop_small()

    def _needs_room(self, start: int, end: int) -> bool:
        return (
            end - start < 4 or _SIZE.unpack_from(self._small, start)[0] + 4 > _SMALL_BYTES - start
        )

    def _begin_large(self, size: int, beginning: memoryview) -> None:
        have = len(beginning)
        self.large_bytes = size
        self._large = _large_buffers.take(min(size, max(self._first_allocation_bytes, have)))
        self._large[:have] = beginning
        self._large_end = have

    def _grow_large(self) -> None:
        grown = _large_buffers.take(min(self.large_bytes, 2 * len(self._large)))
        grown[: self._large_end] = self._large[: self._large_end]
        self._large = grown

    def _drop_large(self) -> None:
        self.large_bytes = 0
        self._large = _NO_VIEW

    def _drop_small(self) -> None:
        """Return the empty buffer, so that another connection can use it."""
        if self._small is not _NO_BYTES:
            if len(_free_buffers) < _MAX_FREE_BUFFERS:
                _free_buffers.append(self._small)
            self._small, self._small_view = _NO_BYTES, _NO_VIEW
