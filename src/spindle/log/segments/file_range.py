"""A range of a segment's file that is sent in a response without being read."""

from collections.abc import Sequence

from spindle.common.errors import ShortRead
from spindle.common.ports import File
from spindle.log.open_files import FileHandles


class RangeLost(Exception):
    """The file range can no longer be read: its bytes were cut from the log, or too many files were
    open.
    """


class FileRange:
    """Whole batches in a file, for the thread of the log directory.

    Only that thread cuts, renames and removes files, so the range cannot change within the job that
    made it. `pin` it to use it in later jobs: the file then stays open until `unpin`, even if it is
    renamed or removed, and a range that was truncated meanwhile raises `RangeLost`.

    Attributes:
        position: of the first byte in the file.
    """

    __slots__ = ("_cuts", "_file", "_handles", "_path", "_seen_cuts", "_size_bytes", "position")

    def __init__(
        self,
        handles: FileHandles,
        path: str,
        position: int,
        size_bytes: int,
        cuts: Sequence[int] = (),
    ) -> None:
        """Take a range; `cuts` grows by the new size whenever the file is cut."""
        self._handles = handles
        self._path = path
        self.position = position
        self._size_bytes = size_bytes
        self._cuts = cuts
        self._seen_cuts = len(cuts)
        self._file: File | None = None

    def __len__(self) -> int:
        return self._size_bytes

    def pin(self) -> None:
        """Keep the file open for later jobs."""
        if self._file is None:
            self._file = self._handles.pin(self._path)

    def unpin(self) -> None:
        """End `pin`; the range must not be used afterwards."""
        if self._file is not None:
            self._handles.drop(self._file)

    def _opened(self) -> File:
        file = self._file
        if file is None:
            return self._handles.get(self._path)
        end = self.position + self._size_bytes
        if len(self._cuts) > self._seen_cuts and min(self._cuts[self._seen_cuts :]) < end:
            raise RangeLost(f"{self._path} was truncated below byte {end}")
        if not self._handles.is_held(file):
            raise RangeLost(f"{self._path} had to be closed")
        return file

    def send(self, socket_descriptor: int, start: int) -> int:
        """Send the bytes from `start` on to a socket; see `File.send`."""
        count = self._size_bytes - start
        return self._opened().send(socket_descriptor, count, self.position + start)

    def read(self, start: int = 0, max_bytes: int | None = None) -> memoryview:
        """Return the bytes from `start` on, at most `max_bytes`.

        Raises:
            ShortRead: the file ends before.
            RangeLost: a range that was held cannot be read any more.
        """
        size_bytes = self._size_bytes - start
        if max_bytes is not None:
            size_bytes = min(size_bytes, max_bytes)
        data = self._opened().pread(size_bytes, self.position + start)
        if len(data) < size_bytes:
            raise ShortRead(self._path, self.position + start + len(data))
        return memoryview(data)
