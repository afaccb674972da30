"""Records of `__transaction_state`, to bytes and back.

A key is its type (int16, 0) and the transactional id, a value starts with its version (int16).
Version 1 is written from `transaction.version` 1 on, as Apache Kafka 4.4 does.
"""

from struct import Struct
from struct import error as StructError
from typing import Final, NamedTuple

from spindle.common.errors import CorruptRecords, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.coordinator.transactions.metadata import TransactionMetadata, TransactionState
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.coordinator_records import TransactionLogKey, TransactionLogValue

_KEY_TYPE: Final = 0
_INT16: Final = Struct(">h")
_PartitionsOfTopic = TransactionLogValue.PartitionsSchema


class TransactionRecord(NamedTuple):
    """Key and value of a transactional id; without metadata it is a tombstone."""

    transactional_id: str
    metadata: TransactionMetadata | None
    value_version: int = TransactionLogValue.LAST_VERSION


def value_version_of(transaction_version: int) -> int:
    """Return the version of values at a level of the feature `transaction.version`."""
    return min(transaction_version, TransactionLogValue.LAST_VERSION)


def encode_transaction(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return key and value as they stand in the log; the value of a tombstone is None."""
    key = _INT16.pack(_KEY_TYPE)
    key += encode(TransactionLogKey(transactional_id=record.transactional_id), 0)
    if record.metadata is None:
        return key, None
    version = record.value_version
    return key, _INT16.pack(version) + encode(_value_of(record.metadata, version), version)


def _value_of(metadata: TransactionMetadata, version: int) -> TransactionLogValue:
    value = TransactionLogValue(
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_status=metadata.state,
        transaction_partitions=_topics_of(metadata),
        transaction_last_update_timestamp_ms=metadata.last_update_ms,
        transaction_start_timestamp_ms=metadata.start_ms,
    )
    if version >= 1:
        value.client_transaction_version = metadata.client_version
        value.previous_producer_id = metadata.previous_producer_id
        value.next_producer_id = metadata.next_producer_id
    return value


def _topics_of(metadata: TransactionMetadata) -> list[_PartitionsOfTopic] | None:
    if metadata.state is TransactionState.EMPTY:
        return None
    return [
        _PartitionsOfTopic(topic=topic, partition_ids=indexes)
        for topic, indexes in by_topic(metadata.partitions).items()
    ]


def by_topic(partitions: tuple[TopicPartition, ...]) -> dict[str, list[int]]:
    """Return the partitions' indexes by topic."""
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def parse_transaction(
    key: bytes | None, value: bytes | None, record_offset: int
) -> TransactionRecord | None:
    """Parse a key and a value; return None if the key's type or the value's version is unknown.

    Raises:
        CorruptRecords: key or value cannot be parsed.
    """
    if key is None:
        raise CorruptRecords(f"record at offset {record_offset} has no key")
    try:
        (kind,) = _INT16.unpack_from(key)
        if kind != _KEY_TYPE:
            return None
        stored_key, _ = decode(TransactionLogKey, 0, key, 2)
        if value is None:
            return TransactionRecord(stored_key.transactional_id, None)
        (version,) = _INT16.unpack_from(value)
        if not TransactionLogValue.FIRST_VERSION <= version <= TransactionLogValue.LAST_VERSION:
            return None
        stored, _ = decode(TransactionLogValue, version, value, 2)
        metadata = _metadata_of(stored)
    except (ProtocolViolation, StructError, ValueError) as error:
        raise CorruptRecords(f"transaction at offset {record_offset}: {error}") from None
    return TransactionRecord(stored_key.transactional_id, metadata, version)


def _metadata_of(stored: TransactionLogValue) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=stored.producer_id,
        timeout_ms=stored.transaction_timeout_ms,
        last_update_ms=stored.transaction_last_update_timestamp_ms,
        state=TransactionState(stored.transaction_status),
        producer_epoch=stored.producer_epoch,
        previous_producer_id=stored.previous_producer_id,
        next_producer_id=stored.next_producer_id,
        partitions=tuple(
            TopicPartition(of_topic.topic, index)
            for of_topic in stored.transaction_partitions or ()
            for index in of_topic.partition_ids
        ),
        start_ms=stored.transaction_start_timestamp_ms,
        client_version=stored.client_transaction_version,
    )
