"""A range of a segment's file that is sent as a part of an answer, without being read."""

from spindle.common.errors import ShortRead
from spindle.log.handles import FileHandles


class FileRange:
    """Whole batches in a file.

    Use it only within the job of the directory's thread that made it: only that thread cuts,
    renames and removes files, so the range cannot change before the job ends.

    Attributes:
        position: of the first byte in the file.
    """

    __slots__ = ("_handles", "_path", "_size_bytes", "position")

    def __init__(self, handles: FileHandles, path: str, position: int, size_bytes: int) -> None:
        self._handles = handles
        self._path = path
        self.position = position
        self._size_bytes = size_bytes

    def __len__(self) -> int:
        return self._size_bytes

    def send(self, socket_descriptor: int, start: int) -> int:
        """Send the bytes from `start` on to a socket; see `File.send`."""
        file = self._handles.get(self._path)
        return file.send(socket_descriptor, self._size_bytes - start, self.position + start)

    def read(self, start: int = 0) -> memoryview:
        """Return the bytes from `start` on.

        Raises:
            ShortRead: the file ends before.
        """
        size_bytes = self._size_bytes - start
        data = self._handles.get(self._path).pread(size_bytes, self.position + start)
        if len(data) < size_bytes:
            raise ShortRead(self._path, self.position + start + len(data))
        return memoryview(data)
