"""Consumers read from the replica in their rack, of either program (KIP-392)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from peers.java_tools import JavaTools
from peers.node import KafkaNode, SpindleNode
from peers.split_cluster import SplitCluster
from waiting import wait_for

pytestmark = pytest.mark.timeout(180)

TOPIC = "far-and-wide"
LIMIT_S = 60.0


class RackReader:
    """A consumer in a rack, which knows the broker from which it reads each partition."""

    def __init__(self, bootstrap: str, rack: str) -> None:
        self.brokers: dict[int, int] = {}
        self.values: list[bytes] = []
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": f"readers in {rack}",
                "client.rack": rack,
                "auto.offset.reset": "earliest",
                "statistics.interval.ms": 100,
                "stats_cb": self._note,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([TOPIC])

    def _note(self, text: str) -> None:
        partitions = json.loads(text)["topics"].get(TOPIC, {}).get("partitions", {})
        self.brokers = {int(p): state["broker"] for p, state in partitions.items() if int(p) >= 0}

    def read_until(self, count: int, brokers: dict[int, int]) -> None:
        """Return when so many records have come and the partitions are read from these brokers."""

        def read() -> tuple[int, dict[int, int]]:
            for record in self._consumer.consume(100, 0.1):
                value = record.value()
                if record.error() is None and value is not None:
                    self.values.append(value)
            return len(self.values), self.brokers

        wait_for(
            read,
            lambda state: state[0] >= count and state[1] == brokers,
            f"{count} records, read from {brokers}",
            limit_s=LIMIT_S,
            pause_s=0,
        )

    def close(self) -> None:
        self._consumer.close()


def test_each_rack_reads_from_its_own_replica(tmp_path: Path) -> None:
    with JavaTools() as tools:
        kinds = [SpindleNode, KafkaNode, SpindleNode]
        cluster = SplitCluster(tmp_path, tools, [SpindleNode], kinds)
        selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
        for number, broker in cluster.brokers.items():
            broker.overrides |= {
                "broker.rack": f"rack{number}",
                "replica.selector.class": selector,
            }
            broker.write_properties()
        with cluster:
            # Partition 0 has a Spindle broker as leader, partition 1 a Kafka broker.
            assignment = ("--replica-assignment", "1:2:3,2:3:1")
            cluster.run("topics", "--create", "--topic", TOPIC, *assignment).check()
            cluster.wait_healthy(TOPIC)
            producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
            readers = {n: RackReader(cluster.bootstrap, f"rack{n}") for n in cluster.brokers}
            sent = 0
            try:
                for _ in range(3):
                    for partition in (0, 1):
                        producer.produce(TOPIC, str(sent).encode(), partition=partition)
                        sent += 1
                    producer.flush(LIMIT_S)
                    for number, reader in readers.items():
                        reader.read_until(sent, {0: number, 1: number})
                expected = {str(n).encode() for n in range(sent)}
                for reader in readers.values():
                    assert len(reader.values) == sent
                    assert set(reader.values) == expected
            finally:
                for reader in readers.values():
                    reader.close()
