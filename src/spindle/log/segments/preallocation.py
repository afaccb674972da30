"""Appends to the file of a segment, with disk space reserved ahead of them."""

from spindle.common.ports import Bytes
from spindle.log.open_files import FileHandles
from spindle.log.reserved_space import is_disk_full


class Preallocation:
    """The space that was reserved for one segment; see `ReservedSpace`."""

    __slots__ = ("_is_reserved", "_limit", "_reserve_at")

    def __init__(self, handles: FileHandles, limit: int) -> None:
        """No space is reserved at or beyond the position `limit`."""
        self._is_reserved = False
        self._reserve_at = handles.reserved.least_volume_bytes
        self._limit = limit

    def limit(self, position: int) -> None:
        """Reserve no space at or beyond `position` from now on."""
        self._limit = position

    def write(self, handles: FileHandles, path: str, records: Bytes, start: int) -> None:
        """Write at the end of the file, which is `start`."""
        end = start + len(records)
        if end > self._reserve_at:
            self._is_reserved = True
            self._reserve_at = handles.reserved.extend(path, start, end, self._limit)
        try:
            handles.get(path, create=True).pwrite(records, start)
        except OSError as error:
            # Other segments may have reserved what is missing.
            if not (is_disk_full(error) and handles.reserved.give_back()):
                raise
            handles.get(path).pwrite(records, start)

    def assume_preallocated(self, handles: FileHandles, size_bytes: int) -> None:
        """Assume that a killed process has preallocated beyond this size."""
        self._is_reserved = size_bytes > handles.reserved.least_volume_bytes

    def give_back(self, handles: FileHandles, path: str, size_bytes: int) -> None:
        """Release the space that is reserved after the end of the file, at this size."""
        if self._is_reserved:
            handles.get(path).truncate(size_bytes)
            handles.reserved.forget(path)
            self._is_reserved = False

    def given_back(self) -> None:
        """Record that the file was truncated, which has released its reserved space."""
        self._is_reserved = False
