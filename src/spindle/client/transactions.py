"""Requests of a transactional producer (KIP-98), and the meaning of their answers.

All requests have the versions from before KIP-890: partitions and groups are added explicitly, and
the end of a transaction keeps the producer epoch. Brokers of every `transaction.version` serve
them. The end of a transaction can then be asked for again with the same epoch, also by another
process. InitProducerId gives each transaction an epoch of its own instead.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Final, NamedTuple

from spindle.client.errors import raise_for
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol import versions
from spindle.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from spindle.protocol.messages.end_txn import EndTxnResponse
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

LAST_ADD_PARTITIONS_VERSION: Final = versions.ADD_PARTITIONS_TO_TXN_BATCHED - 1
LAST_PRODUCE_VERSION: Final = versions.PRODUCE_ADDS_PARTITION - 1
LAST_TXN_OFFSET_COMMIT_VERSION: Final = versions.TXN_OFFSET_COMMIT_ADDS_PARTITION - 1
LAST_END_VERSION: Final = versions.END_TXN_EPOCH_BUMP - 1
LAST_INIT_VERSION: Final = 5

FENCED: Final = frozenset(
    {
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_TXN_STATE,
    }
)
"""The codes after which a transaction of this producer epoch can never be committed."""


class ProducerIdentity(NamedTuple):
    """The producer id and epoch that InitProducerId gave."""

    producer_id: int
    epoch: int


class StoredOffset(NamedTuple):
    """An offset of a group, and the metadata text of its commit."""

    offset: int
    metadata: str


class TransactionEnd(Enum):
    """The outcome of a commit."""

    COMMITTED = "committed"
    ABORTED = "aborted"


def add_partitions_request(
    transactional_id: str, identity: ProducerIdentity, partitions: Iterable[TopicPartition]
) -> AddPartitionsToTxnRequest:
    """Return a request that adds partitions to the open transaction, or begins one with them."""
    topics: dict[str, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic] = {}
    for name, partition in partitions:
        topic = topics.setdefault(
            name, AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=name)
        )
        topic.partitions.append(partition)
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity.producer_id,
        v3_and_below_producer_epoch=identity.epoch,
        v3_and_below_topics=list(topics.values()),
    )


def check_added_partitions(response: AddPartitionsToTxnResponse) -> None:
    """Raise ApiError for the first partition that was refused for a reason of its own.

    If one partition is refused, the others are answered with OPERATION_NOT_ATTEMPTED.
    """
    refused = [
        (TopicPartition(topic.name, partition.partition_index), partition.partition_error_code)
        for topic in response.results_by_topic_v3_and_below
        for partition in topic.results_by_partition
        if partition.partition_error_code
    ]
    refused.sort(key=lambda entry: entry[1] == ErrorCode.OPERATION_NOT_ATTEMPTED)
    for partition, code in refused:
        raise_for(code, f"adding partition {partition} to the transaction")


def txn_offset_commit_request(
    transactional_id: str,
    identity: ProducerIdentity,
    group_id: str,
    offsets: Mapping[TopicPartition, StoredOffset],
) -> TxnOffsetCommitRequest:
    """Return a request that commits offsets of a group together with the transaction."""
    topics: dict[str, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic] = {}
    for (name, partition), stored in offsets.items():
        topic = topics.setdefault(
            name, TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name=name)
        )
        topic.partitions.append(
            topic.TxnOffsetCommitRequestPartition(
                partition_index=partition,
                committed_offset=stored.offset,
                committed_metadata=stored.metadata,
            )
        )
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=list(topics.values()),
    )


def check_committed_offsets(group_id: str, response: TxnOffsetCommitResponse) -> None:
    """Raise ApiError for the first offset that was refused."""
    for topic in response.topics:
        for partition in topic.partitions:
            raise_for(partition.error_code, f"transactional offsets of group {group_id!r}")


def commit_outcome(transactional_id: str, response: EndTxnResponse) -> TransactionEnd:
    """Return the outcome of EndTxn(commit): the transaction may have been aborted before.

    Raises:
        ApiError: the request failed without an outcome.
    """
    if response.error_code in FENCED:
        return TransactionEnd.ABORTED
    raise_for(response.error_code, f"EndTxn of transactional id {transactional_id!r}")
    return TransactionEnd.COMMITTED


def is_fenced(error: BaseException) -> bool:
    """Return True if the error says that a newer epoch has fenced the producer."""
    return isinstance(error, ApiError) and error.code in FENCED
