"""The digests of batches, from columns of their headers; `native/src/audit/sound_walk.rs` has
the same."""

from typing import Any, Final

import numpy as np

from spindle.audit.digests import OFFSETS_PER_RANGE, TAIL_BATCHES, DigestBuilder
from spindle.columnar.header_table import BASE_OFFSET, CRC, LAST_DELTA, LEADER_EPOCH

_FACTORS: Final = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93], np.uint64
)
_SHIFT: Final = np.uint64(29)


def add_batches(digest: DigestBuilder, fields: Any) -> None:
    """Add the next batches to a digest."""
    with np.errstate(over="ignore"):
        mixed = np.zeros(fields.shape[1], np.uint64)
        columns = (BASE_OFFSET, LAST_DELTA, CRC, LEADER_EPOCH)
        for column, factor in zip(columns, _FACTORS, strict=True):
            mixed = (mixed ^ fields[column].astype(np.uint64)) * factor
            mixed ^= mixed >> _SHIFT
        numbers = fields[BASE_OFFSET] // OFFSETS_PER_RANGE
        starts = np.flatnonzero(np.diff(numbers, prepend=numbers[0] - 1))
        sums = np.add.reduceat(mixed, starts)
    last = fields[BASE_OFFSET][-TAIL_BATCHES:].tolist()
    digest.add(
        zip(numbers[starts].tolist(), sums.tolist(), strict=True),
        list(zip(last, mixed[-TAIL_BATCHES:].tolist(), strict=True)),
    )
