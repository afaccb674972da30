"""Images and deltas: the same records lead to the same image, however they are cut."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_history import history, image_of, through_the_log, uuid

from spindle.common.errors import ProtocolViolation
from spindle.common.uuids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from spindle.metadata.cluster import directories_changed_in_epoch
from spindle.metadata.configs import ConfigResource
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.snapshot import snapshot_records
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BeginTransactionRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
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

T = uuid(1)


def topic(name: str = "t", topic_id: bytes = T, **fields: Any) -> list[Message]:
    partition = PartitionRecord(
        **{
            "partition_id": 0,
            "topic_id": topic_id,
            "replicas": [1, 2],
            "isr": [1, 2],
            "leader": 1,
            "leader_epoch": 0,
            "partition_epoch": 0,
            "directories": [uuid(11), uuid(21)],
            **fields,
        }
    )
    return [TopicRecord(name=name, topic_id=topic_id), partition]


def changed(**fields: Any) -> MetadataImage:
    record = PartitionChangeRecord(partition_id=0, topic_id=T, **fields)
    return image_of([*topic(), record])


def same(left: MetadataImage, right: MetadataImage) -> bool:
    """Equal but for the provenance and the order of maps."""
    return (
        left.features == right.features
        and left.cluster == right.cluster
        and left.topics == right.topics
        and left.configs == right.configs
        and left.client_quotas == right.client_quotas
        and left.producer_ids.next_producer_id == right.producer_ids.next_producer_id
        and left.security == right.security
    )


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.lists(st.integers(1, 30), max_size=10))
def test_however_a_history_is_cut_into_deltas_the_image_is_the_same(
    seed: int, cuts: list[int]
) -> None:
    records = history(seed, 80)
    whole = image_of(records)
    whole.check()
    image = EMPTY_IMAGE
    at = 0
    for size in [*cuts, len(records)]:
        image = image_of(records[at : at + size], image)
        at += size
    assert same(image, whole)
    assert same(image_of([through_the_log(record) for record in records]), whole)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_a_snapshot_gives_the_image_back_and_changes_nothing(seed: int) -> None:
    image = image_of(history(seed, 80))
    records = [through_the_log(record) for record in snapshot_records(image)]
    assert same(image_of(records), image)
    delta = MetadataDelta(image)
    delta.begin_snapshot()
    for record in records:
        delta.replay(record, 0)
    repeated = delta.apply(image.provenance)
    repeated.check()
    assert same(repeated, image)
    assert delta.topics.deleted == {}
    assert [c for topic in delta.topics.changed.values() for c in topic.changed_partitions()] == []
    assert delta.cluster.changed_brokers == {}
    assert delta.configs.changed == []
    assert delta.client_quotas.changed == {}
    assert not delta.features.is_changed


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.integers(0, 10_000))
def test_a_snapshot_contains_every_difference_from_the_image_before(
    before: int, after: int
) -> None:
    old, new = image_of(history(before, 50)), image_of(history(after, 50))
    delta = MetadataDelta(old)
    delta.begin_snapshot()
    for record in snapshot_records(new):
        delta.replay(record, 0)
    assert same(delta.apply(new.provenance), new)
    gone = [topic_id for topic_id in old.topics.by_id if topic_id not in new.topics.by_id]
    assert sorted(delta.topics.deleted) == sorted(gone)
    touched = dict.fromkeys((*old.configs.by_resource, *new.configs.by_resource))
    differing = [r for r in touched if old.configs.of(r) != new.configs.of(r)]
    assert sorted(delta.configs.changed) == sorted(differing)


def test_a_change_without_a_leader_moves_the_partition_epoch_only() -> None:
    partition = changed(isr=[1]).topics.by_name["t"].partitions[0]
    assert (partition.leader_epoch, partition.partition_epoch) == (0, 1)
    assert partition.isr == (1,)


def test_naming_the_same_leader_again_begins_a_new_leader_epoch() -> None:
    partition = changed(leader=1).topics.by_name["t"].partitions[0]
    assert (partition.leader, partition.leader_epoch, partition.partition_epoch) == (1, 1, 1)


def test_new_replicas_keep_the_directories_of_those_that_stay() -> None:
    partition = changed(replicas=[3, 2]).topics.by_name["t"].partitions[0]
    assert partition.directories == (DIRECTORY_UNASSIGNED, uuid(21))


def test_null_is_no_change_and_empty_clears() -> None:
    image = changed(isr=[], leader=-1, eligible_leader_replicas=[1], last_known_elr=[1])
    partition = image.topics.by_name["t"].partitions[0]
    assert (partition.isr, partition.elr, partition.last_known_elr) == ((), (1,), (1,))
    image = image_of([PartitionChangeRecord(partition_id=0, topic_id=T, last_known_elr=[])], image)
    partition = image.topics.by_name["t"].partitions[0]
    assert (partition.elr, partition.last_known_elr) == ((1,), ())


def test_missing_directories_are_migrating_and_a_wrong_count_is_refused() -> None:
    image = image_of(topic(directories=[]))
    assert image.topics.by_name["t"].partitions[0].directories == (DIRECTORY_MIGRATING,) * 2
    with pytest.raises(ProtocolViolation, match="2 replicas and 1 directories"):
        image_of(topic(directories=[uuid(1)]))


def test_clear_elr_of_one_topic_and_of_all() -> None:
    lists = {"eligible_leader_replicas": [2], "last_known_elr": [2], "isr": [1]}
    records = [*topic("a", uuid(1), **lists), *topic("b", uuid(2), **lists)]
    one = image_of([*records, ClearElrRecord(topic_name="a")])
    assert one.topics.by_name["a"].partitions[0].elr == ()
    assert one.topics.by_name["b"].partitions[0].elr == (2,)
    everything = image_of([*records, ClearElrRecord(topic_name="")])
    assert everything.topics.by_name["b"].partitions[0].last_known_elr == ()
    assert everything.topics.by_name["b"].partitions[0].partition_epoch == 0


def test_a_deleted_topic_takes_its_configuration_along() -> None:
    config = ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1")
    image = image_of([*topic(), config])
    delta = MetadataDelta(image)
    delta.replay(RemoveTopicRecord(topic_id=T), 5)
    after = delta.apply(MetadataProvenance(5, 1, 0))
    assert after.configs.by_resource == {}
    assert delta.configs.changed == [ConfigResource(2, "t")]
    assert list(delta.topics.deleted) == [T]


def test_a_name_can_be_used_again_in_one_delta() -> None:
    image = image_of(topic())
    after = image_of([RemoveTopicRecord(topic_id=T), *topic("t", uuid(2))], image)
    assert after.topics.by_name["t"].topic_id == uuid(2)
    assert list(after.topics.by_id) == [uuid(2)]
    after.check()


def test_old_images_do_not_change() -> None:
    image = image_of(topic())
    image_of([PartitionChangeRecord(partition_id=0, topic_id=T, leader=2)], image)
    image_of([RemoveTopicRecord(topic_id=T)], image)
    assert image.topics.by_name["t"].partitions[0].leader == 1


REGISTER = RegisterBrokerRecord(broker_id=1, broker_epoch=7, log_dirs=[b"\xff" * 16, uuid(1)])


def test_directories_sort_by_signed_halves() -> None:
    broker = image_of([REGISTER]).cluster.brokers[1]
    assert broker.directories == (b"\xff" * 16, uuid(1))
    assert broker.has_online_directory(uuid(1))
    assert not broker.has_online_directory(uuid(2))


def test_reserved_directories_and_a_broker_that_never_said() -> None:
    image = image_of([REGISTER, RegisterBrokerRecord(broker_id=2, broker_epoch=8)])
    lost = bytes(15) + b"\x02"
    known, silent = image.cluster.brokers[1], image.cluster.brokers[2]
    for broker in (known, silent):
        assert broker.has_online_directory(DIRECTORY_UNASSIGNED)
        assert broker.has_online_directory(DIRECTORY_MIGRATING)
        assert not broker.has_online_directory(lost)
    assert silent.has_online_directory(uuid(99))
    assert image.cluster.default_directory(1) == DIRECTORY_UNASSIGNED
    assert image.cluster.default_directory(2) == DIRECTORY_MIGRATING
    assert image.cluster.default_directory(9) == DIRECTORY_UNASSIGNED


def test_cordoned_directories_are_unknown_until_the_broker_says() -> None:
    change = BrokerRegistrationChangeRecord
    image = image_of([REGISTER])
    assert image.cluster.brokers[1].cordoned_directories is None
    assert image.cluster.brokers[1].has_uncordoned_directory()
    every = [uuid(1), b"\xff" * 16]
    image = image_of([change(broker_id=1, broker_epoch=7, cordoned_log_dirs=every)], image)
    assert image.cluster.brokers[1].cordoned_directories == tuple(every), "order is kept"
    assert not image.cluster.brokers[1].has_uncordoned_directory()
    image = image_of([REGISTER], image)
    assert image.cluster.brokers[1].cordoned_directories is None, (
        "a new process has to send them again"
    )


def test_old_fencing_records_are_understood() -> None:
    image = image_of([REGISTER, UnfenceBrokerRecord(id=1, epoch=7)])
    assert image.cluster.is_active(1)
    assert not image_of([FenceBrokerRecord(id=1, epoch=7)], image).cluster.is_active(1)


@pytest.mark.parametrize(
    "record",
    [
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=6, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=9, broker_epoch=7, fenced=1),
        BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, fenced=2),
        UnregisterBrokerRecord(broker_id=1, broker_epoch=6),
        RemoveTopicRecord(topic_id=uuid(9)),
        PartitionChangeRecord(partition_id=0, topic_id=uuid(9)),
        ClearElrRecord(topic_name="nope"),
        BeginTransactionRecord(),
        FeatureLevelRecord(name="metadata.version", feature_level=34),
    ],
)
def test_records_that_contradict_the_state_are_refused(record: Message) -> None:
    with pytest.raises(ProtocolViolation):
        image_of([REGISTER, record])


def test_directories_of_a_broker_are_trusted_if_they_stayed() -> None:
    a, b, c = uuid(1), uuid(2), uuid(3)

    def registered(*directories: bytes, epoch: int = 7) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(broker_id=1, broker_epoch=epoch, log_dirs=list(directories))

    def failed(*left: bytes) -> BrokerRegistrationChangeRecord:
        return BrokerRegistrationChangeRecord(broker_id=1, broker_epoch=7, log_dirs=list(left))

    def kept(*records: Message) -> list[tuple[int, list[bytes]]]:
        delta = MetadataDelta(image_of([registered(a, b)]))
        for record in records:
            delta.replay(record, 100)
        return [
            (broker, list(trusted))
            for broker, trusted in directories_changed_in_epoch(delta.cluster)
        ]

    assert kept(registered(a, c)) == [(1, [a])]
    assert kept(registered(a, b, c)) == [(1, [a, b])]
    # It may have failed and come back between the two images.
    assert kept(registered(a, b)) == [(1, [])]
    assert kept(registered(a, b, epoch=8)) == []
    # Its replicas may begin again in other directories.
    assert kept(failed(a)) == [(1, [a])]
    assert kept(failed(a), registered(a, c)) == [(1, [a])]


def test_searches_visit_the_topics_that_have_such_partitions() -> None:
    records = [
        *topic("led", uuid(1)),
        *topic("leaderless", uuid(2), leader=-1),
        *topic("moved", uuid(3), leader=2, replicas=[1, 2, 3], directories=[uuid(1)] * 3),
        *topic("reassigned", uuid(4), adding_replicas=[2]),
    ]
    image = image_of(records).topics
    assert [t.name for t in image.with_leaderless()] == ["leaderless"]
    assert [t.name for t in image.with_not_preferred()] == ["moved"]
    assert [t.name for t in image.with_reassignments()] == ["reassigned"]
    assert [t.name for t in image.with_replicas_on(3)] == ["moved"]
    assert len(list(image.with_replicas_on(1))) == 4


def test_searches_follow_changes_of_partitions() -> None:
    base = image_of([*topic("a", uuid(1), leader=-1), *topic("b", uuid(2), leader=2)])
    led = [PartitionChangeRecord(partition_id=0, topic_id=uuid(n), leader=1) for n in (1, 2)]
    moved = PartitionChangeRecord(
        partition_id=0, topic_id=uuid(1), replicas=[1, 1027], adding_replicas=[1027], isr=[1]
    )
    image = image_of([*led, moved], base)
    image.check()
    assert not list(image.topics.with_leaderless())
    assert not list(image.topics.with_not_preferred())
    assert [t.name for t in image.topics.with_reassignments()] == ["a"]
    assert [t.name for t in image.topics.with_replicas_on(1027)] == ["a"]


def test_the_partitions_of_a_repeated_topic_stay_the_same_objects() -> None:
    level = FeatureLevelRecord(name="metadata.version", feature_level=30)
    image = image_of([level, *topic()])
    delta = MetadataDelta(image)
    delta.begin_snapshot()
    for record in snapshot_records(image):
        delta.replay(through_the_log(record), 0)
    again = delta.apply(image.provenance)
    assert again.topics.by_name["t"].partitions[0] is image.topics.by_name["t"].partitions[0]
