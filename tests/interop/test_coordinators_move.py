"""When the coordinator of a group is killed, the group goes on with a coordinator of either
program."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from peers.clients import position_of
from peers.java_tools import JavaTools
from peers.node import KafkaNode, SpindleNode
from peers.split_cluster import SplitCluster
from peers.verified_traffic import VerifiedTraffic

pytestmark = pytest.mark.timeout(240)

TOPIC, GROUP, OFFSETS = "read-by-a-group", "readers", "__consumer_offsets"


class Member(threading.Thread):
    """A consumer that commits the offsets it has read, until the end of the `with` block."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__()
        self.read: list[tuple[int, int]] = []
        self.committed: dict[int, int] = {}
        self._servers = bootstrap
        self._is_over = threading.Event()
        self.has_committed = threading.Event()

    def __enter__(self) -> Member:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self.join()

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC])
        while not self._is_over.is_set():
            records = [r for r in consumer.consume(500, 0.2) if r.error() is None]
            self.read += map(position_of, records)
            if records:
                self._commit(consumer)
        consumer.close()

    def _commit(self, consumer: Consumer) -> None:
        try:
            done = consumer.commit(asynchronous=False)
        except KafkaException:
            return  # the coordinator is moving; the next commit contains the same offsets
        for position in done or ():
            if position.error is None and position.offset >= 0:
                self.committed[position.partition] = position.offset
        self.has_committed.set()

    def wait_commit(self) -> None:
        """Return after one more commit."""
        self.has_committed.clear()
        assert self.has_committed.wait(60), "no commit any more"


def test_a_group_outlives_each_of_its_coordinators(tmp_path: Path) -> None:
    brokers = [SpindleNode, KafkaNode, SpindleNode]
    with JavaTools() as tools:
        cluster = SplitCluster(tmp_path, tools, [SpindleNode], brokers)
        for node in (*cluster.controllers, *cluster.brokers.values()):
            node.overrides |= {"offsets.topic.replication.factor": "3"}
            node.write_properties()
        with cluster:
            words = ("--partitions", "3", "--replication-factor", "3")
            config = ("--config", "min.insync.replicas=2")
            cluster.run("topics", "--create", "--topic", TOPIC, *words, *config).check()
            with VerifiedTraffic(tmp_path, cluster.bootstrap, TOPIC) as traffic:
                with Member(cluster.bootstrap) as member:
                    member.wait_commit()
                    for broker in cluster.brokers.values():
                        cluster.wait_healthy(TOPIC, OFFSETS)
                        broker.kill()
                        member.wait_commit()
                        broker.start()
                        member.wait_commit()
                    cluster.wait_healthy(TOPIC, OFFSETS)
                    member.wait_commit()
                # A member starts at the offset that another one has committed.
                with Member(cluster.bootstrap) as heir:
                    heir.wait_commit()
            traffic.check()
            first: dict[int, int] = {}
            for partition, offset in heir.read:
                first.setdefault(partition, offset)
            assert first == {p: member.committed[p] for p in first}
            # No record is skipped: a commit may be visible late, but never before its records were
            # read.
            for partition in first:
                seen = {offset for p, offset in member.read if p == partition}
                assert set(range(first[partition])) <= seen
