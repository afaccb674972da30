"""The tables and documents of `kafka-transactions`."""

from collections.abc import Sequence
from typing import Any, Final

from spindle.cli.table import tabbed_lines
from spindle.client.admin.hanging_transactions import OpenTransaction
from spindle.client.admin.transactions import (
    ActiveProducer,
    TransactionDescription,
    TransactionListing,
)
from spindle.common.java_text import in_map_order, partition_hash

_NONE: Final = "None"
_MINUTE_MS: Final = 60_000


def listing_table(listed: Sequence[TransactionListing]) -> list[str]:
    """Return the table of transactional ids."""
    head = ("TransactionalId", "Coordinator", "ProducerId", "TransactionState")
    rows = [
        (entry.transactional_id, str(entry.coordinator_id), str(entry.producer_id), entry.state)
        for entry in listed
    ]
    return tabbed_lines([head, *rows])


def listing_json(each: TransactionListing) -> dict[str, Any]:
    """Return a transactional id as a document."""
    return {
        "transactionalId": each.transactional_id,
        "coordinator": each.coordinator_id,
        "producerId": each.producer_id,
        "state": each.state,
    }


def transaction_table(described: TransactionDescription, now_ms: int) -> list[str]:
    """Return the table with the state of one transactional id."""
    head = (
        "CoordinatorId",
        "TransactionalId",
        "ProducerId",
        "ProducerEpoch",
        "TransactionState",
        "TransactionTimeoutMs",
        "CurrentTransactionStartTimeMs",
        "TransactionDurationMs",
        "TopicPartitions",
    )
    start_ms = described.start_time_ms
    row = (
        str(described.coordinator_id),
        described.transactional_id,
        str(described.producer_id),
        str(described.producer_epoch),
        described.state,
        str(described.timeout_ms),
        _NONE if start_ms is None else str(start_ms),
        _NONE if start_ms is None else str(now_ms - start_ms),
        ",".join(map(str, in_map_order(described.partitions, partition_hash))),
    )
    return tabbed_lines([head, row])


def transaction_json(described: TransactionDescription, now_ms: int) -> dict[str, Any]:
    """Return the state of a transactional id as a document."""
    start_ms = described.start_time_ms
    return {
        "transactionalId": described.transactional_id,
        "coordinator": described.coordinator_id,
        "producerId": described.producer_id,
        "producerEpoch": described.producer_epoch,
        "state": described.state,
        "timeoutMs": described.timeout_ms,
        "startTimeMs": start_ms,
        "durationMs": None if start_ms is None else now_ms - start_ms,
        "partitions": [{"topic": t, "partition": p} for t, p in sorted(described.partitions)],
    }


def producer_table(producers: Sequence[ActiveProducer]) -> list[str]:
    """Return the table of the producers of a partition."""
    head = (
        "ProducerId",
        "ProducerEpoch",
        "LatestCoordinatorEpoch",
        "LastSequence",
        "LastTimestamp",
        "CurrentTransactionStartOffset",
    )
    rows = [
        (
            str(producer.producer_id),
            str(producer.producer_epoch),
            str(producer.coordinator_epoch),
            str(producer.last_sequence),
            str(producer.last_timestamp_ms),
            _NONE
            if producer.transaction_start_offset is None
            else str(producer.transaction_start_offset),
        )
        for producer in producers
    ]
    return tabbed_lines([head, *rows])


def producer_json(each: ActiveProducer) -> dict[str, Any]:
    """Return a producer as a document."""
    return {
        "producerId": each.producer_id,
        "producerEpoch": each.producer_epoch,
        "coordinatorEpoch": None if each.coordinator_epoch < 0 else each.coordinator_epoch,
        "lastSequence": each.last_sequence,
        "lastTimestampMs": each.last_timestamp_ms,
        "transactionStartOffset": each.transaction_start_offset,
    }


def hanging_table(found: Sequence[OpenTransaction], now_ms: int) -> list[str]:
    """Return the table of hanging transactions."""
    head = (
        "Topic",
        "Partition",
        "ProducerId",
        "ProducerEpoch",
        "CoordinatorEpoch",
        "StartOffset",
        "LastTimestamp",
        "Duration(min)",
    )
    rows = [
        (
            transaction.partition.topic,
            str(transaction.partition.partition),
            str(transaction.producer.producer_id),
            str(transaction.producer.producer_epoch),
            str(transaction.producer.coordinator_epoch),
            str(transaction.producer.transaction_start_offset),
            str(transaction.producer.last_timestamp_ms),
            str((now_ms - transaction.producer.last_timestamp_ms) // _MINUTE_MS),
        )
        for transaction in found
    ]
    return tabbed_lines([head, *rows])


def hanging_json(each: OpenTransaction) -> dict[str, Any]:
    """Return a hanging transaction as a document."""
    topic, partition = each.partition
    return {"topic": topic, "partition": partition, **producer_json(each.producer)}
