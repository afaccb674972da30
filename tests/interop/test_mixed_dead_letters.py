"""Dead letters in a cluster of Kafka and Spindle brokers, while all leaders of a group move.

Each round moves one kind of leader from one program to the other: the coordinator of the group,
that of the share state, the leader of the records, and the leader of the dead letters.
`--candidate kafka` runs the same on Kafka alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import AcknowledgeType
from confluent_kafka.admin import ResourceType
from peers.java_tools import JavaTools
from peers.led_topics import assignment, create, move
from peers.node import KafkaNode, Node
from peers.split_cluster import SplitCluster
from test_share_consumers import deliver, send, worker
from test_share_dead_letters import alter, letters

pytestmark = [pytest.mark.full, pytest.mark.timeout(400)]

STATE, OFFSETS = "__share_group_state", "__consumer_offsets"
KAFKA, SPINDLE = 1, 2
TOPIC, DEAD_LETTERS = "shared", "dlq.shared"
PARTITIONS = {OFFSETS: 5, STATE: 2, TOPIC: 1, DEAD_LETTERS: 1}
RELEASE, REJECT = AcknowledgeType.RELEASE, AcknowledgeType.REJECT


@pytest.fixture(scope="module")
def cluster(
    tmp_path_factory: pytest.TempPathFactory, java_tools: JavaTools, candidate_class: type[Node]
) -> Iterator[SplitCluster]:
    """Start broker 1 with Kafka, 2 and 3 with Spindle; Kafka leads everything at first."""
    kinds: list[type[Node]] = [KafkaNode, candidate_class, candidate_class]
    cluster = SplitCluster(tmp_path_factory.mktemp("letters"), java_tools, [KafkaNode], kinds)
    for broker in cluster.brokers.values():
        broker.overrides |= {
            "share.coordinator.state.topic.num.partitions": str(PARTITIONS[STATE]),
            "share.coordinator.state.topic.min.isr": "2",
            "group.share.heartbeat.interval.ms": "500",
            "group.share.min.heartbeat.interval.ms": "500",
        }
        broker.write_properties()
    with cluster:
        config = {
            OFFSETS: "cleanup.policy=compact",
            STATE: "cleanup.policy=delete",
            DEAD_LETTERS: "errors.deadletterqueue.group.enable=true",
        }
        for topic, count in PARTITIONS.items():
            configs = [config[topic]] if topic in config else []
            create(cluster, topic, assignment(count, KAFKA), *configs)
        yield cluster


def test_every_rejected_record_gets_a_dead_letter_through_moves_of_all_leaders(
    cluster: SplitCluster, tmp_path: Path
) -> None:
    node = cast(Any, cluster)  # the steps need its bootstrap address only
    settings = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": DEAD_LETTERS,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    alter(node, ResourceType.GROUP, TOPIC, settings)
    first = 0
    for leader in (SPINDLE, KAFKA):
        for moved, count in PARTITIONS.items():
            send(node, TOPIC, 3)
            with worker(node, TOPIC) as member:
                released = deliver(member, 3, RELEASE)
                assert released == [[first + number, 1] for number in range(3)]
            move(cluster, tmp_path, moved, count, leader)
            with worker(node, TOPIC) as member:
                # The counts are kept, and nothing that was answered comes again.
                rejected = deliver(member, 3, REJECT)
            assert rejected == [[first + number, 2] for number in range(3)], (moved, leader)
            first += 3
    offsets = [
        int(dict(letter[3])["__dlq.errors.offset"]) for letter in letters(node, DEAD_LETTERS, first)
    ]
    assert sorted(offsets) == list(range(first))
