"""The segments of a log in order of their base offsets."""

from bisect import bisect_right
from collections.abc import Iterator

from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.segments.segment import Segment


class Segments:
    """A sorted collection; the last segment is the active one, which is written to."""

    __slots__ = ("_bases", "_segments")

    def __init__(self, segments: list[Segment]) -> None:
        """`segments` are ascending by base offset and at least one."""
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]

    def __iter__(self) -> Iterator[Segment]:
        return iter(self._segments)

    def __len__(self) -> int:
        return len(self._segments)

    @property
    def first(self) -> Segment:
        return self._segments[0]

    @property
    def active(self) -> Segment:
        return self._segments[-1]

    @property
    def base_offsets(self) -> list[int]:
        return list(self._bases)

    def floor_index(self, offset: int) -> int:
        """Return the index of the last segment whose base is at most `offset`, or -1."""
        return bisect_right(self._bases, offset) - 1

    def from_offset(self, offset: int) -> list[Segment]:
        """Return the segment that may hold `offset` and all after it."""
        return self._segments[max(self.floor_index(offset), 0) :]

    def before(self, segment: Segment) -> list[Segment]:
        """Return all segments with a smaller base offset."""
        return self._segments[: self.floor_index(segment.base_offset)]

    def next_base(self, segment: Segment) -> int | None:
        """Return the base offset of the segment after this one; None for the active one."""
        index = self.floor_index(segment.base_offset) + 1
        return self._bases[index] if index < len(self._bases) else None

    def add(self, segment: Segment) -> None:
        """Add a segment, in place of one with the same base offset if there is one."""
        index = self.floor_index(segment.base_offset)
        if index >= 0 and self._bases[index] == segment.base_offset:
            self._segments[index] = segment
            return
        self._segments.insert(index + 1, segment)
        self._bases.insert(index + 1, segment.base_offset)

    def remove(self, segment: Segment) -> None:
        index = self._segments.index(segment)
        del self._segments[index]
        del self._bases[index]

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self._segments)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Return aborted transactions with records in [start_offset, end_offset), by their ends."""
        aborted: list[AbortedTransaction] = []
        for segment in self.from_offset(start_offset):
            for transaction in segment.transaction_index.entries():
                if transaction.overlaps(start_offset, end_offset):
                    aborted.append(transaction)
                if transaction.precedes_none_below(end_offset):
                    return aborted
        return aborted
