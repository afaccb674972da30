"""The instructions for one broker that follow from a delta."""

from typing import Any

from metadata_history import image_of, uuid

from spindle.common.ids import TopicPartition
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.local_changes import (
    BecomeFollower,
    BecomeLeader,
    DeleteReplica,
    Instruction,
    local_changes,
)
from spindle.metadata.snapshot import snapshot_records
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

T = uuid(1)
T0 = TopicPartition("t", 0)


def topic(replicas: list[int], topic_id: bytes = T, name: str = "t") -> list[Message]:
    partition = PartitionRecord(
        partition_id=0,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas,
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
    )
    return [TopicRecord(name=name, topic_id=topic_id), partition]


def change(**fields: Any) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=0, topic_id=T, **fields)


def changes(base: MetadataImage, records: list[Message], broker_id: int) -> list[Instruction]:
    delta = MetadataDelta(base)
    for record in records:
        delta.replay(record, 0)
    delta.apply(MetadataProvenance(0, 0, 0))
    return local_changes(delta, broker_id)


def test_a_new_topic_is_led_followed_or_none_of_ours() -> None:
    (leads,) = changes(EMPTY_IMAGE, topic([1, 2]), 1)
    assert isinstance(leads, BecomeLeader)
    assert (leads.topic_partition, leads.topic_id) == (T0, T)
    assert (leads.is_elected, leads.is_new) == (True, True)
    (follows,) = changes(EMPTY_IMAGE, topic([1, 2]), 2)
    assert isinstance(follows, BecomeFollower)
    assert follows.is_new
    assert changes(EMPTY_IMAGE, topic([1, 2]), 3) == []


def test_a_new_isr_is_no_new_election() -> None:
    (leads,) = changes(image_of(topic([1, 2])), [change(isr=[1])], 1)
    assert isinstance(leads, BecomeLeader)
    assert (leads.is_elected, leads.is_new) == (False, False)
    assert leads.partition.isr == (1,)


def test_a_new_leader_leads_and_the_old_one_follows() -> None:
    base = image_of(topic([1, 2]))
    (old,) = changes(base, [change(leader=2)], 1)
    (new,) = changes(base, [change(leader=2)], 2)
    assert isinstance(old, BecomeFollower)
    assert isinstance(new, BecomeLeader)
    assert (old.is_epoch_new, new.is_elected) == (True, True)
    (leaderless,) = changes(base, [change(leader=-1)], 1)
    assert isinstance(leaderless, BecomeFollower)


def test_several_changes_in_one_delta_count_as_their_sum() -> None:
    base = image_of(topic([1, 2]))
    (leads,) = changes(base, [change(leader=2), change(leader=1)], 1)
    assert isinstance(leads, BecomeLeader)
    assert leads.partition.leader_epoch == 2
    assert leads.is_elected


def test_a_replica_that_was_moved_away_is_deleted() -> None:
    base = image_of(topic([1, 2]))
    gone = changes(base, [change(replicas=[2], isr=[2], leader=2)], 1)
    assert gone == [DeleteReplica(T0, T, is_topic_deleted=False)]
    (arrives,) = changes(base, [change(replicas=[1, 2, 3])], 3)
    assert isinstance(arrives, BecomeFollower)
    assert arrives.is_new


def test_deletions_come_before_what_reuses_the_name() -> None:
    base = image_of(topic([1]))
    deleted, created = changes(base, [RemoveTopicRecord(topic_id=T), *topic([1], uuid(2))], 1)
    assert deleted == DeleteReplica(T0, T, is_topic_deleted=True)
    assert isinstance(created, BecomeLeader)
    assert (created.topic_id, created.is_new) == (uuid(2), True)


def test_a_topic_that_came_and_went_in_one_delta_is_nothing() -> None:
    assert changes(EMPTY_IMAGE, [*topic([1]), RemoveTopicRecord(topic_id=T)], 1) == []


def test_a_snapshot_says_only_what_differs() -> None:
    base = image_of([*topic([1, 2]), *topic([1, 2], uuid(2), "u"), *topic([1], uuid(3), "v")])
    target = image_of([change(isr=[1]), RemoveTopicRecord(topic_id=uuid(3))], base)
    delta = MetadataDelta(base)
    delta.begin_snapshot()
    for record in snapshot_records(target):
        delta.replay(record, 0)
    delta.apply(target.provenance)
    deleted, leads = local_changes(delta, 1)
    assert deleted == DeleteReplica(TopicPartition("v", 0), uuid(3), is_topic_deleted=True)
    assert isinstance(leads, BecomeLeader)
    assert (leads.topic_partition, leads.is_new) == (T0, False)
