"""Read the records of committed transactions, and tell how far a group has read."""

from __future__ import annotations

from operator import not_

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, TopicPartition
from waiting import wait_for

from peers.clients import watermarks

LIMIT_S = 90.0


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )


def committed_records(bootstrap: str, topic: str, partitions: int) -> dict[int, list[Message]]:
    """Return the records up to the last stable offset, by partition."""
    committed_records: dict[int, list[Message]] = {partition: [] for partition in range(partitions)}
    unread = set(committed_records)
    consumer = _consumer(bootstrap, "reader of committed records")
    try:
        consumer.assign([TopicPartition(topic, p, OFFSET_BEGINNING) for p in committed_records])

        def unread_partitions() -> set[int]:
            for record in consumer.consume(1000, 0.2):
                partition, error = record.partition(), record.error()
                assert partition is not None
                if error is None:
                    committed_records[partition].append(record)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    unread.discard(partition)
            return unread

        wait_for(unread_partitions, not_, f"{topic} is read", limit_s=LIMIT_S, pause_s=0)
    finally:
        consumer.close()
    return committed_records


def committed_values(bootstrap: str, topic: str, partitions: int) -> dict[int, list[bytes | None]]:
    """Return the values of `committed_records`."""
    records = committed_records(bootstrap, topic, partitions)
    return {partition: [one.value() for one in part] for partition, part in records.items()}


def wait_all_read(bootstrap: str, topic: str, partitions: int, group: str) -> None:
    """Return when the committed offsets of the group are the ends of the topic."""
    places = [TopicPartition(topic, partition) for partition in range(partitions)]
    consumer = _consumer(bootstrap, group)
    try:
        ends = [watermarks(consumer, place)[1] for place in places]
        wait_for(
            lambda: [place.offset for place in consumer.committed(places, 30)],
            lambda offsets: offsets == ends,
            f"{topic} is read up to {ends}",
            limit_s=LIMIT_S,
            pause_s=0.2,
        )
    finally:
        consumer.close()


def stable_end(bootstrap: str, topic: str, partitions: int) -> int:
    """Return the sum of the last stable offsets of a topic."""
    consumer = _consumer(bootstrap, "reader of ends")
    try:
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        return sum(watermarks(consumer, place)[1] for place in places)
    finally:
        consumer.close()
