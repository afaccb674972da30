"""Numbers about the metadata: kept up with records, they equal a count of the image."""

import logging

import pytest

from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.snapshot import snapshot_records
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)
from spindle.publication.loader import Publication
from spindle.raft.ready import LeaderAndEpoch
from spindle.runtime.controller.cluster_log import ClusterLog
from spindle.runtime.metrics.metadata_counts import MetadataCounts

A, B = bytes([1] * 16), bytes([2] * 16)
CREATED: list[Message] = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    TopicRecord(name="a", topic_id=A),
    TopicRecord(name="b", topic_id=B),
]


def partition(topic_id: bytes, number: int, leader: int, elr: list[int] | None = None) -> Message:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=[1, 2, 3],
        isr=[leader] if leader >= 0 else [],
        leader=leader,
        leader_epoch=0,
        partition_epoch=0,
        directories=[bytes(16)] * 3,
        eligible_leader_replicas=elr,
    )


def change(number: int, leader: int, recovery: int = -1) -> Message:
    return PartitionChangeRecord(
        partition_id=number, topic_id=A, leader=leader, isr=[leader], leader_recovery_state=recovery
    )


def killed_and_started_again(number: int, leader: int) -> tuple[Message, Message]:
    """Return the changes of a partition whose replicas were all killed (KIP-966)."""
    lost = PartitionChangeRecord(
        partition_id=number, topic_id=A, leader=-1, isr=[], last_known_elr=[leader]
    )
    again = PartitionChangeRecord(
        partition_id=number,
        topic_id=A,
        leader=leader,
        isr=[leader],
        leader_recovery_state=1,
        last_known_elr=[],
    )
    return lost, again


class Story:
    """Publishes records to counts and log, and keeps the image."""

    def __init__(self) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.counts = MetadataCounts()
        self.log = ClusterLog(lambda: True)

    def publish(self, *records: Message, is_snapshot: bool = False) -> None:
        delta = MetadataDelta(self.image)
        if is_snapshot:
            delta.begin_snapshot()
        for offset, record in enumerate(records, self.image.provenance.last_offset + 1):
            delta.replay(record, offset)
        self.image = delta.apply(MetadataProvenance(self.image.provenance.last_offset + 9, 1, 1))
        publication = Publication(delta, self.image, 0, is_snapshot)
        self.counts.on_publication(publication)
        self.log.on_publication(publication)

    def numbers(self) -> tuple[int, int, int]:
        return self.counts.partitions, self.counts.offline, self.counts.not_preferred


def test_counts_follow_the_records() -> None:
    story = Story()
    story.publish(*CREATED, partition(A, 0, 1), partition(A, 1, 2), partition(B, 0, -1))
    assert story.numbers() == (3, 1, 1)
    story.publish(change(0, 3), change(1, 1))
    assert story.numbers() == (3, 1, 1)
    story.publish(RemoveTopicRecord(topic_id=B))
    assert story.numbers() == (2, 0, 1)
    story.publish(RemoveTopicRecord(topic_id=A), TopicRecord(name="a", topic_id=B))
    assert story.numbers() == (0, 0, 0)


def test_a_snapshot_changes_nothing_that_stays() -> None:
    story = Story()
    story.publish(*CREATED, partition(A, 0, 1), partition(A, 1, 2), partition(B, 0, -1))
    story.publish(*snapshot_records(story.image), is_snapshot=True)
    assert story.numbers() == (3, 1, 1)
    assert story.counts.snapshots_loaded == 1
    story.publish(*CREATED[:2], partition(A, 0, 3), partition(A, 1, 2), is_snapshot=True)
    assert story.numbers() == (2, 0, 2)


