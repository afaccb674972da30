"""Transactional appends of Produce: verified by the coordinator before the first ones (KIP-890)."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from spindle.common.errors import ApiError, ErrorCode, error_code
from spindle.common.ids import TopicPartition
from spindle.common.ports import Bytes
from spindle.log.log import Log
from spindle.log.producers.verification import NO_TRANSACTION, TransactionContext, VerificationGuard
from spindle.protocol import versions
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.batch import (
    HEADER_BYTES,
    MAGIC,
    MAGIC_POSITION,
    NO_PRODUCER_ID,
    TRANSACTIONAL_FLAG,
)
from spindle.protocol.records.validation import AppendOrigin
from spindle.replicas.partition import Appended, Partition
from spindle.serving.services import BrokerServices

_ATTRIBUTES_LOW_BYTE: Final = 22
_PRODUCER: Final = Struct(">qhi")
_PRODUCER_POSITION: Final = 43
_COORDINATOR_NOT_READY: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_COORDINATOR,
)


class VerificationFailed(ApiError):
    """A transactional append was refused before it reached the log.

    `shown` is the text for the client, None if the code says enough.
    """

    def __init__(self, code: ErrorCode, shown: str | None = None) -> None:
        super().__init__(code, shown or "")
        self.shown = shown


class ProducerOfRequest(NamedTuple):
    """The producer of the transactional records of a request."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


