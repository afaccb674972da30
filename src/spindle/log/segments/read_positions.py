"""Where readers of a segment were last: most reads begin there."""


class ReadPositions:
    """Where the last read began, where another reader follows, and where it ended, where its reader
    goes on.
    """

    __slots__ = ("_end_offset", "_end_position", "_start_offset", "_start_position")

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Know nothing, because the segment was cut."""
        self._start_offset = self._end_offset = -1
        self._start_position = self._end_position = 0

    def at(self, offset: int) -> int | None:
        """Return the position of the batch with `offset`; None if no read has begun or ended
        there.
        """
        if offset == self._end_offset:
            return self._end_position
        return self._start_position if offset == self._start_offset else None

    def note(self, offset: int, position: int, end_offset: int, end_position: int) -> None:
        """Remember a read. The offsets are the one asked for and the one that follows."""
        self._start_offset, self._start_position = offset, position
        self._end_offset, self._end_position = end_offset, end_position
