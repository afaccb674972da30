"""Records of `__transaction_state`: byte for byte those of Apache Kafka 4.3.1."""

import json
from pathlib import Path
from typing import Any

import pytest

from spindle.common.errors import CorruptRecords
from spindle.common.ids import TopicPartition
from spindle.coordinator.transactions.metadata import TransactionMetadata, TransactionState
from spindle.coordinator.transactions.records import (
    TransactionRecord,
    encode_transaction,
    parse_transaction,
    value_version_of,
)
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch

# The log of a broker of Kafka, as kafka-dump-log printed it, with the CRC of each batch.
LOGGED = Path(__file__).with_name("kafka_transaction_log.jsonl").read_text().splitlines()
FULL = TransactionMetadata(
    producer_id=5,
    timeout_ms=60_000,
    last_update_ms=1_700_000_000_500,
    state=TransactionState.PREPARE_COMMIT,
    producer_epoch=32767,
    previous_producer_id=4,
    next_producer_id=9,
    partitions=(TopicPartition("b", 3), TopicPartition("a", 0), TopicPartition("a", 1)),
    start_ms=1_700_000_000_000,
    client_version=2,
)


def metadata_of(row: dict[str, Any]) -> TransactionMetadata:
    return TransactionMetadata(
        producer_id=row["producerId"],
        timeout_ms=row["transactionTimeoutMs"],
        last_update_ms=row["transactionLastUpdateTimestampMs"],
        state=TransactionState(row["transactionStatus"]),
        producer_epoch=row["producerEpoch"],
        previous_producer_id=row["previousProducerId"],
        partitions=tuple(
            TopicPartition(topic["topic"], index)
            for topic in row["transactionPartitions"] or ()
            for index in topic["partitionIds"]
        ),
        start_ms=row["transactionStartTimestampMs"],
        client_version=row.get("clientTransactionVersion", 0),
    )


@pytest.mark.parametrize("line", LOGGED)
def test_bytes_are_those_of_kafka(line: str) -> None:
    row = json.loads(line)
    metadata = metadata_of(row)
    key, value = encode_transaction(TransactionRecord(row["id"], metadata))
    batch = build_batch([SimpleRecord(key, value, row["create_ms"])])
    assert read_header(batch, 0).crc == row["crc"]
    assert parse_transaction(key, value, 0) == TransactionRecord(row["id"], metadata)


def test_all_fields_come_back() -> None:
    record = TransactionRecord("tx", FULL)
    assert parse_transaction(*encode_transaction(record), 0) == record


def test_version_0_lacks_the_fields_of_kip_890() -> None:
    key, value = encode_transaction(TransactionRecord("tx", FULL, 0))
    parsed = parse_transaction(key, value, 0)
    assert parsed is not None
    assert parsed.metadata is not None
    assert parsed.metadata.previous_producer_id == parsed.metadata.next_producer_id == -1
    assert parsed.metadata.client_version == 0
    assert parsed.metadata.partitions == FULL.partitions
    assert [value_version_of(level) for level in (0, 1, 2)] == [0, 1, 1]


def test_a_tombstone_comes_back() -> None:
    key, value = encode_transaction(TransactionRecord("tx", None))
    assert value is None
    assert parse_transaction(key, value, 0) == TransactionRecord("tx", None)


def test_records_of_a_later_version_are_passed_over() -> None:
    key, value = encode_transaction(TransactionRecord("tx", FULL))
    assert value is not None
    assert parse_transaction(b"\0\1" + key[2:], value, 0) is None
    assert parse_transaction(key, b"\0\2" + value[2:], 0) is None


@pytest.mark.parametrize("damage", ["key", "value", "state", "none"])
def test_damaged_records_are_refused(damage: str) -> None:
    key, value = encode_transaction(TransactionRecord("tx", FULL))
    assert value is not None
    damaged = {
        "key": (key[:-1], value),
        "value": (key, value[:20]),
        "state": (key, value[:16] + b"\x63" + value[17:]),
        "none": (None, value),
    }
    with pytest.raises(CorruptRecords, match="offset 7"):
        parse_transaction(*damaged[damage], 7)
