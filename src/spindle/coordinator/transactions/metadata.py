"""The state of one transactional id, and its transitions.

Every transition returns a new state. It is a proposal until its record is committed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

EPOCH_BUMP_VERSION: Final = 2
"""The `transaction.version` from which every transaction gets an epoch of its own (KIP-890)."""
NO_TIMEOUT_MS: Final = 2**31 - 1
"""The timeout of a transaction that takes part in a two-phase commit (KIP-939)."""
NOT_STARTED_MS: Final = -1
_LAST_EPOCH: Final = 2**15 - 1
_LAST_CLIENT_EPOCH: Final = _LAST_EPOCH - 1
"""Clients never get the last epoch, so that the coordinator can always fence a producer."""


class TransactionState(IntEnum):
    """The state of a transactional id, as in its records."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def wire_name(self) -> str:
        """The name in the answers of DescribeTransactions and ListTransactions."""
        return self.name.title().replace("_", "")

    @property
    def is_prepared(self) -> bool:
        """True while markers are written."""
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)

    @property
    def is_idle(self) -> bool:
        """True if there is no transaction."""
        return self in _IDLE


_IDLE: Final = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
)
PREVIOUS_STATES: Final = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.ONGOING: (TransactionState.ONGOING, *_IDLE),
    TransactionState.PREPARE_COMMIT: (TransactionState.ONGOING,),
    TransactionState.PREPARE_ABORT: (
        TransactionState.ONGOING,
        TransactionState.PREPARE_EPOCH_FENCE,
        *_IDLE,
    ),
    TransactionState.COMPLETE_COMMIT: (TransactionState.PREPARE_COMMIT,),
    TransactionState.COMPLETE_ABORT: (TransactionState.PREPARE_ABORT,),
    TransactionState.DEAD: _IDLE,
    TransactionState.PREPARE_EPOCH_FENCE: (TransactionState.ONGOING,),
}
"""The states from which each state may be entered."""


def is_exhausted(epoch: int) -> bool:
    """Return True if a producer with this epoch needs a new producer id for its next epoch."""
    return epoch >= _LAST_CLIENT_EPOCH


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    """The state of a transactional id. Times in ms since the epoch, -1 for none."""

    producer_id: int
    timeout_ms: int
    last_update_ms: int
    state: TransactionState = TransactionState.EMPTY
    producer_epoch: int = NO_PRODUCER_EPOCH
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last change; not in the records."""
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The producer id that replaces an exhausted one when the transaction is complete."""
    partitions: tuple[TopicPartition, ...] = ()
    """The partitions of the transaction, in the order in which they were added."""
    start_ms: int = NOT_STARTED_MS
    client_version: int = 0
    """The `transaction.version` of the client that began or ended the transaction."""

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    @property
    def is_commit(self) -> bool:
        """True if the transaction was, or is being, committed."""
        return self.state in (TransactionState.PREPARE_COMMIT, TransactionState.COMPLETE_COMMIT)

    def is_timed_out(self, now_ms: int) -> bool:
        """Return True if the transaction is open for longer than its producer asked for."""
        return (
            self.state is TransactionState.ONGOING
            and self.timeout_ms != NO_TIMEOUT_MS
            and self.start_ms + self.timeout_ms < now_ms
        )

    def with_next_epoch(
        self, timeout_ms: int, expected_epoch: int | None, now_ms: int
    ) -> "TransactionMetadata":
        """Return the state of a producer that was initialised with the same producer id.

        Args:
            timeout_ms: the new timeout.
            expected_epoch: the epoch that the producer believes to have; None if it is new.
            now_ms: the time of the change.

        Raises:
            ApiError: PRODUCER_FENCED if another producer has changed the epoch.
        """
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # The client repeats a request whose answer it did not get.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise ApiError(ErrorCode.PRODUCER_FENCED)
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=NOT_STARTED_MS,
        )

    def with_new_producer_id(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keeps_last_epoch: bool
    ) -> "TransactionMetadata":
        """Return the state of a producer that was initialised with a new producer id."""
        return self._moved(
            TransactionState.EMPTY,
            now_ms,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if keeps_last_epoch else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=(),
            start_ms=NOT_STARTED_MS,
        )

    def with_partitions(
        self, added: Iterable[TopicPartition], now_ms: int, client_version: int
    ) -> "TransactionMetadata":
        """Return the state with these partitions in the transaction, which begins if necessary."""
        return self._moved(
            TransactionState.ONGOING,
            now_ms,
            partitions=tuple(dict.fromkeys((*self.partitions, *added))),
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            client_version=client_version,
        )

    def prepared(
        self, *, is_commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> "TransactionMetadata":
        """Return the state in which the end of the transaction is decided.

        The markers have the epoch of this state, which is a new one from `EPOCH_BUMP_VERSION` on.
        """
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= EPOCH_BUMP_VERSION:
            epoch, last_epoch = min(epoch + 1, _LAST_EPOCH), epoch
        return self._moved(
            TransactionState.PREPARE_COMMIT if is_commit else TransactionState.PREPARE_ABORT,
            now_ms,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            start_ms=now_ms if self.state.is_idle else self.start_ms,
            next_producer_id=next_producer_id,
            client_version=client_version,
        )

    def completed(self, now_ms: int) -> "TransactionMetadata":
        """Return the state after all markers are written."""
        producer_id, epoch = self.producer_id, self.producer_epoch
        if self.client_version >= EPOCH_BUMP_VERSION and self.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = self.next_producer_id, 0
        return self._moved(
            TransactionState.COMPLETE_COMMIT if self.is_commit else TransactionState.COMPLETE_ABORT,
            now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=(),
        )

    def with_fenced_producer(self) -> "TransactionMetadata":
        """Return the same state with an epoch that fences the producer."""
        epoch = min(self.producer_epoch + 1, _LAST_EPOCH)
        return replace(self, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)

    def _moved(
        self, state: TransactionState, now_ms: int, **changes: object
    ) -> "TransactionMetadata":
        assert self.state in PREVIOUS_STATES[state], f"{self.state.name} -> {state.name}"
        return replace(
            self,
            state=state,
            previous_producer_id=self.producer_id,
            last_update_ms=now_ms,
            **changes,  # type: ignore[arg-type]
        )