def test_elections_are_counted_by_kind() -> None:
    story = Story()
    story.publish(*CREATED, *(partition(A, n, -1, elr=[2]) for n in range(3)), partition(A, 3, 1))
    story.publish(change(0, 2), change(1, 3, recovery=1))
    assert (story.counts.elr_elections, story.counts.unclean_elections) == (1, 1)
    story.publish(change(3, 1), change(2, -1))
    assert (story.counts.elr_elections, story.counts.unclean_elections) == (1, 1)


def test_leaders_of_the_quorum_are_counted() -> None:
    counts = MetadataCounts()
    for leader in (LeaderAndEpoch(1, 1), LeaderAndEpoch(-1, 2), LeaderAndEpoch(2, 2)):
        counts.on_leader_change(leader)
    assert counts.leaders_seen == 2


def test_unclean_elections_of_one_event_are_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger("spindle")
    root.addHandler(caplog.handler)
    caplog.set_level(logging.WARNING, "spindle.runtime.controller.cluster_log")
    try:
        story = Story()
        story.publish(*CREATED, *(partition(A, n, 1) for n in range(30)))
        changes = [killed_and_started_again(number, 2) for number in range(10, 15)]
        for records in (*zip(*changes, strict=True), (change(20, 3, recovery=1),)):
            story.publish(*records)
    finally:
        root.removeHandler(caplog.handler)
    several, one = dict.fromkeys(record.getMessage() for record in caplog.records)
    assert several.startswith("UNCLEAN election of 5 partitions: a-10, a-11, a-12 and 2 more: all ")
    assert one.startswith("UNCLEAN election of a-20: leader 1 -> 3, leader epoch 1: no replica of ")


def test_operators_read_of_brokers_and_leaders(caplog: pytest.LogCaptureFixture) -> None:
    root = logging.getLogger("spindle")
    root.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "spindle.runtime.controller.cluster_log")
    try:
        story = Story()
        broker = RegisterBrokerRecord(broker_id=7, broker_epoch=5, fenced=True)
        story.publish(*CREATED, broker, *(partition(A, n, 1) for n in range(30)))
        story.publish(UnfenceBrokerRecord(id=7, epoch=5))
        story.publish(change(0, 2), change(1, 3, recovery=1))
        for record in killed_and_started_again(0, 2):
            story.publish(record)
        story.publish(FenceBrokerRecord(id=7, epoch=5), *(change(n, -1) for n in range(30)))
        story.publish(UnregisterBrokerRecord(broker_id=7, broker_epoch=5))
        story.publish(RemoveTopicRecord(topic_id=B))
        many = [TopicRecord(name=f"t{n}", topic_id=bytes([n] * 16)) for n in range(10, 50)]
        story.publish(*many)
        silent = ClusterLog(lambda: False)
        silent.on_publication(Publication(MetadataDelta(story.image), story.image, 0))
    finally:
        root.removeHandler(caplog.handler)
    many_names = ", ".join(f"'t{n}'" for n in range(10, 30))
    assert list(dict.fromkeys(record.getMessage() for record in caplog.records)) == [
        "Created topics 'a', 'b'",
        "Registered broker 7 with epoch 5",
        "Unfenced broker 7 in epoch 5",
        "Partition change of a-0: leader 1 -> 2, leader epoch 1, ISR [2]",
        "UNCLEAN election of a-1: leader 1 -> 3, leader epoch 1: no replica of the ISR can lead; "
        "broker 3 may lack acknowledged records, and the other replicas truncate their logs to its "
        "log",
        "Partition change of a-0: leader 2 -> none, leader epoch 2, ISR []",
        "UNCLEAN election of a-0: leader none -> 2, leader epoch 3: all replicas of the ISR ended "
        "without a controlled shutdown, so none is known to have all acknowledged records; broker "
        "2 was the last leader, and the other replicas truncate their logs to its log",
        "Fenced broker 7 in epoch 5",
        "30 partitions changed their leader, 30 have none",
        "Unregistered broker 7",
        "Deleted topics 'b'",
        f"Created topics {many_names} and 20 more",
    ]
