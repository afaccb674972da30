"""Digests of the batches of a log, to compare its replicas without keeping every batch.

Replicas have the same batches, byte for byte, below the high watermark. A digest is a sum over the
batches that begin in a range of offsets, so two replicas agree in a range if their sums are equal.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

OFFSETS_PER_RANGE: Final = 4096
TAIL_BATCHES: Final = 1024


@dataclass(frozen=True, slots=True)
class LogDigest:
    """The sums by range: range n holds the offsets [n, n + 1) * OFFSETS_PER_RANGE.

    Attributes:
        tail: (base offset, digest) of the last batches, so that the sum of a range is known up to
            each of them.
    """

    sums: dict[int, int]
    tail: tuple[tuple[int, int], ...] = ()

    def sum_until(self, number: int, end: int) -> int | None:
        """Return the sum of the batches of a range that begin before an offset.

        None if unknown: more batches follow the offset than `tail` has.
        """
        total = self.sums.get(number, 0)
        if end >= (number + 1) * OFFSETS_PER_RANGE:
            return total
        if len(self.tail) == TAIL_BATCHES and self.tail[0][0] > end:
            return None
        behind = sum(
            mixed
            for base, mixed in self.tail
            if end <= base and base // OFFSETS_PER_RANGE == number
        )
        return (total - behind) % 2**64


class DigestBuilder:
    """Builds the digest of one log or segment."""

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}
        self._tail: list[tuple[int, int]] = []

    def add(self, sums: Iterable[tuple[int, int]], tail: Sequence[tuple[int, int]]) -> None:
        """Add the next batches.

        Args:
            sums: (range, sum of its batches); a range may be repeated.
            tail: (base offset, digest) of the last `TAIL_BATCHES` of them, or of all.
        """
        for number, value in sums:
            self._sums[number] = (self._sums.get(number, 0) + value) % 2**64
        self._tail = [*self._tail, *tail][-TAIL_BATCHES:]

    def take(self, digest: LogDigest) -> None:
        """Add the batches of another segment."""
        self.add(digest.sums.items(), digest.tail)

    def digest(self) -> LogDigest:
        """Return the sums."""
        return LogDigest(self._sums, tuple(self._tail))


def digest_document(digest: LogDigest) -> list[list[list[int]]]:
    """Return the JSON form of a digest."""
    return [[list(item) for item in digest.sums.items()], [list(item) for item in digest.tail]]


def digest_of(document: Any) -> LogDigest:
    """Parse the JSON form of a digest.

    Raises:
        TypeError, ValueError: the document has another form.
    """
    sums, tail = document
    return LogDigest(
        {int(at): int(value) for at, value in sums},
        tuple((int(at), int(value)) for at, value in tail),
    )
