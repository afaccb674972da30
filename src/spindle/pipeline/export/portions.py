"""Cut an export into portions, each of which is one commit.

A portion has a slice of every partition, so that all brokers and disks work at the same time and
the table grows evenly. A table holds one contiguous range of each partition after every portion:
new offsets are cut in ascending order, older offsets that are filled in descend from the table's
first offset.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from spindle.pipeline.export.continuation import key_of
from spindle.pipeline.export.model import Coverage, PartitionIdentity, PlannedRange


@dataclass(frozen=True, slots=True)
class PortionSize:
    """The limits of a portion: bytes in the log, as estimated, and offsets (rows, or fewer).

    Raises:
        ValueError: a limit below 1.
    """

    log_bytes: int = 1024 * 1024 * 1024
    offsets: int | None = None

    def __post_init__(self) -> None:
        for name, limit in (("bytes", self.log_bytes), ("rows", self.offsets)):
            if limit is not None and limit < 1:
                raise ValueError(f"a portion of {limit} {name}: want 1 or more")

    def count(self, log_bytes: int, offsets: int) -> int:
        """Return the number of portions for an export of this size; at least 1."""
        by_offsets = 1 if self.offsets is None else -(-offsets // self.offsets)
        return max(1, -(-log_bytes // self.log_bytes), by_offsets)


MERGE_PORTION: Final = PortionSize(log_bytes=128 * 1024 * 1024)
"""The portion of an export that merges: the keys of its records are in memory."""
DEFAULT_PORTION: Final = PortionSize()


def cut_portions(
    ranges: Sequence[PlannedRange],
    log_bytes: int,
    covered: Mapping[PartitionIdentity, Coverage],
    size: PortionSize,
) -> list[list[PlannedRange]]:
    """Return the ranges of each portion.

    Args:
        ranges: The offsets to export; they are adjacent to those in `covered`.
        log_bytes: The size of all ranges in the log.
    """
    count = size.count(
        log_bytes,
        sum(offset_range.end_offset - offset_range.start_offset for offset_range in ranges),
    )
    portions: list[list[PlannedRange]] = [[] for _ in range(count)]
    for offset_range in ranges:
        slices = list(_slices(offset_range, count))
        held = covered.get(key_of(offset_range))
        if held is not None and offset_range.end_offset == held.start:
            slices.reverse()
        for portion, piece in zip(portions, slices, strict=False):
            portion.append(piece)
    return [portion for portion in portions if portion]


def _slices(whole: Any, count: int) -> Iterator[PlannedRange]:
    """Cut a range into `count` parts of about equal length, fewer if it has fewer offsets.

    The ranges of every source are dataclasses.
    """
    length = whole.end_offset - whole.start_offset
    count = min(count, length)
    for part in range(count):
        yield replace(
            whole,
            start_offset=whole.start_offset + length * part // count,
            end_offset=whole.start_offset + length * (part + 1) // count,
        )
