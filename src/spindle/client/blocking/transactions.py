"""Transactions of one transactional id, step by step, by blocking requests.

A transaction may be ended by another process than the one that wrote: it needs the transactional
id, the producer id and the epoch.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from spindle.client.admin.coordinators import CoordinatorKind
from spindle.client.blocking.coordinators import CoordinatorCache
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import raise_for
from spindle.client.transactions import (
    LAST_ADD_PARTITIONS_VERSION,
    LAST_END_VERSION,
    LAST_INIT_VERSION,
    LAST_TXN_OFFSET_COMMIT_VERSION,
    ProducerIdentity,
    StoredOffset,
    TransactionEnd,
    add_partitions_request,
    check_added_partitions,
    check_committed_offsets,
    commit_outcome,
    txn_offset_commit_request,
)
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol import versions
from spindle.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from spindle.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from spindle.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from spindle.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from spindle.protocol.messages.txn_offset_commit import TxnOffsetCommitResponse

_LAST_VERSION_BY_NAME: Final = versions.OFFSET_FETCH_TOPIC_IDS - 1
_Topic = OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics


def init_producer(
    coordinators: CoordinatorCache, transactional_id: str, timeout_ms: int
) -> ProducerIdentity:
    """Begin a new epoch of a transactional id: abort its open transaction, fence its producer.

    Args:
        timeout_ms: The coordinator aborts a transaction that is open longer than this.

    Raises:
        ApiError: the coordinator refused; INVALID_TRANSACTION_TIMEOUT above the brokers' maximum.
        ClientError: no broker could be asked.
    """
    client = coordinators.client
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
    )

    def question(coordinator: BrokerAddress) -> ProducerIdentity:
        answer = client.ask(
            request, InitProducerIdResponse, broker=coordinator, last_version=LAST_INIT_VERSION
        )
        raise_for(answer.error_code, f"InitProducerId of transactional id {transactional_id!r}")
        return ProducerIdentity(answer.producer_id, answer.producer_epoch)

    return coordinators.ask(CoordinatorKind.TRANSACTION, transactional_id, question)


def end_transaction(
    coordinators: CoordinatorCache,
    transactional_id: str,
    identity: ProducerIdentity,
    *,
    commit: bool,
) -> TransactionEnd:
    """Commit or abort a transaction; return ABORTED if it cannot be committed any more.

    It may be called again with the same arguments, also by another process.

    Raises:
        ApiError: the coordinator refused without an outcome.
        ClientError: no broker could be asked.
    """
    client = coordinators.client
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        committed=commit,
    )
    return coordinators.ask(
        CoordinatorKind.TRANSACTION,
        transactional_id,
        lambda broker: commit_outcome(
            transactional_id,
            client.ask(request, EndTxnResponse, broker=broker, last_version=LAST_END_VERSION),
        ),
    )


class ProducerTransaction:
    """The writing side of one transaction; it begins with the first partition or offset."""

    def __init__(
        self, coordinators: CoordinatorCache, transactional_id: str, timeout_ms: int
    ) -> None:
        self._coordinators = coordinators
        self.transactional_id = transactional_id
        self.identity = init_producer(coordinators, transactional_id, timeout_ms)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Add partitions before records are sent to them.

        Raises:
            ApiError: a partition was refused, or the producer is fenced.
            ClientError: no broker could be asked.
        """
        client = self._coordinators.client
        request = add_partitions_request(self.transactional_id, self.identity, partitions)
        self._coordinators.ask(
            CoordinatorKind.TRANSACTION,
            self.transactional_id,
            lambda broker: check_added_partitions(
                client.ask(
                    request,
                    AddPartitionsToTxnResponse,
                    broker=broker,
                    last_version=LAST_ADD_PARTITIONS_VERSION,
                )
            ),
        )

    def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, StoredOffset]) -> None:
        """Make offsets of a group part of the transaction.

        Raises:
            ApiError: an offset was refused, or the producer is fenced.
            ClientError: no broker could be asked.
        """
        client = self._coordinators.client
        adding = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.identity.producer_id,
            producer_epoch=self.identity.epoch,
            group_id=group_id,
        )
        self._coordinators.ask(
            CoordinatorKind.TRANSACTION,
            self.transactional_id,
            lambda broker: raise_for(
                client.ask(
                    adding,
                    AddOffsetsToTxnResponse,
                    broker=broker,
                    last_version=LAST_TXN_OFFSET_COMMIT_VERSION - 1,
                ).error_code,
                f"adding group {group_id!r} to a transaction",
            ),
        )
        request = txn_offset_commit_request(self.transactional_id, self.identity, group_id, offsets)
        self._coordinators.ask(
            CoordinatorKind.GROUP,
            group_id,
            lambda broker: check_committed_offsets(
                group_id,
                client.ask(
                    request,
                    TxnOffsetCommitResponse,
                    broker=broker,
                    last_version=LAST_TXN_OFFSET_COMMIT_VERSION,
                ),
            ),
        )

    def end(self, *, commit: bool) -> TransactionEnd:
        """End the transaction; see `end_transaction`."""
        return end_transaction(
            self._coordinators, self.transactional_id, self.identity, commit=commit
        )


def stable_offsets(
    coordinators: CoordinatorCache,
    group_id: str,
    required: TopicPartition,
    *,
    waits: bool = True,
) -> dict[TopicPartition, StoredOffset] | None:
    """Return the committed offsets of a group; wait while a transaction changes the required one.

    Another offset that an open transaction is about to change is left out.

    Args:
        waits: If it is False, return None instead of waiting.

    Raises:
        ApiError: the coordinator refused.
        ClientError: no broker could be asked.
    """
    client = coordinators.client
    head = _Topic(name=required.topic, partition_indexes=[required.partition])

    def offsets(coordinator: BrokerAddress, *topics: _Topic) -> dict[TopicPartition, StoredOffset]:
        group = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group_id, topics=list(topics) or None
        )
        answer = client.ask(
            OffsetFetchRequest(groups=[group], require_stable=True),
            OffsetFetchResponse,
            broker=coordinator,
            first_version=versions.OFFSET_FETCH_BATCHED,
            last_version=_LAST_VERSION_BY_NAME,
        )
        return _offsets_of(group_id, answer, required)

    def question(coordinator: BrokerAddress) -> dict[TopicPartition, StoredOffset] | None:
        try:
            stored_offsets = offsets(coordinator)
            # Among all offsets the one that is being stored for the first time is missing. The
            # coordinator reports its transaction only if it is asked for this offset.
            if required not in stored_offsets and required in offsets(coordinator, head):
                stored_offsets = offsets(coordinator)
            return stored_offsets
        except ApiError as error:
            if waits or error.code is not ErrorCode.UNSTABLE_OFFSET_COMMIT:
                raise
            return None

    return coordinators.ask(CoordinatorKind.GROUP, group_id, question)


def _offsets_of(
    group_id: str, answer: OffsetFetchResponse, required: TopicPartition
) -> dict[TopicPartition, StoredOffset]:
    (group,) = answer.groups
    raise_for(group.error_code, f"offsets of group {group_id!r}")
    offsets = {}
    for topic in group.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            if row.error_code and partition != required:
                continue
            raise_for(row.error_code, f"offset of {partition} of group {group_id!r}")
            if row.committed_offset >= 0:
                offsets[partition] = StoredOffset(row.committed_offset, row.metadata or "")
    return offsets
