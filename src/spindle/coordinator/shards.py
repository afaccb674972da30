"""The port of a shard, which coordinates one partition of an internal topic, to its driver.

Group coordinators have a shard for each partition of `__consumer_offsets`, transaction coordinators
one for each partition of `__transaction_state`. Both decide at once, append records, and answer
when these are committed.
"""

from collections.abc import Callable, Sequence
from typing import Generic, NamedTuple, Protocol

from spindle.common.errors import ErrorCode
from spindle.coordinator.effects import (
    CompletionT,
    Effects,
    RecordT,
    TimerKeyT,
    Transaction,
)
from spindle.protocol.records.batch import NO_SEQUENCE


class ShardRecordFormat(NamedTuple, Generic[RecordT]):
    """How the records of an internal topic stand in its log."""

    encode: Callable[[RecordT], tuple[bytes, bytes | None]]
    """Return key and value. Raises struct.error if a value does not fit its field."""
    parse: Callable[[bytes | None, bytes | None, int], RecordT | None]
    """Return the record with this key, value and offset; None if its type is unknown.

    Raises CorruptRecords.
    """
    base_sequence: int = NO_SEQUENCE
    """The base sequence of each batch, as Kafka writes it."""


class Shard(Protocol[RecordT, TimerKeyT, CompletionT]):
    """The coordinator of one partition. The driver calls one method at a time."""

    def replay(self, record: RecordT, producer_id: int) -> None:
        """Apply a record of the log.

        `producer_id` is that of a transactional batch, NO_PRODUCER_ID for other batches.
        """
        ...

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """Apply a marker of the log, which ends a producer's transaction."""
        ...

    def loaded(self, now_ms: int) -> Effects[RecordT, TimerKeyT, CompletionT]:
        """Begin the work of a coordinator, after all records of the log were replayed."""
        ...

    def unloaded(self, now_ms: int) -> Effects[RecordT, TimerKeyT, CompletionT]:
        """Answer every parked request, because another broker is the coordinator now."""
        ...

    def committed(
        self,
        records: Sequence[RecordT],
        base_offset: int,
        transaction: Transaction,
        now_ms: int,
    ) -> Effects[RecordT, TimerKeyT, CompletionT]:
        """Apply the shard's own batch, which is committed from `base_offset` on."""
        ...

    def failed(
        self, records: Sequence[RecordT], code: ErrorCode, now_ms: int
    ) -> Effects[RecordT, TimerKeyT, CompletionT]:
        """Take note that the shard's own records were not appended, and never will be.

        A request that waits too long is answered before the result of its append is known:
        `complete` tells the result of the request, `committed` and `failed` that of the records.
        """
        ...

    def complete(
        self, completion: CompletionT, code: ErrorCode, now_ms: int
    ) -> Effects[RecordT, TimerKeyT, CompletionT]:
        """Finish what waited for an append that ended with `code` (NONE: it is committed)."""
        ...

    def on_timer(self, key: TimerKeyT, now_ms: int) -> Effects[RecordT, TimerKeyT, CompletionT]:
        """Handle a timer that fired."""
        ...

    def is_exclusive_timer(self, key: TimerKeyT) -> bool:
        """Return True if the timer's operation must run while no append is under way."""
        ...
