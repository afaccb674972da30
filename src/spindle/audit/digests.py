"""Digests of the batches of a log, to compare its replicas without keeping every batch.

Replicas have the same batches, byte for byte, below the high watermark. A digest is a sum over the
batches that begin in a stretch of offsets, so two replicas agree in a stretch if their sums do.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spindle.pipeline.records.headers import BASE_OFFSET, CRC, LAST_DELTA, LEADER_EPOCH

STRETCH_OFFSETS: Final = 4096
TAIL_BATCHES: Final = 1024
_FACTORS: Final = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
_SHIFT: Final = np.uint64(29)


@dataclass(frozen=True, slots=True)
class LogDigest:
    """The sums by stretch: stretch n holds the offsets [n, n + 1) * STRETCH_OFFSETS.

    Attributes:
        tail: (base offset, digest) of the last batches, so that the sum of a stretch is known up to
            each of them.
    """

    sums: dict[int, int]
    tail: tuple[tuple[int, int], ...] = ()

    def sum_until(self, stretch: int, end: int) -> int | None:
        """Return the sum of the batches of a stretch that begin before an offset.

        None if it is not known: there are more batches behind the offset than `tail` has.
        """
        total = self.sums.get(stretch, 0)
        if end >= (stretch + 1) * STRETCH_OFFSETS:
            return total
        if len(self.tail) == TAIL_BATCHES and self.tail[0][0] > end:
            return None
        behind = sum(
            mixed for base, mixed in self.tail if end <= base and base // STRETCH_OFFSETS == stretch
        )
        return (total - behind) % 2**64


class DigestBuilder:
    """Builds the digest of one log or segment."""

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}
        self._tail: list[tuple[int, int]] = []

    def window(self, fields: Any) -> None:
        """Add the next batches."""
        with np.errstate(over="ignore"):
            mixed = np.zeros(fields.shape[1], np.uint64)
            columns = (BASE_OFFSET, LAST_DELTA, CRC, LEADER_EPOCH)
            for column, factor in zip(columns, _FACTORS, strict=True):
                mixed = (mixed ^ fields[column].astype(np.uint64)) * factor
                mixed ^= mixed >> _SHIFT
            stretches = fields[BASE_OFFSET] // STRETCH_OFFSETS
            starts = np.flatnonzero(np.diff(stretches, prepend=stretches[0] - 1))
            sums = np.add.reduceat(mixed, starts)
        self._tail = [] if len(mixed) >= TAIL_BATCHES else self._tail
        last = fields[BASE_OFFSET][-TAIL_BATCHES:].tolist()
        self._tail += zip(last, mixed[-TAIL_BATCHES:].tolist(), strict=True)
        for stretch, value in zip(stretches[starts].tolist(), sums.tolist(), strict=True):
            self._sums[stretch] = (self._sums.get(stretch, 0) + value) % 2**64

    def take(self, digest: LogDigest) -> None:
        """Add the batches of another segment."""
        for stretch, value in digest.sums.items():
            self._sums[stretch] = (self._sums.get(stretch, 0) + value) % 2**64
        self._tail = [*self._tail, *digest.tail][-TAIL_BATCHES:]

    def digest(self) -> LogDigest:
        """Return the sums."""
        return LogDigest(self._sums, tuple(self._tail[-TAIL_BATCHES:]))


def digest_document(digest: LogDigest) -> list[list[list[int]]]:
    """Return the JSON form of a digest."""
    return [[list(each) for each in digest.sums.items()], [list(each) for each in digest.tail]]


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
