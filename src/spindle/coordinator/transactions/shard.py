"""The coordinator of one partition of `__transaction_state`: the entry to this package.

The driver calls one operation at a time and executes its effects. A transactional id changes only
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
from spindle.common.log_text import listed, quoted
from spindle.coordinator.effects import Effects, Token, Transaction
from spindle.coordinator.transactions.config import TransactionsConfig
from spindle.coordinator.transactions.descriptions import (
    DescribedTransaction,
    ListedTransaction,
    TransactionFilter,
    describe_transaction,
)
from spindle.coordinator.transactions.ending import EndRequest, ended, fenced
from spindle.coordinator.transactions.initialization import (
    NewProducerId,
    check_initialization,
    find_or_create,
    initialized,
)
from spindle.coordinator.transactions.metadata import TransactionMetadata, TransactionState
from spindle.coordinator.transactions.records import TransactionRecord, value_version_of
from spindle.coordinator.transactions.transactions import (
    MarkedTransaction,
    TransactionalId,
    TransactionTable,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from spindle.protocol.messages.end_txn import EndTxnResponse
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.records.batch import NO_PRODUCER_EPOCH

log = logging.getLogger(__name__)

_CONCURRENT: Final = ErrorCode.CONCURRENT_TRANSACTIONS


class TransactionTimer(NamedTuple):
    """The subject of a timer.

    `timeouts`: transactions that are open for too long are aborted. `expiration`: transactional ids
    without activity are removed. `completion`: the completion of a transaction is appended again.
    """

    kind: Literal["timeouts", "expiration", "completion"]
    name: str = ""


TransactionEffects: TypeAlias = Effects[TransactionRecord, TransactionTimer, None]
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
        self, token: Token, request: InitProducerIdRequest, now_ms: int
    ) -> TransactionEffects:
        """Decide on InitProducerId. Raises ApiError if it is refused.

        If a transaction is open, it is aborted, and the request is answered with
        CONCURRENT_TRANSACTIONS, so that the client asks again.
        """
        check_initialization(request, self._config)
        out = TransactionEffects()
        found = find_or_create(self.ids, request, self._new_producer_id, now_ms)
        new = initialized(found, request, self._new_producer_id, now_ms)
        response = InitProducerIdResponse(error_code=_CONCURRENT, producer_epoch=-1)
        if new is None:
            self._fence(found, now_ms, out)
            log.info(
                "Aborting the transaction of %s: a new producer takes the place of producer %d",
                quoted(found.name),
                found.metadata.producer_id,
            )
        else:
            self._change(found, new, out)
            response = InitProducerIdResponse(
                producer_id=new.producer_id, producer_epoch=new.producer_epoch
            )
        out.answer_after_commit(token, response)
        return out

    def add_partitions(
        self,
        token: Token,
        name: str,
        producer: tuple[int, int],
        partitions: Sequence[TopicPartition],
        client_version: int,
        now_ms: int,
    ) -> TransactionEffects:
        """Add partitions to the transaction of a producer (id and epoch), which begins with them.

        The answer is empty. `client_version` is the `transaction.version` of the client.

        Raises:
            ApiError: the producer may not add them.
        """
        found = self.ids.get(name)
        found.check_no_change()
        _check_producer(found, producer)
        metadata = found.metadata
        out = TransactionEffects()
        is_ongoing = metadata.state is TransactionState.ONGOING
        if not is_ongoing or not set(partitions) <= set(metadata.partitions):
            new = metadata.with_partitions(partitions, now_ms, client_version)
            self._change(found, new, out)
        out.answer_after_commit(token, AddOffsetsToTxnResponse())
        return out

    def verify_partitions(
        self, name: str, producer: tuple[int, int], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Return NONE for each partition of the producer's transaction (KIP-890).

        Other partitions have TRANSACTION_ABORTABLE.

        Raises:
            ApiError: the producer has no transaction.
        """
        found = self.ids.get(name)
        _check_producer(found, producer)
        members = set(found.metadata.partitions)
        return {
            partition: ErrorCode.NONE if partition in members else ErrorCode.TRANSACTION_ABORTABLE
            for partition in partitions
        }

    def end_transaction(
        self, token: Token, name: str, request: EndRequest, now_ms: int
    ) -> TransactionEffects:
        """Decide on EndTxn. Raises ApiError if it is refused.

        The answer has the producer id and epoch for the next transaction. It comes when the
        decision is committed; the markers are written afterwards.
        """
        found = self.ids.get(name)
        out = TransactionEffects()
        new = ended(found, request, self._new_producer_id, now_ms)
        after = found.metadata
        if new is not None:
            self._change(found, new, out)
            after = new.completed(now_ms)
        response: Message = EndTxnResponse(
            producer_id=after.producer_id, producer_epoch=after.producer_epoch
        )
        out.answer_after_commit(token, response)
        return out

    # ------------------------------------------------------------ questions

    def describe(self, name: str) -> DescribedTransaction:
        """Answer DescribeTransactions for one transactional id."""
        return describe_transaction(self.ids, name)

    def list_ids(self, wanted: TransactionFilter, now_ms: int) -> list[ListedTransaction]:
        """Answer ListTransactions."""
        return wanted.listed(self.ids, now_ms)

    # ------------------------------------------------------------ markers

    def is_marking(self, transaction: MarkedTransaction) -> bool:
        """Return True while markers of the transaction are missing."""
        found = self.ids.find(transaction.transactional_id)
        return found is not None and bool(found.unmarked) and _marked(found) == transaction

    def markers_written(
        self, transaction: MarkedTransaction, partitions: Iterable[TopicPartition], now_ms: int
    ) -> TransactionEffects:
        """Take note of partitions that have their marker, or need none because they are deleted.

        When no marker is missing, the transaction is complete. The time of its completion is that
        of its preparation, as in Kafka.
        """
        out = TransactionEffects()
        found = self.ids.find(transaction.transactional_id)
        if found is None or not found.unmarked or _marked(found) != transaction:
            return out
        for partition in partitions:
            found.unmarked.pop(partition, None)
        if not found.unmarked:
            self._append_completion(found, out)
        return out

    # ------------------------------------------------------------ time

    def on_timer(self, key: TransactionTimer, now_ms: int) -> TransactionEffects:
        """Handle a timer that fired."""
        out = TransactionEffects()
        if key.kind == "timeouts":
            out.is_atomic = False
            self._abort_timed_out(now_ms, out)
            out.set_timer(key, now_ms + self._config.abort_interval_ms)
        elif key.kind == "expiration":
            out.is_atomic = False
            self._expire(now_ms, out)
            out.set_timer(key, now_ms + self._config.expiration_interval_ms)
        else:
            found = self.ids.find(key.name)
            if found is not None and found.unmarked is not None and not found.unmarked:
                self._append_completion(found, out)
        return out

    def is_exclusive_timer(self, _: TransactionTimer) -> bool:
        """Return False: a pending change excludes others of the same transactional id."""
        return False

    def _abort_timed_out(self, now_ms: int, out: TransactionEffects) -> None:
        aborted, postponed = [], []
        for found in self.ids:
            if found.pending is None and found.metadata.is_timed_out(now_ms):
                try:
                    self._fence(found, now_ms, out)
                except ApiError:
                    postponed.append(found.name)
                else:
                    aborted.append(found.name)
        if aborted:
            log.info("Aborting transactions that timed out, of %s", listed(aborted))
        if postponed:
            log.warning("No producer id to abort the transactions of %s yet", listed(postponed))

    def _expire(self, now_ms: int, out: TransactionEffects) -> None:
        latest_ms = now_ms - self._config.expiration_ms
        expired = []
        for found in list(self.ids):
            metadata = found.metadata
            is_unused = metadata.state.is_idle and metadata.last_update_ms <= latest_ms
            if found.pending is not None or not is_unused:
                continue
            if metadata.producer_epoch == NO_PRODUCER_EPOCH:
                # Its first record was refused, perhaps because no record can hold the name.
                self.ids.remove(found.name)
            else:
                found.pending = metadata
                out.records.append(TransactionRecord(found.name, None))
                expired.append(found.name)
        if expired:
            log.info("Removing transactional ids that were not used: %s", listed(expired))

    # ------------------------------------------------------------ changes

    def _fence(self, found: TransactionalId, now_ms: int, out: TransactionEffects) -> None:
        version = self._transaction_version()
        self._change(found, fenced(found, version, self._new_producer_id, now_ms), out)

    def _change(
        self, found: TransactionalId, new: TransactionMetadata, out: TransactionEffects
    ) -> None:
        found.pending = new
        version = value_version_of(self._transaction_version())
        out.records.append(TransactionRecord(found.name, new, version))

    def _append_completion(self, found: TransactionalId, out: TransactionEffects) -> None:
        assert found.pending is not None
        self._change(found, found.pending, out)

    def _begin_marking(self, found: TransactionalId, now_ms: int) -> bool:
        """Ask for the markers of a prepared transaction; return False if it needs none."""
        found.pending = found.metadata.completed(now_ms)
        found.unmarked = dict.fromkeys(found.metadata.partitions)
        if found.unmarked:
            self._write_markers(_marked(found), found.metadata.partitions)
        return bool(found.unmarked)

    # ------------------------------------------------------------ the log

    def replay(self, record: TransactionRecord, _: int) -> None:
        """Apply a record of the log; the records of this topic belong to no transaction."""
        if record.metadata is None:
            self.ids.remove(record.transactional_id)
        else:
            self.ids.put(record.transactional_id, record.metadata)

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """Ignore a marker: `__transaction_state` takes part in no transaction."""

    def loaded(self, now_ms: int) -> TransactionEffects:
        """Continue the transactions whose end is decided, and begin to look for old ones."""
        out = TransactionEffects()
        out.is_atomic = False
        out.set_timer(TransactionTimer("timeouts"), now_ms + self._config.abort_interval_ms)
        out.set_timer(TransactionTimer("expiration"), now_ms + self._config.expiration_interval_ms)
        for found in self.ids:
            if found.metadata.state.is_prepared and not self._begin_marking(found, now_ms):
                self._append_completion(found, out)
        return out

    def unloaded(self, _: int) -> TransactionEffects:
        """Return nothing, because no request is parked."""
        return TransactionEffects()

    def committed(
        self,
        records: Sequence[TransactionRecord],
        _base_offset: int,
        _transaction: Transaction,
        now_ms: int,
    ) -> TransactionEffects:
        """Apply records of this shard, which are committed."""
        out = TransactionEffects()
        for record in records:
            if record.metadata is None:
                self.ids.remove(record.transactional_id)
                continue
            found = self.ids.put(record.transactional_id, record.metadata)
            if record.metadata.state is TransactionState.EMPTY:
                _tell_initialized(found)
            found.pending = found.unmarked = None
            self.retrying.discard(found.name)
            found.has_unstored_fence = False
            if record.metadata.state.is_prepared and not self._begin_marking(found, now_ms):
                out.set_timer(TransactionTimer("completion", found.name), now_ms)
        return out

    def failed(
        self, records: Sequence[TransactionRecord], _: ErrorCode, now_ms: int
    ) -> TransactionEffects:
        """Drop the pending states of records that were not appended; retry completions."""
        out = TransactionEffects()
        for record in records:
            found = self.ids.find(record.transactional_id)
            if found is None:
                continue
            if found.unmarked is not None:
                at_ms = now_ms + self._config.append_retry_ms
                self.retrying.add(found.name)
                out.set_timer(TransactionTimer("completion", found.name), at_ms)
                continue
            found.pending = None
        return out

    def complete(self, _: None, _code: ErrorCode, _now_ms: int) -> TransactionEffects:
        """Return nothing: the effects of this shard have no completions."""
        return TransactionEffects()

    def check(self) -> None:
        """Assert the invariants of all transactional ids (for tests and the simulator)."""
        for found in self.ids:
            assert (found.unmarked is None) or found.metadata.state.is_prepared, found.name
            assert not found.metadata.state.is_prepared or found.pending is not None, found.name


def _tell_initialized(found: TransactionalId) -> None:
    metadata = found.metadata
    is_first = (metadata.previous_producer_id, metadata.producer_epoch) == (metadata.producer_id, 0)
    log.info(
        "Initialized transactional id %s: producer id %d, epoch %d%s",
        quoted(found.name),
        metadata.producer_id,
        metadata.producer_epoch,
        "" if is_first else ", earlier producers are fenced",
    )


def _check_producer(found: TransactionalId, producer: tuple[int, int]) -> None:
    """Raise ApiError unless this is the producer of the transactional id, and may write."""
    metadata = found.metadata
    if metadata.producer_id != producer[0]:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    if metadata.producer_epoch != producer[1]:
        raise ApiError(ErrorCode.PRODUCER_FENCED)
    if metadata.state.is_prepared:
        raise ApiError(ErrorCode.CONCURRENT_TRANSACTIONS)


def _marked(found: TransactionalId) -> MarkedTransaction:
    metadata = found.metadata
    return MarkedTransaction(
        found.name,
        metadata.producer_id,
        metadata.producer_epoch,
        metadata.is_commit,
        metadata.client_version,
    )