def is_transactional(request: ProduceRequest) -> bool:
    """Return whether the request has a transactional batch."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if data.records is not None and _has_flag(data.records):
                return True
    return False


def transactional_producer(request: ProduceRequest) -> ProducerOfRequest:
    """Return the producer of a transactional request.

    Raises:
        ApiError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED without a transactional id,
            INVALID_PRODUCER_ID_MAPPING if there are batches of several producers or epochs.
    """
    if request.transactional_id is None:
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    producers = {
        _PRODUCER.unpack_from(data.records, _PRODUCER_POSITION)[:2]
        for topic in request.topic_data
        for data in topic.partition_data
        if data.records is not None and _is_verifiable(data.records)
    }
    if len(producers) > 1:
        raise ApiError(ErrorCode.INVALID_PRODUCER_ID_MAPPING)
    producer_id, producer_epoch = producers.pop() if producers else (NO_PRODUCER_ID, -1)
    return ProducerOfRequest(request.transactional_id, producer_id, producer_epoch)


def _has_flag(records: Bytes) -> bool:
    return (
        len(records) > _ATTRIBUTES_LOW_BYTE
        and records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG != 0
        and records[MAGIC_POSITION] == MAGIC
    )


def _is_verifiable(records: Bytes) -> bool:
    """Return whether a batch is transactional and of a producer; the log refuses any other."""
    if not _has_flag(records) or len(records) < HEADER_BYTES:
        return False
    producer_id, _, _ = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)
    return bool(producer_id != NO_PRODUCER_ID)


class _Waiting(NamedTuple):
    """An append that waits for its verification."""

    partition: Partition
    records: Bytes
    sequence: int
    done: Appended


class VerifiedAppends:
    """The appends of one transactional request.

    Args:
        version: that of the request.
        acks: as in the request.
        on_settled: called once when all appends given before the first `begin` have been handed to
            their logs, or were refused.
    """

    def __init__(
        self,
        services: BrokerServices,
        producer: ProducerOfRequest,
        version: int,
        acks: int,
        on_settled: Callable[[], None],
    ) -> None:
        self._services = services
        self._producer = producer
        self._acks = acks
        self._on_settled: Callable[[], None] | None = on_settled
        self._adds = version >= versions.PRODUCE_ADDS_PARTITION
        self._knows_abortable = version >= versions.PRODUCE_ABORTABLE
        self._waiting: list[_Waiting] = []
        self._tasks: list[Any] = []

    def append(self, partition: Partition, records: Bytes, done: Appended) -> None:
        """Append at once if the transaction is open in the partition, else after `begin`."""
        if not _is_verifiable(records) or not self._must_verify(partition):
            self._hand_over(partition, records, done, NO_TRANSACTION)
            return
        sequence = _PRODUCER.unpack_from(records, _PRODUCER_POSITION)[2]
        self._waiting.append(_Waiting(partition, records, sequence, done))

    def begin(self) -> None:
        """Verify and append what waits."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._tasks.append(self._services.loop.create_task(self._append_verified(waiting)))
        else:
            self._settled()

    def _must_verify(self, partition: Partition) -> bool:
        if not self._adds and not partition.log.config.verifies_transactions:
            return False
        _, producer_id, producer_epoch = self._producer
        # An append or marker may be in progress. The log checks again when it appends.
        return not partition.log.producers.has_open_transaction(producer_id, producer_epoch)

    def _hand_over(
        self, partition: Partition, records: Bytes, done: Appended, terms: TransactionContext
    ) -> None:
        now_ms = self._services.now_ms()
        partition.append(records, self._acks, now_ms, AppendOrigin.CLIENT, done, terms=terms)

    def _settled(self) -> None:
        on_settled, self._on_settled = self._on_settled, None
        if on_settled is not None:
            on_settled()

    async def _append_verified(self, waiting: list[_Waiting]) -> None:
        """Verify and append; ask again while the producer's transaction before is being ended."""
        services = self._services
        pause_ms = services.config.integer("add.partitions.to.txn.retry.backoff.ms")
        deadline_ms = services.steady_ms() + min(
            services.config.integer("add.partitions.to.txn.retry.backoff.max.ms"),
            services.config.integer("request.timeout.ms"),
        )
        try:
            while waiting:
                may_wait = self._adds and services.steady_ms() < deadline_ms
                waiting, is_busy = await self._attempt(waiting, may_wait=may_wait)
                if is_busy:
                    await self._pause(pause_ms)
        finally:
            for waiting_append in waiting:  # only after an error of this program
                waiting_append.done(None, ApiError(ErrorCode.UNKNOWN_SERVER_ERROR))
            self._settled()

    async def _attempt(
        self, waiting: list[_Waiting], *, may_wait: bool
    ) -> tuple[list[_Waiting], bool]:
        """Verify and append once.

        Return (appends to retry, True if the previous transaction is still ending).
        """
        asked: list[tuple[_Waiting, VerificationGuard]] = []
        for waiting_append, begun in zip(waiting, await self._begin_all(waiting), strict=True):
            if isinstance(begun, VerificationGuard):
                asked.append((waiting_append, begun))
            elif begun is None:
                self._hand_over(
                    waiting_append.partition,
                    waiting_append.records,
                    waiting_append.done,
                    NO_TRANSACTION,
                )
            else:
                waiting_append.done(None, VerificationFailed(error_code(begun)))
        if not asked:
            return [], False
        where = list(
            dict.fromkeys(waiting_append.partition.topic_partition for waiting_append, _ in asked)
        )
        codes = await self._services.verification.verify(*self._producer, where, adds=self._adds)
        is_busy = may_wait and ErrorCode.CONCURRENT_TRANSACTIONS in codes.values()
        return self._append_all(asked, codes, is_busy=is_busy), is_busy

    def _append_all(
        self,
        asked: Sequence[tuple[_Waiting, VerificationGuard]],
        codes: Mapping[TopicPartition, ErrorCode],
        *,
        is_busy: bool,
    ) -> list[_Waiting]:
        again = []
        for waiting_append, verification in asked:
            code = codes[waiting_append.partition.topic_partition]
            if code is ErrorCode.CONCURRENT_TRANSACTIONS and is_busy:
                again.append(waiting_append)
            elif code is not ErrorCode.NONE:
                waiting_append.done(None, self._refusal(code))
            elif (
                waiting_append.partition.log.producers.verification_of(self._producer.producer_id)
                is verification
            ):
                terms = TransactionContext(verification)
                self._hand_over(
                    waiting_append.partition, waiting_append.records, waiting_append.done, terms
                )
            else:
                # A marker came since, perhaps that of the transaction before: the answer may not be
                # about the present one.
                again.append(waiting_append)
        return again

    async def _begin_all(
        self, waiting: Sequence[_Waiting]
    ) -> list[VerificationGuard | BaseException | None]:
        """Begin the verifications; return None where the transaction is open already."""
        verifications: list[VerificationGuard | BaseException | None] = [None] * len(waiting)
        left = len(waiting)
        promise = self._services.loop.create_future()

        def begun(
            index: int, result: VerificationGuard | None, error: BaseException | None
        ) -> None:
            nonlocal left
            verifications[index] = result if error is None else error
            left -= 1
            if not left and not promise.done():
                promise.set_result(None)

        for index, waiting_append in enumerate(waiting):
            if waiting_append.partition.leader is None:
                begun(index, None, ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            else:
                change = partial(
                    self._begin_on_thread, waiting_append.sequence, self._services.now_ms()
                )
                waiting_append.partition.change_log(change, partial(begun, index))
        await promise
        return verifications

    def _begin_on_thread(self, sequence: int, now_ms: int, log: Log) -> VerificationGuard | None:
        _, producer_id, producer_epoch = self._producer
        return log.producers.begin_verification(
            producer_id, producer_epoch, sequence, now_ms, adds_partitions=self._adds
        )

    async def _pause(self, pause_ms: int) -> None:
        promise = self._services.loop.create_future()
        self._services.loop.call_later(pause_ms / 1000, promise.set_result, None)
        await promise

    def _refusal(self, code: ErrorCode) -> VerificationFailed:
        """Translate an error of the coordinator into one that producers of the version know."""
        if code is ErrorCode.TRANSACTION_ABORTABLE and not self._knows_abortable:
            code = ErrorCode.INVALID_TXN_STATE
        if code is ErrorCode.INVALID_TXN_STATE:
            return VerificationFailed(code, "The partition does not belong to the transaction")
        is_busy = code is ErrorCode.CONCURRENT_TRANSACTIONS and not self._adds
        if is_busy or code in _COORDINATOR_NOT_READY:
            # Clients send again after this error, without asking for metadata first.
            return VerificationFailed(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The coordinator could not be asked about the transaction: {code.name}",
            )
        return VerificationFailed(code)
