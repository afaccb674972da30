"""Requests to write markers, and the meaning of the partition leaders' answers (KIP-98)."""

from collections.abc import Iterable
from enum import Enum
from typing import Final, NamedTuple, TypeAlias

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.transactions.records import by_topic
from spindle.coordinator.transactions.transaction_table import MarkedTransaction
from spindle.protocol.messages.write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

WritableMarker: TypeAlias = WriteTxnMarkersRequest.WritableTxnMarker


class MarkerResult(Enum):
    """The meaning of an answer for one partition of a transaction."""

    WRITTEN = "written"
    RETRY = "retry"
    """The leader is, or will be, another broker, or cannot write now."""
    FENCED = "fenced"
    """A newer coordinator or a newer epoch of the producer is known: no marker is sent any more."""


class PartitionMarker(NamedTuple):
    """A marker for one partition, and the epoch of the coordinator that sends it."""

    transaction: MarkedTransaction
    partition: TopicPartition
    coordinator_epoch: int


_WRITTEN: Final = frozenset(
    {
        ErrorCode.NONE,
        # Nothing transactional can have been written to such a partition.
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)
_FENCED: Final = frozenset(
    {ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED}
)
RETRIED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""The errors that are expected while leaders change. All others are retried as well, and logged."""


def markers_request(markers: Iterable[PartitionMarker]) -> WriteTxnMarkersRequest:
    """Return one request for all markers, which go to the same broker."""
    grouped: dict[tuple[MarkedTransaction, int], list[TopicPartition]] = {}
    for transaction, partition, coordinator_epoch in markers:
        grouped.setdefault((transaction, coordinator_epoch), []).append(partition)
    return WriteTxnMarkersRequest(
        markers=[
            WritableMarker(
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                transaction_result=transaction.is_commit,
                topics=[
                    WritableMarker.WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                    for topic, indexes in by_topic(tuple(partitions)).items()
                ],
                coordinator_epoch=coordinator_epoch,
                transaction_version=transaction.transaction_version,
            )
            for (transaction, coordinator_epoch), partitions in grouped.items()
        ]
    )


def codes_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], int]:
    """Return the error code of each marker by producer id and partition."""
    return {
        (marker.producer_id, TopicPartition(topic.name, partition.partition_index)): (
            partition.error_code
        )
        for marker in response.markers
        for topic in marker.topics
        for partition in topic.partitions
    }


def result_of(code: int) -> MarkerResult:
    """Return the meaning of an error code."""
    if code in _WRITTEN:
        return MarkerResult.WRITTEN
    return MarkerResult.FENCED if code in _FENCED else MarkerResult.RETRY
