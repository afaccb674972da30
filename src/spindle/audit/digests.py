"""Digests of the batches of a log, to compare its replicas without keeping every batch.

Replicas have the same batches, byte for byte, below the high watermark. A digest is a sum over the
batches that begin in a stretch of offsets, so two replicas agree in a stretch if their sums do.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from spindle.pipeline.records.headers import BASE_OFFSET, CRC, LAST_DELTA, LEADER_EPOCH

STRETCH_OFFSETS: Final = 4096
_FACTORS: Final = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
_SHIFT: Final = np.uint64(29)


@dataclass(frozen=True, slots=True)
class LogDigest:
    """The sums by stretch: stretch n holds the offsets [n, n + 1) * STRETCH_OFFSETS."""

    sums: dict[int, int]


class DigestBuilder:
    """Builds the digest of one log or segment."""

    def __init__(self) -> None:
        self._sums: dict[int, int] = {}

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
        for stretch, value in zip(stretches[starts].tolist(), sums.tolist(), strict=True):
            self._sums[stretch] = (self._sums.get(stretch, 0) + value) % 2**64

    def take(self, digest: LogDigest) -> None:
        """Add the batches of another segment."""
        for stretch, value in digest.sums.items():
            self._sums[stretch] = (self._sums.get(stretch, 0) + value) % 2**64

    def digest(self) -> LogDigest:
        """Return the sums."""
        return LogDigest(self._sums)
