"""A transactional producer: one instance of a transactional id, until it is fenced.

With `transaction.version` below 2 it adds partitions before it writes to them; from 2 on the leader
adds them, and each transaction has an epoch of its own (KIP-890). Each transaction goes by the
version of its beginning.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spindle.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spindle.protocol.messages.end_txn import EndTxnRequest
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.runtime.peers.port import PeerUnavailable
from spindle.testing.histories.events import (
    Acknowledged,
    CommitAsked,
    Event,
    NumberedRecord,
    OffsetSent,
    RecordSent,
    TransactionEnded,
)
from verification.simulation.client import SimulatedClient
from verification.simulation.coordinator_link import (
    MOVED,
    OF_GROUPS,
    OF_TRANSACTIONS,
    CoordinatorLink,
)
from verification.simulation.record_oracle import Payload
from verification.simulation.topic import Topic

_FENCED: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)
_FAILED: Final = (
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.OPERATION_NOT_ATTEMPTED,
)
_CERTAINLY_LATER: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
"""The coordinator has not begun with the request."""
_RETRIABLE: Final = (
    *MOVED,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
)
_VERSION_1: Final[dict[type, int]] = {
    AddPartitionsToTxnRequest: 3,
    ProduceRequest: 11,
    TxnOffsetCommitRequest: 4,
    EndTxnRequest: 4,
}
"""The newest versions of requests that do not belong to transaction.version 2."""


class ProducerFenced(Exception):
    """Another instance, or the coordinator after a timeout, has taken over the transactional id."""


class TransactionFailed(Exception):
    """The transaction can only be aborted."""


class UnexpectedAnswer(Exception):
    """An error code that this request must not get."""


class TransactionalProducer:
    """One instance. All of its methods try until there is an answer.

    Attributes:
        transaction: the name of the present transaction; None between transactions.
        waits_for: the request that is not answered yet.
        is_started: it has an epoch, so that earlier instances are fenced.
    """

    def __init__(
        self,
        name: str,
        transactional_id: str,
        client: SimulatedClient,
        note: Callable[[Event], None],
        *,
        timeout_ms: int,
        speaks_version_2: Callable[[], bool],
    ) -> None:
        self.name = name
        self.transaction: str | None = None
        self.waits_for = "nothing"
        self.is_started = False
        self._transactional_id = transactional_id
        self._client = client
        self._note = note
        self._timeout_ms = timeout_ms
        self._speaks_version_2 = speaks_version_2
        self._is_version_2 = False
        self._coordinator = CoordinatorLink(client, transactional_id, OF_TRANSACTIONS)
        self._id = -1
        self._epoch = -1
        self._count = 0
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition | str] = set()
        self._is_uncertain = False
        self._needs_new_epoch = False
        self._is_promoted = False

    async def start(self) -> None:
        """Get the producer id and an epoch that fences earlier instances, or the next epoch.

        Raises:
            ProducerFenced: a later instance has a newer epoch.
        """
        code, answer = await self._until_answered(
            self._coordinator,
            InitProducerIdRequest(
                transactional_id=self._transactional_id,
                transaction_timeout_ms=self._timeout_ms,
                producer_id=self._id,
                producer_epoch=self._epoch,
            ),
            lambda answer: answer.error_code,
        )
        self._raise_for(code, "InitProducerId")
        self._take_epoch(answer.producer_id, answer.producer_epoch)
        self._needs_new_epoch = self._is_promoted = False
        self.is_started = True

    def begin(self) -> str:
        """Begin a transaction and return its name."""
        self._count += 1
        was_version_2, self._is_version_2 = self._is_version_2, self._speaks_version_2()
        self._is_promoted |= self._count > 1 and self._is_version_2 and not was_version_2
        self.transaction = f"{self.name}/{self._count}"
        self._added.clear()
        return self.transaction

    async def send(self, topic: Topic, index: int, record: NumberedRecord, value: Payload) -> None:
        """Write one record; `value` is what the log gets.

        Raises:
            ProducerFenced: there is a newer instance.
            TransactionFailed: it must be aborted.
        """
        where = TopicPartition(topic.name, index)
        self._note(RecordSent(record, topic.name, self.transaction))
        if self._is_promoted:
            # The markers of the transaction before may be missing, and have the same epoch.
            await self.start()
        if not self._is_version_2 and where not in self._added:
            await self._add_partition(where)
        self._added.add(where)
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        batch = build_batch(
            [SimpleRecord(value.encode(), value.encode(), now_ms)],
            producer_id=self._id,
            producer_epoch=self._epoch,
            base_sequence=self._sequences.get(where, 0),
            is_transactional=True,
        )
        offset = await self._produce(topic, index, batch)
        self._sequences[where] = self._sequences.get(where, 0) + 1
        known = offset if offset >= 0 else None
        self._note(Acknowledged(record, where, known, self.transaction))

    async def send_offsets(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        topic: Topic,
        offsets: Mapping[int, int],
    ) -> None:
        """Commit a member's offsets by partition with the transaction; it raises as `send` does."""
        for partition, offset in offsets.items():
            where = TopicPartition(topic.name, partition)
            self._note(OffsetSent(group_id, where, offset, self.transaction))
        if not self._is_version_2:
            code, _ = await self._until_answered(
                self._coordinator,
                AddOffsetsToTxnRequest(
                    transactional_id=self._transactional_id,
                    producer_id=self._id,
                    producer_epoch=self._epoch,
                    group_id=group_id,
                ),
                lambda answer: answer.error_code,
            )
            self._raise_for(code, "AddOffsetsToTxn")
        self._added.add(group_id)
        kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        rows = [
            kind(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    kind.TxnOffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset
                    )
                ],
            )
            for partition, offset in offsets.items()
        ]
        code, _ = await self._until_answered(
            CoordinatorLink(self._client, group_id, OF_GROUPS),
            TxnOffsetCommitRequest(
                transactional_id=self._transactional_id,
                group_id=group_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                generation_id_or_member_epoch=generation,
                member_id=member_id,
                topics=rows,
            ),
            lambda answer: answer.topics[0].partitions[0].error_code,
        )
        self._raise_for(code, "TxnOffsetCommit")

    async def commit(self) -> None:
        """Commit; it raises as `send` does, and then the outcome may be unknown."""
        assert self.transaction is not None
        self._note(CommitAsked(self.transaction))
        code = await self._end(is_commit=True)
        if code == ErrorCode.NONE or not self._is_uncertain:
            self._note(TransactionEnded(self.transaction, code == ErrorCode.NONE))
        self.transaction = None
        self._raise_for(code, "EndTxn")

    async def abort(self) -> None:
        """Abort.

        Raises:
            ProducerFenced: there is a newer instance.
        """
        name, self.transaction = self.transaction, None
        code = await self._end(is_commit=False)
        if name is not None and code == ErrorCode.NONE:
            self._note(TransactionEnded(name, is_committed=False))
        if code in _FAILED:
            self._needs_new_epoch = True
        else:
            self._raise_for(code, "EndTxn")
        if self._needs_new_epoch and not self._is_version_2:
            await self.start()

    # -- requests

    async def _end(self, *, is_commit: bool) -> int:
        if not self._added:
            return ErrorCode.NONE
        self._is_uncertain = False
        code, answer = await self._until_answered(
            self._coordinator,
            EndTxnRequest(
                transactional_id=self._transactional_id,
                producer_id=self._id,
                producer_epoch=self._epoch,
                committed=is_commit,
            ),
            lambda answer: answer.error_code,
        )
        if code == ErrorCode.NONE and self._is_version_2:
            self._take_epoch(answer.producer_id, answer.producer_epoch)
        return code

    def _take_epoch(self, producer_id: int, epoch: int) -> None:
        if (producer_id, epoch) != (self._id, self._epoch):
            self._sequences.clear()
        self._id, self._epoch = producer_id, epoch

    async def _add_partition(self, where: TopicPartition) -> None:
        code, _ = await self._until_answered(
            self._coordinator,
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=self._transactional_id,
                v3_and_below_producer_id=self._id,
                v3_and_below_producer_epoch=self._epoch,
                v3_and_below_topics=[
                    AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
                        name=where.topic, partitions=[where.partition]
                    )
                ],
            ),
            lambda answer: (
                answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code
            ),
        )
        self._raise_for(code, "AddPartitionsToTxn")

    async def _produce(self, topic: Topic, index: int, batch: bytes) -> int:
        """Return the offset of the batch."""
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=self._transactional_id,
            acks=-1,
            timeout_ms=1500,
            topic_data=[
                data(
                    topic_id=topic.topic_id,
                    name=topic.name,
                    partition_data=[data.PartitionProduceData(index=index, records=batch)],
                )
            ],
        )
        self.waits_for = f"{self.name}: Produce to {topic.name}-{index}"
        while True:
            answer = None
            leader = await self._client.leader(topic.topic_id, topic.name, index)
            if leader is not None:
                try:
                    answer = await self._client.ask(
                        leader.destination, request, self._last_version(request)
                    )
                except PeerUnavailable:
                    answer = None
            if answer is not None:
                row = answer.responses[0].partition_responses[0]
                code = row.error_code
                if code == ErrorCode.NONE:
                    self.waits_for = "nothing"
                    return int(row.base_offset)
                if code not in (*_RETRIABLE, ErrorCode.FENCED_LEADER_EPOCH):
                    self._needs_new_epoch = True
                    self._raise_for(code, f"Produce to {topic.name}-{index}")
            self._client.forget(topic.topic_id, index)
            await self._client.pause()

    def _last_version(self, request: Any) -> int | None:
        return None if self._is_version_2 else _VERSION_1.get(type(request))

    async def _until_answered(
        self, link: CoordinatorLink, request: Any, code_of: Callable[[Any], int]
    ) -> tuple[int, Any]:
        """Ask until the answer is not "try again"; note if it may have been carried out before."""
        self.waits_for = f"{self.name}: {type(request).__name__}"
        while True:
            answer = await link.ask(request, self._last_version(request))
            code = None if answer is None else code_of(answer)
            if code is not None and code not in _RETRIABLE:
                self.waits_for = "nothing"
                return code, answer
            if code not in _CERTAINLY_LATER:
                self._is_uncertain = True
            if code in MOVED:
                link.forget()
            await self._client.pause()

    def _raise_for(self, code: int, what: str) -> None:
        if code == ErrorCode.NONE:
            return
        if code in _FENCED:
            raise ProducerFenced(f"{self.name}: {what}: {ErrorCode(code).name}")
        if code in _FAILED:
            raise TransactionFailed(f"{self.name}: {what}: {ErrorCode(code).name}")
        raise UnexpectedAnswer(
            f"{self.name} ({self._id}, epoch {self._epoch}): {what}: {ErrorCode(code).name}"
        )


def payload_of(topic: Topic, record: NumberedRecord, attempt: str = "") -> Payload:
    """Return the value of a record; the attempt distinguishes repeated sends of one record."""
    producer = f"{record.producer}@{attempt}" if attempt else record.producer
    return Payload(uuid_text(topic.topic_id), producer, record.number)


def record_of(value: bytes) -> NumberedRecord:
    """Return the record that `payload_of` has encoded."""
    payload = Payload.decode(value)
    return NumberedRecord(payload.producer.partition("@")[0], payload.number)
