"""How much of a backlog one batch reads, and whether a small backlog waits: pure arithmetic."""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from spindle.common.ids import TopicPartition
from spindle.pipeline.streaming.position import Offsets

DEFAULT_MAX_DELAY_MS: Final = 15 * 60 * 1000


@dataclass(frozen=True, slots=True)
class TriggerLimits:
    """The least and the most that one batch reads; None for no limit.

    A batch waits until it has the least number of offsets or the least number of bytes, whichever
    it reaches first, and at most `max_delay_ms`. A batch respects both upper limits.
    """

    min_offsets: int | None = None
    max_offsets: int | None = None
    min_bytes: int | None = None
    max_bytes: int | None = None
    max_delay_ms: int = DEFAULT_MAX_DELAY_MS

    @property
    def needs_sizes(self) -> bool:
        return self.min_bytes is not None or self.max_bytes is not None


@dataclass(frozen=True, slots=True)
class Backlog:
    """Offsets that are not read yet: from `start` to `end` (exclusive) of each partition.

    Both have the same partitions, and no start is after its end.
    """

    start: Offsets
    end: Offsets

    @property
    def sizes(self) -> dict[TopicPartition, int]:
        return {partition: end - self.start[partition] for partition, end in self.end.items()}

    @property
    def offset_count(self) -> int:
        return sum(self.sizes.values())

    def size_bytes(self, bytes_per_offset: Mapping[TopicPartition, float]) -> int:
        """Return the estimated bytes of the backlog."""
        return round(
            sum(size * bytes_per_offset[partition] for partition, size in self.sizes.items())
        )


def admitted_ends(backlog: Backlog, limits: TriggerLimits, backlog_bytes: int) -> Offsets:
    """Return where a batch ends.

    Each partition gets the same share of its backlog, rounded down to an offset, and at least one
    offset, so that no partition starves. So a batch may exceed a limit by one offset per partition.

    Args:
        backlog_bytes: The estimated size of the backlog; used only with a limit in bytes.
    """
    share = Fraction(1)
    if limits.max_offsets is not None and backlog.offset_count > limits.max_offsets:
        share = Fraction(limits.max_offsets, backlog.offset_count)
    if limits.max_bytes is not None and backlog_bytes > limits.max_bytes:
        share = min(share, Fraction(limits.max_bytes, backlog_bytes))
    return {
        partition: backlog.start[partition] + (max(1, int(size * share)) if size > 0 else 0)
        for partition, size in backlog.sizes.items()
    }


def must_wait(
    backlog: Backlog,
    limits: TriggerLimits,
    backlog_bytes: int,
    *,
    waited_ms: int | None,
) -> bool:
    """Return True if the backlog is too small for a batch now.

    Args:
        waited_ms: Time since the last batch; None if there was none since the query started, which
            never waits, as in the `kafka` source.
    """
    if limits.min_offsets is None and limits.min_bytes is None:
        return False
    if waited_ms is None or waited_ms >= limits.max_delay_ms:
        return False
    has_offsets = limits.min_offsets is not None and backlog.offset_count >= limits.min_offsets
    has_bytes = limits.min_bytes is not None and backlog_bytes >= limits.min_bytes
    return not (has_offsets or has_bytes)
