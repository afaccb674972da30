"""The coordinator of one partition of `__transaction_state`: the entry to this package.

The driver calls one operation at a time and executes its result. A transactional id changes only
when the record of its new state is committed. Until then the new state is pending, and other
requests for this id get CONCURRENT_TRANSACTIONS.

A transaction ends in two steps. When the decision is committed (PREPARE_COMMIT or PREPARE_ABORT),
`write_markers` is called; the caller writes a marker to each partition of the transaction and
reports it with `markers_written`. When no marker is missing, the second record is appended. A new
coordinator that finds the first record in the log continues there.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.text import listed, quoted
from spindle.coordinator.config import TransactionsConfig
from spindle.coordinator.coordinator_result import CoordinatorResult, Transaction
from spindle.coordinator.ports import ShardRecordFormat
from spindle.coordinator.transactions.end_txn import EndRequest, ended, fenced
from spindle.coordinator.transactions.init_producer_id import (
    NewProducerId,
    check_initialization,
    find_or_create,
    initialized,
)
from spindle.coordinator.transactions.metadata import TransactionMetadata, TransactionState
from spindle.coordinator.transactions.records import (
    TransactionRecord,
    encode_transaction,
    parse_transaction,
    value_version_of,
)
from spindle.coordinator.transactions.transaction_table import (
    MarkedTransaction,
    TransactionalId,
    TransactionTable,
)
from spindle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from spindle.protocol.messages.end_txn import EndTxnResponse
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH

log = logging.getLogger(__name__)

TRANSACTION_RECORDS: Final[ShardRecordFormat[TransactionRecord]] = ShardRecordFormat(
    encode_transaction, parse_transaction
)
_CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionTimer(NamedTuple):
    """The subject of a timer.

    `timeouts`: transactions that are open for too long are aborted. `expiration`: transactional ids
    without activity are removed. `completion`: the completion of a transaction is appended again.
    """

    kind: Literal["timeouts", "expiration", "completion"]
    name: str = ""


TransactionResult: TypeAlias = CoordinatorResult[TransactionRecord, TransactionTimer, None]
WriteMarkers: TypeAlias = Callable[[MarkedTransaction, Sequence[TopicPartition]], None]


class TransactionShard:
    """The transactional ids of one partition. Only one driver may use it.

    Args:
        config: the broker's settings.
        new_producer_id: returns an unused producer id, or raises ApiError.
        transaction_version: returns the level of the cluster's feature `transaction.version`.
        write_markers: is called when the end of a transaction is committed.
    """

    __slots__ = (
        "_config",
        "_new_producer_id",
        "_transaction_version",
        "_write_markers",
        "ids",
        "retrying",
    )

    def __init__(
        self,
        config: TransactionsConfig,
        new_producer_id: NewProducerId,
        transaction_version: Callable[[], int],
        write_markers: WriteMarkers,
    ) -> None:
        self.ids = TransactionTable()
        self.retrying: set[str] = set()
        """The transactional ids whose completion could not be appended yet."""
        self._config = config
        self._new_producer_id = new_producer_id
        self._transaction_version = transaction_version
        self._write_markers = write_markers

    # ------------------------------------------------------------ requests of producers

    def init_producer_id(
        self, request: InitProducerIdRequest, out: TransactionResult
    ) -> InitProducerIdResponse:
        """Decide on InitProducerId. Raises ApiError if it is refused.

        If a transaction is open, it is aborted, and the request is answered with
        CONCURRENT_TRANSACTIONS, so that the client asks again.
        """
        check_initialization(request, self._config)
        entry = find_or_create(self.ids, request, self._new_producer_id, out.now_ms)
        new = initialized(entry, request, self._new_producer_id, out.now_ms)
        if new is not None:
            self._change(entry, new, out)
            return InitProducerIdResponse(
                producer_id=new.producer_id, producer_epoch=new.producer_epoch
            )
        self._fence(entry, out)
        log.info(
            "Aborting the transaction of %s: a new producer takes the place of producer %d",
            quoted(entry.name),
            entry.metadata.producer_id,
        )
        return InitProducerIdResponse(error_code=_CONCURRENT, producer_epoch=-1)

    def add_partitions(
        self,
        name: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        client_version: int,
        out: TransactionResult,
    ) -> AddOffsetsToTxnResponse:
        """Add partitions to the transaction of a producer (id and epoch), which begins with them.

        The answer is empty. `client_version` is the `transaction.version` of the client.

        Raises:
            ApiError: the producer may not add them.
        """
        entry = self.ids.get(name)
        entry.check_no_change()
        _check_producer(entry, producer)
        metadata = entry.metadata
        is_ongoing = metadata.state is TransactionState.ONGOING
        if not is_ongoing or not set(partitions) <= set(metadata.partitions):
            new = metadata.with_partitions(partitions, out.now_ms, client_version)
            self._change(entry, new, out)
        return AddOffsetsToTxnResponse()

    def verify_partitions(
        self, name: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition of the producer's transaction (KIP-890).

        Other partitions have TRANSACTION_ABORTABLE.

        Raises:
            ApiError: the producer has no transaction.
        """
        entry = self.ids.get(name)
        _check_producer(entry, producer)
        members = set(entry.metadata.partitions)
        return {
            partition: ErrorCode.NONE if partition in members else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end_transaction(
        self, name: str, request: EndRequest, out: TransactionResult
    ) -> EndTxnResponse:
        """Decide on EndTxn. Raises ApiError if it is refused.

        The answer has the producer id and epoch for the next transaction. It comes when the
        decision is committed; the markers are written afterwards.
        """
        entry = self.ids.get(name)
        new = ended(entry, request, self._new_producer_id, out.now_ms)
        after = entry.metadata
        if new is not None:
            self._change(entry, new, out)
            after = new.completed(out.now_ms)
        return EndTxnResponse(producer_id=after.producer_id, producer_epoch=after.producer_epoch)

    # ------------------------------------------------------------ markers

    def is_marking(self, transaction: MarkedTransaction) -> bool:
        """Return True while markers of the transaction are missing."""
        return self._marking(transaction) is not None

    def _marking(self, transaction: MarkedTransaction) -> TransactionalId | None:
        entry = self.ids.find(transaction.transactional_id)
        is_marking = entry is not None and entry.unmarked and _marked(entry) == transaction
        return entry if is_marking else None

    def markers_written(
        self,
        transaction: MarkedTransaction,
        partitions: Iterable[TopicPartition],
        out: TransactionResult,
    ) -> None:
        """Record partitions that have their marker, or need none because they are deleted.

        When no marker is missing, the transaction is complete. The time of its completion is that
        of its preparation, as in Kafka.
        """
        entry = self._marking(transaction)
        if entry is None or entry.unmarked is None:
            return
        for partition in partitions:
            entry.unmarked.pop(partition, None)
        if not entry.unmarked:
            self._append_completion(entry, out)

    # ------------------------------------------------------------ time

    def on_timer(self, key: TransactionTimer, out: TransactionResult) -> None:
        """Handle a timer that fired."""
        if key.kind == "timeouts":
            out.is_atomic = False
            self._abort_timed_out(out)
            out.start_timer(key, self._config.abort_interval_ms)
        elif key.kind == "expiration":
            out.is_atomic = False
            self._expire(out)
            out.start_timer(key, self._config.expiration_interval_ms)
        else:
            entry = self.ids.find(key.name)
            if entry is not None and entry.unmarked is not None and not entry.unmarked:
                self._append_completion(entry, out)

    def is_exclusive_timer(self, _: TransactionTimer) -> bool:
        """Return False: a transactional id with a pending change takes no other."""
        return False

    def _abort_timed_out(self, out: TransactionResult) -> None:
        aborted, postponed = [], []
        for entry in self.ids:
            if entry.pending is None and entry.metadata.is_timed_out(out.now_ms):
                try:
                    self._fence(entry, out)
                except ApiError:
                    postponed.append(entry.name)
                else:
                    aborted.append(entry.name)
        if aborted:
            log.info("Aborting transactions that timed out, of %s", listed(aborted))
        if postponed:
            log.warning("No producer id to abort the transactions of %s yet", listed(postponed))

    def _expire(self, out: TransactionResult) -> None:
        latest_ms = out.now_ms - self._config.expiration_ms
        expired = []
        for entry in list(self.ids):
            metadata = entry.metadata
            is_unused = metadata.state.is_idle and metadata.last_update_ms <= latest_ms
            if entry.pending is not None or not is_unused:
                continue
            if metadata.producer_epoch == NO_PRODUCER_EPOCH:
                # Its first record was refused, perhaps because no record can hold the name.
                self.ids.remove(entry.name)
            else:
                entry.pending = metadata
                out.records.append(TransactionRecord(entry.name, None))
                expired.append(entry.name)
        if expired:
            log.info("Removing transactional ids that were not used: %s", listed(expired))

    # ------------------------------------------------------------ changes

    def _fence(self, entry: TransactionalId, out: TransactionResult) -> None:
        version = self._transaction_version()
        self._change(entry, fenced(entry, version, self._new_producer_id, out.now_ms), out)

    def _change(
        self, entry: TransactionalId, new: TransactionMetadata, out: TransactionResult
    ) -> None:
        entry.pending = new
        version = value_version_of(self._transaction_version())
        out.records.append(TransactionRecord(entry.name, new, version))

    def _append_completion(self, entry: TransactionalId, out: TransactionResult) -> None:
        assert entry.pending is not None
        self._change(entry, entry.pending, out)

    def _begin_marking(self, entry: TransactionalId, now_ms: int) -> bool:
        """Ask for the markers of a prepared transaction; return False if it needs none."""
        entry.pending = entry.metadata.completed(now_ms)
        entry.unmarked = dict.fromkeys(entry.metadata.partitions)
        if entry.unmarked:
            self._write_markers(_marked(entry), entry.metadata.partitions)
        return bool(entry.unmarked)

    # ------------------------------------------------------------ the log

    def replay(self, record: TransactionRecord, _: int) -> None:
        """Apply a record of the log; the records of this topic belong to no transaction."""
        if record.metadata is None:
            self.ids.remove(record.transactional_id)
        else:
            self.ids.put(record.transactional_id, record.metadata)

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore a marker: `__transaction_state` takes part in no transaction."""

    def loaded(self, out: TransactionResult) -> None:
        """Continue the transactions whose end is decided, and start the timers for old ones."""
        out.is_atomic = False
        out.start_timer(TransactionTimer("timeouts"), self._config.abort_interval_ms)
        out.start_timer(TransactionTimer("expiration"), self._config.expiration_interval_ms)
        for entry in self.ids:
            if entry.metadata.state.is_prepared and not self._begin_marking(entry, out.now_ms):
                self._append_completion(entry, out)

    def unloaded(self, out: TransactionResult) -> None:
        """Do nothing, because no request is parked."""

    def committed(
        self,
        records: Sequence[TransactionRecord],
        _base_offset: int,
        _transaction: Transaction,
        out: TransactionResult,
    ) -> None:
        """Apply records of this shard, which are committed."""
        for record in records:
            if record.metadata is None:
                self.ids.remove(record.transactional_id)
                continue
            entry = self.ids.put(record.transactional_id, record.metadata)
            if record.metadata.state is TransactionState.EMPTY:
                _log_initialized(entry)
            entry.pending = entry.unmarked = None
            self.retrying.discard(entry.name)
            entry.has_unstored_fence = False
            if record.metadata.state.is_prepared and not self._begin_marking(entry, out.now_ms):
                out.start_timer(TransactionTimer("completion", entry.name), 0)

    def failed(self, records: Sequence[TransactionRecord], out: TransactionResult) -> None:
        """Drop the pending states of records that were not appended; retry completions."""
        for record in records:
            entry = self.ids.find(record.transactional_id)
            if entry is None:
                continue
            if entry.unmarked is None:
                entry.pending = None
                continue
            self.retrying.add(entry.name)
            timer = TransactionTimer("completion", entry.name)
            out.start_timer(timer, self._config.append_retry_ms)

    def complete(self, _completion: None, _code: ErrorCode, _out: TransactionResult) -> None:
        """Do nothing: the results of this shard have no completions."""

    def check(self) -> None:
        """Assert the invariants of all transactional ids (for tests and the simulator)."""
        for entry in self.ids:
            assert (entry.unmarked is None) or entry.metadata.state.is_prepared, entry.name
            assert not entry.metadata.state.is_prepared or entry.pending is not None, entry.name


def _log_initialized(entry: TransactionalId) -> None:
    metadata = entry.metadata
    is_first = (metadata.previous_producer_id, metadata.producer_epoch) == (metadata.producer_id, 0)
    log.info(
        "Initialized transactional id %s: producer id %d, epoch %d%s",
        quoted(entry.name),
        metadata.producer_id,
        metadata.producer_epoch,
        "" if is_first else ", earlier producers are fenced",
    )


def _check_producer(entry: TransactionalId, producer: tuple[int, int]) -> None:
    """Raise ApiError unless this is the producer of the transactional id, and may write."""
    metadata = entry.metadata
    if metadata.producer_id != producer[0]:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer[1]:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if metadata.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _marked(entry: TransactionalId) -> MarkedTransaction:
    metadata = entry.metadata
    return MarkedTransaction(
        entry.name,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.is_commit,
        metadata.client_version,
    )
