"""The unsent part of a response whose records are in files."""

from collections import deque
from collections.abc import Iterable
from typing import Final, TypeAlias

from spindle.common.ports import Bytes
from spindle.log.segments.file_range import FileRange

Part: TypeAlias = Bytes | FileRange
"""A piece of a response."""

_MAX_BUFFERS: Final = 64
"""Maximum number of pieces in memory that are sent in one step."""


class AnswerParts:
    """The unsent pieces of a response, in order. Used by one thread at a time.

    Attributes:
        size_bytes: of all unsent pieces.
    """

    __slots__ = ("_done_bytes", "_parts", "size_bytes")

    def __init__(self, parts: Iterable[Part]) -> None:
        self._parts: deque[Part] = deque([part for part in parts if len(part)])
        self._done_bytes = 0
        self.size_bytes = sum(map(len, self._parts))

    @property
    def memory_bytes(self) -> int:
        """Return how many of the bytes are in memory."""
        return sum(len(part) for part in self._parts if not isinstance(part, FileRange))

    def front(self) -> FileRange | list[memoryview]:
        """Return the next part to send: a range of a file, or pieces in memory."""
        if isinstance(self._parts[0], FileRange):
            return self._parts[0]
        pieces: list[memoryview] = []
        for part in self._parts:
            if isinstance(part, FileRange) or len(pieces) == _MAX_BUFFERS:
                break
            pieces.append(memoryview(part))
        pieces[0] = pieces[0][self._done_bytes :]
        return pieces

    @property
    def front_bytes(self) -> int:
        """Return the number of unsent bytes of the next piece."""
        return len(self._parts[0]) - self._done_bytes

    def send_file(self, socket_descriptor: int) -> int:
        """Send the next file part with sendfile; return the bytes sent."""
        part = self._parts[0]
        assert isinstance(part, FileRange)
        return part.send(socket_descriptor, self._done_bytes)

    def took(self, count: int) -> None:
        """Record that `count` bytes were sent."""
        self.size_bytes -= count
        self._done_bytes += count
        while self._parts and self._done_bytes >= len(self._parts[0]):
            part = self._parts.popleft()
            self._done_bytes -= len(part)
            if isinstance(part, FileRange):
                part.unpin()

    def take(self, max_bytes: int) -> list[Bytes]:
        """Remove and return at most `max_bytes` unsent bytes; read them if they are in a file.

        Raises:
            OSError: of the disk.
            ShortRead: a file is shorter than it was.
            RangeLost: bytes of an earlier job were cut from the log meanwhile.
        """
        taken: list[Bytes] = []
        while self._parts and max_bytes:
            part = self._parts[0]
            if isinstance(part, FileRange):
                piece = part.read(self._done_bytes, max_bytes)
            else:
                piece = memoryview(part)[self._done_bytes : self._done_bytes + max_bytes]
            taken.append(piece)
            max_bytes -= len(piece)
            self.took(len(piece))
        return taken

    def pin_files(self) -> None:
        """Keep the files open for the next jobs."""
        for part in self._parts:
            if isinstance(part, FileRange):
                part.pin()

    def unpin_files(self) -> None:
        """Release the files; nothing more can be sent."""
        for part in self._parts:
            if isinstance(part, FileRange):
                part.unpin()
        self._parts.clear()
        self.size_bytes = 0
