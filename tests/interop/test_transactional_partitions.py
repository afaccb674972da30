"""Transactions in partitions: records, markers, stable offsets and files, compared with Kafka's."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS, Answer, Pair
from peers.node import Node
from waiting import wait_for

from spindle.protocol.records.batch import batches
from spindle.protocol.records.record import decode_records

LIMIT_S = 30.0
CONTROL_FLAG = 0x20
INDEX_ENTRY = struct.Struct(">hqqqq")
SNAPSHOT_ENTRY = struct.Struct(">qhiqiqiq")
SNAPSHOT_HEAD_BYTES = 10


def transactional(node: Node, name: str, **config: object) -> Producer:
    producer = Producer(
        {
            "bootstrap.servers": node.bootstrap,
            "transactional.id": name,
            "transaction.timeout.ms": 60_000,
            **config,
        }
    )
    producer.init_transactions(LIMIT_S)
    return producer


def send(producer: Producer, topic: str, *values: str, partition: int = 0) -> None:
    for value in values:
        producer.produce(topic, value, "k", partition, timestamp=FIRST_TIMESTAMP_MS)
    producer.flush(LIMIT_S)


def read(node: Node, topic: str, count: int, isolation: str) -> list[str]:
    """Return the values that a consumer sees up to the end, once there are so many."""
    consumer = Consumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": "unused",
            "isolation.level": isolation,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen: list[str] = []
    try:
        while True:
            message = consumer.poll(LIMIT_S)
            assert message is not None, f"{len(seen)} of {count} records, no end"
            if message.error():
                if len(seen) >= count:
                    return seen
                continue  # the last marker is still on its way
            seen.append((message.value() or b"").decode())
    finally:
        consumer.close()


def end_offsets(node: Node, topic: str) -> list[int]:
    """Return the high watermark and the last stable offset."""
    client = AdminClient({"bootstrap.servers": node.bootstrap})
    where = TopicPartition(topic, 0)
    offset_spec: Any = OffsetSpec  # its methods have no types
    return [
        client.list_offsets({where: offset_spec.latest()}, isolation_level=level)[where]
        .result(LIMIT_S)
        .offset
        for level in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED)
    ]


def wait_for_offsets(node: Node, topic: str, expected: list[int]) -> list[int]:
    """Return high watermark and last stable offset once they are so: markers come later."""
    return wait_for(
        lambda: end_offsets(node, topic), lambda ends: ends == expected, limit_s=LIMIT_S
    )


def folder(node: Node, topic: str) -> Path:
    (file,) = [path for root in node.log_dirs for path in root.glob(f"{topic}-0")]
    return file


def stored_batches(node: Node, topic: str) -> Iterator[Answer]:
    """Yield the batches as they are in the segment; ids of producers in order of appearance."""
    data = (folder(node, topic) / f"{0:020}.log").read_bytes()
    numbers: dict[int, int] = {}
    for position, header in batches(data):
        yield [
            header.base_offset,
            header.batch_length,
            header.leader_epoch,
            header.attributes,
            header.last_offset_delta,
            numbers.setdefault(header.producer_id, len(numbers)),
            header.producer_epoch,
            header.base_sequence,
            [
                [bytes(record.key or b"").hex(), bytes(record.value or b"").hex()]
                for record in decode_records(data, position, header)
            ],
        ]


def aborted_index(node: Node, topic: str) -> list[Answer]:
    path = folder(node, topic) / f"{0:020}.txnindex"
    data = path.read_bytes() if path.exists() else b""
    return [list(entry[2:]) for entry in INDEX_ENTRY.iter_unpack(data)]


def partition_of(node: Node, topic: str, end_offset: int) -> Answer:
    """Return what is stored once the last transaction has ended."""
    return {
        "offsets": wait_for_offsets(node, topic, [end_offset, end_offset]),
        "batches": list(stored_batches(node, topic)),
        "aborted": aborted_index(node, topic),
    }


def test_committed_and_aborted(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        create(node, "tp-ended", 1)
        producer = transactional(node, "tp-ended")
        for number, is_commit in enumerate((True, False, True, False)):
            producer.begin_transaction()
            send(producer, "tp-ended", f"a{number}", f"b{number}")
            send(producer, "tp-ended", f"c{number}")
            (producer.commit_transaction if is_commit else producer.abort_transaction)(LIMIT_S)
        return [
            read(node, "tp-ended", 6, "read_committed"),
            read(node, "tp-ended", 12, "read_uncommitted"),
            partition_of(node, "tp-ended", 16),
        ]

    committed, everything, stored = pair.compare(script)
    assert committed == ["a0", "b0", "c0", "a2", "b2", "c2"]
    assert len(everything) == 12
    assert stored["aborted"]


def test_interleaved_transactions_and_plain_records(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        topic = "tp-mixed"
        create(node, topic, 1)
        first, second = transactional(node, "tp-first"), transactional(node, "tp-second")
        plain = Producer({"bootstrap.servers": node.bootstrap})
        first.begin_transaction()
        send(first, topic, "first")
        second.begin_transaction()
        send(second, topic, "second")
        send(plain, topic, "plain")
        answers = [end_offsets(node, topic), read(node, topic, 0, "read_committed")]
        second.abort_transaction(LIMIT_S)
        answers += [wait_for_offsets(node, topic, [4, 0]), read(node, topic, 0, "read_committed")]
        first.commit_transaction(LIMIT_S)
        answers += [read(node, topic, 2, "read_committed"), partition_of(node, topic, 5)]
        return answers

    answers = pair.compare(script)
    assert answers[0] == [3, 0]
    assert answers[4] == ["first", "plain"]


def test_a_fenced_producer_leaves_nothing(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        topic = "tp-fenced"
        create(node, topic, 1)
        zombie = transactional(node, "tp-fenced")
        zombie.begin_transaction()
        send(zombie, topic, "zombie")
        owner = transactional(node, "tp-fenced")
        owner.begin_transaction()
        send(owner, topic, "owner")
        owner.commit_transaction(LIMIT_S)
        with pytest.raises(KafkaException) as caught:
            zombie.commit_transaction(LIMIT_S)
        return [
            caught.value.args[0].name(),
            read(node, topic, 1, "read_committed"),
            partition_of(node, topic, 4),
        ]

    assert pair.compare(script)[1] == ["owner"]


def test_a_java_client_that_bumps_its_epoch(pair: Pair) -> None:
    """Transaction version 2: the leader adds its partition, and each marker has a new epoch."""

    def script(node: Node) -> Answer:
        topic = "tp-java"
        create(node, topic, 1)
        pair.java_tools.run(
            "producer-perf",
            *("--topic", topic, "--num-records", "200", "--record-size", "100"),
            *("--throughput", "200", "--transaction-duration-ms", "100"),
            *("--transactional-id", "tp-java", "--bootstrap-server", node.bootstrap),
            *("--command-property", "max.in.flight.requests.per.connection=5"),
        ).check()
        assert len(read(node, topic, 200, "read_committed")) == 200
        stored = list(stored_batches(node, topic))
        ends = [at for at, record in enumerate(stored) if record[3] & CONTROL_FLAG]
        epochs = [record[6] for record in stored]
        return [
            len(ends) > 2,
            all(epochs[at] == epochs[at - 1] + 1 for at in ends),
            all(epochs[at] == epochs[at + 1] for at in ends if at + 1 < len(stored)),
            all(stored[at + 1][7] in (0, -1) for at in ends if at + 1 < len(stored)),
        ]

    assert pair.compare(script) == [True] * 4


def test_open_transactions_are_described(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        topic = "tp-hanging"
        create(node, topic, 1)
        producer = transactional(node, "tp-hanging")
        producer.begin_transaction()
        send(producer, topic, "x")
        lines = (
            pair.java_tools.run(
                "transactions",
                *("--bootstrap-server", node.bootstrap, "describe-producers"),
                *("--topic", topic, "--partition", "0"),
            )
            .check()
            .lines
        )
        producer.abort_transaction(LIMIT_S)
        head, row = (line.split() for line in lines)
        shown = dict(zip(head, row, strict=True))
        return [
            shown[name]
            for name in ("ProducerEpoch", "LastSequence", "CurrentTransactionStartOffset")
        ]

    assert pair.compare(script)[2] == "0"


def test_a_clean_stop_leaves_the_same_producer_snapshot(pair: Pair) -> None:
    """One transaction is open, one was aborted, and one was committed."""

    def script(node: Node) -> Answer:
        topic = "tp-snapshot"
        create(node, topic, 1)
        producers = [transactional(node, f"tp-snapshot-{number}") for number in range(3)]
        for number, producer in enumerate(producers):
            producer.begin_transaction()
            send(producer, topic, *(f"{number}{letter}" for letter in "abc"[: number + 1]))
        producers[0].abort_transaction(LIMIT_S)
        producers[1].commit_transaction(LIMIT_S)
        wait_for_offsets(node, topic, [8, 3])
        node.stop()
        try:
            return stored_producers(node, topic, 8)
        finally:
            node.start()

    assert len(pair.compare(script)) == 3


def stored_producers(node: Node, topic: str, offset: int) -> list[Answer]:
    """Return the entries of a snapshot in the order of their ids, without ids and times."""
    data = (folder(node, topic) / f"{offset:020}.snapshot").read_bytes()
    entries = sorted(SNAPSHOT_ENTRY.iter_unpack(data[SNAPSHOT_HEAD_BYTES:]))
    # (id, epoch, last sequence, last offset, offset delta, time, coordinator epoch, first offset)
    return [[*entry[1:5], *entry[6:]] for entry in entries]
