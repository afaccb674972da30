"""A share group in a cluster of Kafka and Spindle brokers, with coordinators on either kind.

Its state and its members' records are written by one program and read by the other when a
coordinator moves. `--candidate kafka` runs the same on Kafka alone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer
from peers.java_tools import JavaTools
from peers.led_topics import assignment, create, move
from peers.node import KafkaNode, Node
from peers.split_cluster import SplitCluster
from peers.steady_input import SteadyInput
from waiting import wait_until

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

TOPIC = GROUP = "shared"
PARTITIONS = 2
STATE, OFFSETS = "__share_group_state", "__consumer_offsets"
STATE_PARTITIONS, OFFSETS_PARTITIONS = 2, 5
KAFKA, SPINDLE = 1, 2
WORKERS = 3
LIMIT_S = 60.0
RELEASED_EVERY = 7
"""A worker releases each record whose offset is a multiple of this, at its first delivery."""


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools, candidate_class: type[Node]
) -> Iterator[SplitCluster]:
    """Start broker 1 with Kafka, 2 and 3 with Spindle; either kind leads internal partitions."""
    kinds: list[type[Node]] = [KafkaNode, candidate_class, candidate_class]
    cluster = SplitCluster(tmp_path_factory.mktemp("shares"), java_tools, [KafkaNode], kinds)
    for broker in cluster.brokers.values():
        broker.overrides |= {
            "share.coordinator.state.topic.num.partitions": str(STATE_PARTITIONS),
            "share.coordinator.state.topic.min.isr": "2",
            "group.share.min.heartbeat.interval.ms": "500",
            "group.share.heartbeat.interval.ms": "500",
            "group.share.record.lock.duration.ms": "15000",
        }
        broker.write_properties()
    with cluster:
        for topic, partitions in ((STATE, STATE_PARTITIONS), (OFFSETS, OFFSETS_PARTITIONS)):
            policy = "delete" if topic == STATE else "compact"
            create(
                cluster, topic, assignment(partitions, KAFKA, SPINDLE), f"cleanup.policy={policy}"
            )
        yield cluster


class Workers:
    """Members of the group that accept records, until the end of the `with` block.

    Attributes:
        accepted: how often each record (partition, offset) was accepted with success.
        again: records that came again after that, with the delivery count.
        counts: the delivery counts of each record, in order.
    """

    def __init__(self, bootstrap: str) -> None:
        self.accepted: Counter[tuple[int, int]] = Counter()
        self.again: list[tuple[int, int, int]] = []
        self.counts: dict[tuple[int, int], list[int]] = {}
        self._bootstrap = bootstrap
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._threads = [threading.Thread(target=self._work) for _ in range(WORKERS)]

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def wait_more(self, count: int) -> None:
        """Return when the workers have accepted `count` more records."""
        wanted = len(self.accepted) + count
        wait_until(
            lambda: len(self.accepted) >= wanted,
            lambda: f"{wanted} records are accepted, {len(self.accepted)} so far",
            limit_s=LIMIT_S,
        )

    def _work(self) -> None:
        member = ShareConsumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
                "log_level": 0,
            }
        )
        member.subscribe([TOPIC])
        try:
            while not self._is_over.is_set():
                self._turn(member)
        finally:
            member.close()

    def _turn(self, member: ShareConsumer) -> None:
        accepted: list[tuple[int, int]] = []
        for message in member.poll(0.5):
            if message.error() is not None:
                continue  # the leader is moving
            where = _place(message)
            count = message.delivery_count() or 0
            with self._lock:
                if self.accepted[where]:
                    self.again.append((*where, count))
                self.counts.setdefault(where, []).append(count)
            if where[1] % RELEASED_EVERY == 0 and count == 1:
                member.acknowledge(message, AcknowledgeType.RELEASE)
            else:
                member.acknowledge(message, AcknowledgeType.ACCEPT)
                accepted.append(where)
        try:
            done = member.commit_sync(LIMIT_S)
        except KafkaException:
            return  # nothing is known to be stored
        stored = {part.partition for part, error in done.items() if error is None}
        with self._lock:
            self.accepted.update(where for where in accepted if where[0] in stored)


def _place(message: Message) -> tuple[int, int]:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def test_a_share_group_continues_while_its_coordinators_and_leaders_move(
    cluster: SplitCluster, tmp_path: Path
) -> None:
    create(cluster, TOPIC, assignment(PARTITIONS, KAFKA, SPINDLE))
    cluster.run(
        "configs", "--alter", "--entity-type", "groups", "--entity-name", GROUP,
        "--add-config", "share.auto.offset.reset=earliest",
    ).check()  # fmt: skip
    moves = [
        (topic, partitions, leader)
        for leader in (SPINDLE, KAFKA)
        for topic, partitions in (
            (STATE, STATE_PARTITIONS),
            (OFFSETS, OFFSETS_PARTITIONS),
            (TOPIC, PARTITIONS),
        )
    ]
    with Workers(cluster.bootstrap) as workers:
        with SteadyInput(cluster.bootstrap, TOPIC, PARTITIONS, 100) as written:
            workers.wait_more(100)
            for topic, partitions, leader in moves:
                move(cluster, tmp_path, topic, partitions, leader)
                workers.wait_more(50)
        every = {(p, o) for p, values in written.written.items() for o in range(len(values))}
        wait_until(
            lambda: every <= set(workers.accepted),
            lambda: f"not accepted: {sorted(every - set(workers.accepted))[:5]}",
            limit_s=LIMIT_S,
        )
    assert workers.again == []
    assert all(workers.accepted[where] == 1 for where in every)
    for where, counts in workers.counts.items():
        assert counts == sorted(counts), (where, counts)
    released = [where for where in every if where[1] % RELEASED_EVERY == 0]
    assert all(max(workers.counts[where]) > 1 for where in released)
