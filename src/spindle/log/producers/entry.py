"""The state of one idempotent producer in a partition (KIP-98, KIP-360).

A client may have five batches in flight, so the last five are kept: a batch that is sent again is
recognised, and its existing offsets are returned.
"""

from typing import Final, NamedTuple

from spindle.protocol.records.batch import (
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    BatchHeader,
    add_to_sequence,
)
from spindle.protocol.sentinels import NO_OFFSET

CACHED_BATCHES: Final = 5
_SEQUENCES: Final = 2**31


class BatchMetadata(NamedTuple):
    """Last sequence, last offset and record count minus one of an appended batch."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp_ms: int

    @property
    def first_sequence(self) -> int:
        return (self.last_sequence - self.offset_delta) % _SEQUENCES

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta


class ProducerStateEntry:
    """Epoch, last batches and open transaction of a producer in one partition."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_transaction_first_offset",
        "last_timestamp_ms",
        "producer_epoch",
        "producer_id",
    )

    def __init__(
        self,
        producer_id: int,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        batches: tuple[BatchMetadata, ...] = (),
        last_timestamp_ms: int = -1,
        coordinator_epoch: int = -1,
        current_transaction_first_offset: int | None = None,
    ) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.batches = batches
        self.last_timestamp_ms = last_timestamp_ms
        self.coordinator_epoch = coordinator_epoch
        self.current_transaction_first_offset = current_transaction_first_offset

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def duplicate_of(self, header: BatchHeader) -> BatchMetadata | None:
        """Return the same batch (epoch, sequences) if it is among the last five; else None."""
        if header.producer_epoch != self.producer_epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and (
                batch.first_sequence == header.base_sequence
            ):
                return batch
        return None

    def begin_epoch(self, producer_epoch: int) -> None:
        """Begin a new epoch; forget the batches of the old one."""
        if producer_epoch != self.producer_epoch:
            self.batches = ()
            self.producer_epoch = producer_epoch

    def add_batch(self, batch: BatchMetadata) -> None:
        self.batches = (*self.batches[1 - CACHED_BATCHES :], batch)
        self.last_timestamp_ms = batch.timestamp_ms

    def copy(self) -> "ProducerStateEntry":
        return ProducerStateEntry(
            self.producer_id,
            self.producer_epoch,
            self.batches,
            self.last_timestamp_ms,
            self.coordinator_epoch,
            self.current_transaction_first_offset,
        )

    def __repr__(self) -> str:
        return (
            f"ProducerStateEntry(producer_id={self.producer_id}, "
            f"producer_epoch={self.producer_epoch}, last_sequence={self.last_sequence}, "
            f"last_offset={self.last_data_offset}, "
            f"current_transaction_first_offset={self.current_transaction_first_offset})"
        )


def follows(last_sequence: int, next_sequence: int) -> bool:
    """Return whether a batch that begins with `next_sequence` comes right after `last_sequence`."""
    return next_sequence == add_to_sequence(last_sequence, 1)
