"""The states of a record in a share group, and ranges of records in one state (KIP-932)."""

from enum import IntEnum
from typing import Final, NamedTuple

UNINITIALIZED_OFFSET: Final = -1
"""Start offset of a share partition whose leader has to apply `share.auto.offset.reset`."""
UNKNOWN_COUNT: Final = -1
"""A delivery complete count that the writer of the state did not send."""


class DeliveryState(IntEnum):
    """The state of a record, by its number in requests and records."""

    AVAILABLE = 0
    ACQUIRED = 1
    """Delivered to a member, whose lock has not expired. This state is never stored."""
    ACKNOWLEDGED = 2
    ARCHIVING = 3
    """The leader of the partition writes the record to a dead-letter topic (KIP-1191)."""
    ARCHIVED = 4
    """Rejected, or delivered as often as the group allows."""

    @property
    def is_terminal(self) -> bool:
        """True if nothing remains to be done for the record."""
        return self in (DeliveryState.ACKNOWLEDGED, DeliveryState.ARCHIVED)


class AcknowledgeType(IntEnum):
    """A member's answer about a record that it has acquired, by the number in requests."""

    GAP = 0
    """The log has no record at this offset, or a marker of a transaction."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """The member needs more time: the lock begins again."""


class StateBatch(NamedTuple):
    """Records from `first_offset` to `last_offset` (inclusive) in the same state."""

    first_offset: int
    last_offset: int
    delivery_state: int
    delivery_count: int


def combine(
    stored: list[StateBatch], written: list[StateBatch], start_offset: int
) -> list[StateBatch]:
    """Return the state after a write: written batches replace stored ones, offsets below the start
    are dropped, and neighbours in the same state become one batch.

    Within `written`, a later batch replaces an earlier one. The result is ordered and has no
    overlaps.
    """
    batches = list(stored)
    for batch in written:
        batches = _replaced(batches, batch)
    merged: list[StateBatch] = []
    for first, last, state, count in batches:
        if last < start_offset:
            continue
        first = max(first, start_offset)
        if merged:
            before = merged[-1]
            if before.last_offset + 1 == first and before[2:] == (state, count):
                merged[-1] = before._replace(last_offset=last)
                continue
        merged.append(StateBatch(first, last, state, count))
    return merged


def _replaced(batches: list[StateBatch], new: StateBatch) -> list[StateBatch]:
    """Return ordered batches with the offsets of `new` in its state."""
    before = [b for b in batches if b.first_offset < new.first_offset]
    after = [b for b in batches if b.last_offset > new.last_offset]
    if before and before[-1].last_offset >= new.first_offset:
        before[-1] = before[-1]._replace(last_offset=new.first_offset - 1)
    if after and after[0].first_offset <= new.last_offset:
        after[0] = after[0]._replace(first_offset=new.last_offset + 1)
    return [*before, new, *after]
