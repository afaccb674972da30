"""A log directory fails under an idempotent librdkafka producer, and comes back."""

import asyncio
import os
import shutil
import threading
from collections import defaultdict
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
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from directory_harness import fail, registered, replicas_in
from waiting import until

from spindle.disks.alter_disks import DirectoryAction

TOPIC = "t"
PARTITIONS = 6


class Writer:
    """Numbers from 0, in turn to all partitions, from a thread of its own.

    Attributes:
        acknowledged: (partition, offset, number) in the order of the acknowledgements.
    """

    def __init__(self, bootstrap: str) -> None:
        self.acknowledged: list[tuple[int, int, int]] = []
        self.refused: list[str] = []
        self.sent = 0
        self._must_stop = threading.Event()
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
            }
        )
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._must_stop.is_set():
            if len(self._producer) < 500:
                value = str(self.sent).encode()
                self._producer.produce(
                    TOPIC, value, partition=self.sent % PARTITIONS, on_delivery=self._delivered
                )
                self.sent += 1
            self._producer.poll(0.001)
        assert self._producer.flush(30) == 0

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.refused.append(str(error))
        else:
            entry = (message.partition(), message.offset(), int(message.value()))
            self.acknowledged.append(entry)

    async def stop(self) -> None:
        self._must_stop.set()
        await asyncio.to_thread(self._thread.join)

    async def more(self) -> None:
        """Wait until records are acknowledged that were sent from here on."""
        sent = self.sent
        await until(lambda: any(n > sent + 100 for _, _, n in self.acknowledged[-50:]))


def read_all(bootstrap: str, counts: dict[int, int]) -> dict[int, list[tuple[int, int]]]:
    """Return (offset, number) of all records by partition."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(TOPIC, n, OFFSET_BEGINNING) for n in counts])
    numbers: dict[int, list[tuple[int, int]]] = defaultdict(list)
    while any(len(numbers[n]) < count for n, count in counts.items()):
        message = consumer.poll(10)
        assert message is not None, {n: len(records) for n, records in numbers.items()}
        if message.error() is None:
            partition, offset, value = message.partition(), message.offset(), message.value()
            assert partition is not None
            assert offset is not None
            assert value is not None
            numbers[partition].append((offset, int(value)))
    consumer.close()
    return numbers


async def test_a_directory_fails_and_is_repaired_then_replaced_then_retired(tmp_path: Path) -> None:
    homes = cluster_homes(tmp_path, [COMBINED] * 3)

    async with running_cluster(homes) as nodes:
        first, victim = nodes[0], nodes[1]
        assert first.broker is not None
        assert victim.broker is not None
        await create_replicated_topic(first, TOPIC, PARTITIONS)
        bootstrap = bootstrap_of(*nodes)
        path = homes[1].directories[1]
        writer = Writer(bootstrap)
        try:
            for action in ("repaired", "replaced", "removed"):
                await writer.more()
                await until(lambda: in_sync(first))
                assert replicas_in(victim, path)
                fail(victim, path)
                await until(lambda: len(registered(first, 2)) == 1)
                await writer.more()
                if action == "replaced":
                    shutil.rmtree(path)
                    os.mkdir(path)
                is_kept = action != "removed"
                changed = await victim.broker.directory_changes.change(
                    DirectoryAction.ONLINE if is_kept else DirectoryAction.REMOVE, str(path)
                )
                assert changed.was_formatted is (action == "replaced")
                assert (victim.broker.replicas.directory_at(str(path)) is not None) is is_kept
                await until(lambda: in_sync(first))
                await writer.more()
        finally:
            await writer.stop()
        assert not writer.refused
        assert len(writer.acknowledged) == writer.sent
        by_partition: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for partition, offset, number in writer.acknowledged:
            by_partition[partition].append((offset, number))
        counts = {n: len(records) for n, records in by_partition.items()}
        read = await asyncio.to_thread(read_all, bootstrap, counts)
        for partition, records in by_partition.items():
            assert read[partition] == sorted(records)
            numbers = [number for _, number in read[partition]]
            assert numbers == sorted(numbers)
