"""The file positions at which the last read of a segment began and ended."""


class ReadPositions:
    """The start and the end of the last read of a segment.

    The next read mostly begins at one of them: the same reader continues at the end, and another
    reader of the same records begins at the start. Such a read needs no index look-up.
    """

    __slots__ = ("_end_offset", "_end_position", "_start_offset", "_start_position")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget the last read, because the segment was cut."""
        self._start_offset = self._end_offset = -1
        self._start_position = self._end_position = 0

    def at(self, offset: int) -> int | None:
        """Return the position of the batch with `offset`, if a read began or ended there."""
        if offset == self._end_offset:
            return self._end_position
        return self._start_position if offset == self._start_offset else None

    def note(self, offset: int, position: int, end_offset: int, end_position: int) -> None:
        """Store a read: its offset, the offset after it, and both positions."""
        self._start_offset, self._start_position = offset, position
        self._end_offset, self._end_position = end_offset, end_position
