"""Transactions over several directories: one dies and comes back, or a replica moves away."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from cluster_harness import (
    COMBINED,
    bootstrap_of,
    cluster_homes,
    create_replicated_topic,
    in_sync,
    running_cluster,
)
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaException,
    Producer,
    TopicPartition,
)
from directory_harness import fail, registered, replicas_in
from node_harness import Home, connected, running
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.disks.alter_disks import DirectoryAction
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.partition import Partition
from spindle.runtime.node import Node

TOPIC = "t"
PARTITIONS = 6
TIMEOUT_S = 30


def producer_of(bootstrap: str, name: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 1}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


class Writer:
    """Transactions with a record for each partition; every third one is aborted.

    Attributes:
        committed, aborted: numbers of transactions, which are the values of their records.
    """

    def __init__(self, bootstrap: str) -> None:
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self._must_stop = threading.Event()
        self._producer = producer_of(bootstrap, "writer")
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._must_stop.is_set():
            self._producer.begin_transaction()
            try:
                for partition in range(PARTITIONS):
                    self._producer.produce(TOPIC, str(number).encode(), partition=partition)
                self._producer.flush(TIMEOUT_S)
                is_commit = number % 3 != 0
                if is_commit:
                    _until_done(self._producer.commit_transaction)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                is_commit = False
            if not is_commit:
                _until_done(self._producer.abort_transaction)
            (self.committed if is_commit else self.aborted).append(number)
            number += 1

    async def stop(self) -> None:
        self._must_stop.set()
        await asyncio.to_thread(self._thread.join)

    async def more(self) -> None:
        """Wait for transactions that began after this call."""
        count = len(self.committed) + 5
        await until(lambda: len(self.committed) >= count or not self._thread.is_alive())
        assert self._thread.is_alive()


def _until_done(end: Any) -> None:
    while True:
        try:
            end(TIMEOUT_S)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return


def read_committed(bootstrap: str, partitions: Iterable[int]) -> dict[int, list[int]]:
    """Return the values of each partition up to its last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reader",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    left = set(partitions)
    consumer.assign([TopicPartition(TOPIC, n, OFFSET_BEGINNING) for n in left])
    numbers: dict[int, list[int]] = defaultdict(list)
    while left:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, left
        if message.error() is None:
            partition, value = message.partition(), message.value()
            assert partition is not None
            assert value is not None
            numbers[partition].append(int(value))
        else:
            left.discard(message.partition())
    consumer.close()
    return numbers


def is_stored_in(partition: Partition, directory: LogDirectory) -> bool:
    return partition.directory is directory


def are_stable(nodes: Sequence[Node]) -> bool:
    """Return whether no replica has an open transaction, at any leader or follower."""
    logs = [
        partition.log
        for node in nodes
        if node.broker is not None
        for partition in node.broker.replicas
        if partition.topic_partition.topic == TOPIC
    ]
    assert len(logs) == 3 * PARTITIONS
    return all(log.last_stable_offset == log.log_end_offset for log in logs)


async def test_a_directory_dies_under_transactions_and_comes_back(tmp_path: Path) -> None:
    homes = cluster_homes(
        tmp_path,
        [COMBINED] * 3,
        offsets_topic_replication_factor="3",
        transaction_state_log_num_partitions="4",
    )

    async with running_cluster(homes) as nodes:
        first, victim = nodes[0], nodes[1]
        assert victim.broker is not None
        await create_replicated_topic(first, TOPIC, PARTITIONS)
        bootstrap = bootstrap_of(*nodes)
        writer = await asyncio.to_thread(Writer, bootstrap)
        path = homes[1].directories[1]
        try:
            await writer.more()
            await until(lambda: in_sync(first))
            assert replicas_in(victim, path)
            fail(victim, path)
            await until(lambda: len(registered(first, 2)) == 1)
            await writer.more()
            await victim.broker.directory_changes.change(DirectoryAction.ONLINE, str(path))
            await until(lambda: in_sync(first))
            await writer.more()
        finally:
            await writer.stop()
        assert writer.aborted
        await until(lambda: are_stable(nodes))
        read = await asyncio.to_thread(read_committed, bootstrap, range(PARTITIONS))
        assert read == dict.fromkeys(range(PARTITIONS), writer.committed)


async def test_an_open_transaction_moves_with_its_partition(tmp_path: Path) -> None:
    home = Home(
        tmp_path,
        2,
        transaction_state_log_num_partitions="1",
        transaction_state_log_replication_factor="1",
        transaction_state_log_min_isr="1",
    ).format()

    def write(producer: Producer, *values: int) -> None:
        for value in values:
            producer.produce(TOPIC, str(value).encode(), partition=0)
        assert producer.flush(TIMEOUT_S) == 0

    async with running(home) as node, connected(node) as client:
        assert node.broker is not None
        await client.create_topic(TOPIC)
        bootstrap = bootstrap_of(node)
        first, second = [
            await asyncio.to_thread(producer_of, bootstrap, name) for name in ("a", "b")
        ]
        first.begin_transaction()
        await asyncio.to_thread(write, first, 1, 2)
        await asyncio.to_thread(first.abort_transaction, TIMEOUT_S)
        first.begin_transaction()
        second.begin_transaction()
        await asyncio.to_thread(write, first, 3)
        await asyncio.to_thread(write, second, 4)
        for _ in range(2):  # there and back: what moved once must move again
            partition = node.broker.replicas.lookup(TOPIC, 0)
            assert partition is not None
            source = partition.directory
            (target,) = [d for d in node.broker.replicas.directories if d is not source]
            assert await node.broker.mover.alter(partition, target) is ErrorCode.NONE
            await until(partial(is_stored_in, partition, target))
            await asyncio.to_thread(write, first, 5)
            await asyncio.to_thread(write, second, 6)
            # Below the first open transaction there is only an aborted one.
            assert not (await asyncio.to_thread(read_committed, bootstrap, [0]))[0]
        await asyncio.to_thread(second.abort_transaction, TIMEOUT_S)
        await asyncio.to_thread(first.commit_transaction, TIMEOUT_S)
        partition = node.broker.replicas.lookup(TOPIC, 0)
        assert partition is not None
        log = partition.log
        await until(lambda: log.last_stable_offset == log.log_end_offset)
        aborted = log.aborted_transactions(0, log.log_end_offset)
        read = await asyncio.to_thread(read_committed, bootstrap, [0])
    assert read[0] == [3, 5, 5]
    assert len(aborted) == 2
