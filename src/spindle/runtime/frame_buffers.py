"""Memory for large frames, which is used again once no view of it exists.

A new `bytearray` is filled with zeros, in pages that the system may have to provide first. (Where
the heap keeps its large blocks, see `runtime.memory`, no gain was measured: benchmarks/README.md.)
Frames are passed on as views: to the thread of a directory, to a fetch that waits for the records,
to a socket. Nothing reports the end of the last view. But a `bytearray` cannot be resized while a
view of it exists in any thread; this is tried before a buffer is reused.
"""

from collections import deque
from typing import Final

_STEP_BYTES: Final = 64 * 1024
"""Sizes of buffers are multiples of it, so that frames of nearly the same size share them."""
_MAX_TRIES: Final = 8
"""Maximum number of buffers that are tried for one frame."""


class FrameBuffers:
    """Buffers for reuse, in the order of their last use.

    Args:
        max_bytes: of all buffers together. A buffer beyond this limit, or larger than a quarter of
            it, is not reused: it is freed with its last view.
    """

    __slots__ = ("_buffers", "_max_bytes", "size_bytes")

    def __init__(self, max_bytes: int) -> None:
        self.size_bytes = 0
        self._max_bytes = max_bytes
        self._buffers: deque[bytearray] = deque()

    def take(self, size_bytes: int) -> memoryview:
        """Return memory of exactly that size, with any content, which no other view shares.

        Raises:
            MemoryError: there is none.
        """
        if not _STEP_BYTES <= size_bytes <= self._max_bytes // 4:
            return memoryview(bytearray(size_bytes))
        buffers = self._buffers
        for _ in range(min(len(buffers), _MAX_TRIES)):
            buffer = buffers.popleft()
            is_found = size_bytes <= len(buffer) <= 2 * size_bytes and not _has_views(buffer)
            view = memoryview(buffer) if is_found else None
            buffers.append(buffer)
            if view is not None:
                return view[:size_bytes]
        return self._add(size_bytes)

    def _add(self, size_bytes: int) -> memoryview:
        buffer = bytearray(-(-size_bytes // _STEP_BYTES) * _STEP_BYTES)
        view = memoryview(buffer)[:size_bytes]
        self._buffers.append(buffer)
        self.size_bytes += len(buffer)
        while self.size_bytes > self._max_bytes:
            self.size_bytes -= len(self._buffers.popleft())
        return view


def _has_views(buffer: bytearray) -> bool:
    """Return whether a memoryview of the buffer, or of a part of it, exists anywhere."""
    try:
        buffer.pop()
    except BufferError:
        return True
    buffer.append(0)
    return False
