"""Share groups (KIP-932): librdkafka's share consumer gets the same from Kafka and from Spindle."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import AcknowledgeType, Producer, ShareConsumer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from peers import clients
from peers.compare import Answer, Pair
from peers.node import KafkaNode, Node

pytestmark = pytest.mark.full

NODE_OVERRIDES = {
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "2",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "500",
    "group.share.min.record.lock.duration.ms": "1000",
}
LIMIT_S = 60.0
ACCEPT, RELEASE = AcknowledgeType.ACCEPT, AcknowledgeType.RELEASE
REJECT = AcknowledgeType.REJECT


def prepare(node: Node, topic: str, count: int = 10, **group_config: str) -> None:
    """Create a topic of one partition with records, and a group with the topic's name."""
    clients.create(node, topic, 1, {})
    settings = {"share.auto.offset.reset": "earliest"}
    settings |= {f"share.{key.replace('_', '.')}": value for key, value in group_config.items()}
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(LIMIT_S)
    send(node, topic, count)


def send(node: Node, topic: str, count: int) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for number in range(count):
        producer.produce(topic, value=str(number))
    assert producer.flush(LIMIT_S) == 0


@contextmanager
def worker(node: Node, group: str, mode: str = "explicit") -> Iterator[ShareConsumer]:
    """Open a member of the group that reads the topic of the same name."""
    member = ShareConsumer(
        {
            "bootstrap.servers": node.bootstrap,
            "group.id": group,
            "share.acknowledgement.mode": mode,
        }
    )
    try:
        member.subscribe([group])
        yield member
    finally:
        member.close()


def deliver(member: ShareConsumer, count: int, kind: AcknowledgeType = ACCEPT) -> Answer:
    """Return offset and delivery count of `count` deliveries, acknowledged one way."""
    seen: list[Answer] = []
    deadline_s = time.monotonic() + LIMIT_S
    while len(seen) < count and time.monotonic() < deadline_s:
        for message in member.poll(1):
            assert message.error() is None
            seen.append([message.offset(), message.delivery_count()])
            member.acknowledge(message, kind)
        failed = [str(error) for error in member.commit_sync(LIMIT_S).values() if error]
        assert failed == []
    return seen


def test_every_record_is_delivered_once_if_it_is_accepted(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "accepted")
        with worker(node, "accepted") as member:
            first = deliver(member, 10)
        send(node, "accepted", 3)
        with worker(node, "accepted") as member:
            return [first, deliver(member, 3)]

    answer = pair.compare(script)
    assert answer[1] == [[10, 1], [11, 1], [12, 1]]


def test_released_records_come_again_until_the_limit(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "released", count=1, delivery_count_limit="3")
        with worker(node, "released") as member:
            deliveries = deliver(member, 3, RELEASE)
            send(node, "released", 1)
            return [deliveries, deliver(member, 1)]

    answer = pair.compare(script)
    assert answer == [[[0, 1], [0, 2], [0, 3]], [[1, 1]]]


def test_rejected_records_do_not_come_again(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "rejected", count=2)
        with worker(node, "rejected") as member:
            rejected = deliver(member, 2, REJECT)
            send(node, "rejected", 1)
            return [rejected, deliver(member, 1)]

    assert pair.compare(script) == [[[0, 1], [1, 1]], [[2, 1]]]


def test_records_of_a_silent_member_come_again_when_their_lock_expires(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "expired", count=2, record_lock_duration_ms="1000")
        with worker(node, "expired") as silent:
            while not (held := list(silent.poll(1))):
                pass
            with worker(node, "expired") as member:
                again = deliver(member, 2)
            for message in held:
                silent.acknowledge(message)
            # The records are done already, so the late answer is ignored.
            late = [error is not None for error in silent.commit_sync(LIMIT_S).values()]
        return [again, late]

    assert pair.compare(script) == [[[0, 2], [1, 2]], [False]]


def test_a_restart_keeps_what_was_acknowledged_and_the_counts(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        prepare(node, "restarted", count=4)
        with worker(node, "restarted") as member:
            first = deliver(member, 4, RELEASE)
        node.stop()
        node.start()
        with worker(node, "restarted") as member:
            second = deliver(member, 4)
        send(node, "restarted", 1)
        with worker(node, "restarted") as member:
            return [first, second, deliver(member, 1)]

    answer = pair.compare(script)
    assert answer[1] == [[offset, 2] for offset in range(4)]
    assert answer[2] == [[4, 1]]


@pytest.mark.parametrize("first", ["spindle", "kafka"])
def test_the_other_program_continues_the_group_on_the_same_disks(
    tmp_path: Path, candidate_class: type[Node], first: str
) -> None:
    classes: list[type[Node]] = [candidate_class, KafkaNode]
    if first == "kafka":
        classes.reverse()
    one = classes[0](tmp_path / "one", overrides=dict(NODE_OVERRIDES))
    one.format()
    one.start()
    node: Node = one
    try:
        prepare(node, "moving", count=6)
        with worker(node, "moving") as member:
            assert deliver(member, 6, RELEASE) == [[offset, 1] for offset in range(6)]
        for turn, kind in enumerate((classes[1], classes[0])):
            node.stop()
            node = kind(
                tmp_path / str(turn),
                overrides=dict(NODE_OVERRIDES),
                log_dirs=one.log_dirs,
                cluster_id=one.cluster_id,
            )
            node.start()
            send(node, "moving", 1)
            with worker(node, "moving") as member:
                seen = deliver(member, 7 if turn == 0 else 1)
            # The first program has released the six, the second one has accepted all.
            expected = [[offset, 2] for offset in range(6)] + [[6, 1]]
            assert seen == (expected if turn == 0 else [[7, 1]])
    finally:
        node.kill()
