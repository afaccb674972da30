"""Topics and their partitions in the image, by name and by id (KIP-516)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final, NamedTuple

from spindle.common.errors import ProtocolViolation
from spindle.common.ids import NO_LEADER
from spindle.common.uuids import Uuid, uuid_text
from spindle.metadata.immutable import immutable
from spindle.metadata.map_editor import MapEditor
from spindle.metadata.partitions import PartitionRegistration, merge, registration_of, without_elr
from spindle.protocol.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

_BROKER_BITS: Final = 1024


class PartitionCounts(NamedTuple):
    """Counts of a topic's partitions, by which a search over all topics skips most of them.

    Attributes:
        leaderless: partitions without a leader.
        not_preferred: partitions that another replica than the preferred one leads.
        reassigning: partitions with an ongoing reassignment.
        broker_bits: for each broker with a replica the bit of its id modulo 1024. A broker whose
            bit is not set has no replica; one whose bit is set may have none.
    """

    leaderless: int = 0
    not_preferred: int = 0
    reassigning: int = 0
    broker_bits: int = 0

    def changed(self, before: "PartitionCounts", now: "PartitionCounts") -> "PartitionCounts":
        """Return the counts after some partitions have changed from `before` to `now`."""
        return PartitionCounts(
            self.leaderless - before.leaderless + now.leaderless,
            self.not_preferred - before.not_preferred + now.not_preferred,
            self.reassigning - before.reassigning + now.reassigning,
            self.broker_bits | now.broker_bits,
        )


def count_partitions(partitions: Iterable[PartitionRegistration]) -> PartitionCounts:
    """Return the counts of these partitions."""
    leaderless = not_preferred = reassigning = broker_bits = 0
    broker_ids: set[int] = set()
    for partition in partitions:
        replicas, leader = partition.replicas, partition.leader
        if leader == NO_LEADER:
            leaderless += 1
        elif replicas[:1] != (leader,):
            not_preferred += 1
        if partition.adding_replicas or partition.removing_replicas:
            reassigning += 1
        broker_ids.update(replicas)
    for broker_id in broker_ids:
        broker_bits |= 1 << broker_id % _BROKER_BITS
    return PartitionCounts(leaderless, not_preferred, reassigning, broker_bits)


@immutable
class TopicImage:
    """One topic. `partitions` is keyed by partition id, in the order of creation."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionRegistration]
    counts: PartitionCounts = field(compare=False)

    def may_have_replica_on(self, broker_id: int) -> bool:
        """Return False only if the broker has no replica of the topic."""
        return bool(self.counts.broker_bits >> broker_id % _BROKER_BITS & 1)


@immutable
class TopicsImage:
    """All topics. Invariant: both maps hold the same `TopicImage` objects."""

    by_id: Mapping[Uuid, TopicImage]
    by_name: Mapping[str, TopicImage]

    def partition(self, topic_id: Uuid, partition_id: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return topic.partitions.get(partition_id) if topic else None

    def with_replicas_on(self, broker_id: int) -> Iterator[TopicImage]:
        """Yield the topics that may have replicas on the broker, without looking at partitions."""
        return (t for t in self.by_id.values() if t.may_have_replica_on(broker_id))

    def with_leaderless(self) -> Iterator[TopicImage]:
        """Yield the topics that have partitions without a leader."""
        return (t for t in self.by_id.values() if t.counts.leaderless)

    def with_not_preferred(self) -> Iterator[TopicImage]:
        """Yield the topics of which other replicas than the preferred ones lead partitions."""
        return (t for t in self.by_id.values() if t.counts.not_preferred)

    def with_reassignments(self) -> Iterator[TopicImage]:
        """Yield the topics that have ongoing reassignments."""
        return (t for t in self.by_id.values() if t.counts.reassigning)

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.by_id.values())

    def check(self) -> None:
        """Assert the invariants of the topics and of every partition."""
        assert len(self.by_id) == len(self.by_name)
        for topic_id, topic in self.by_id.items():
            assert topic.topic_id == topic_id
            assert self.by_name[topic.name] is topic
            counts = count_partitions(topic.partitions.values())
            assert counts[:3] == topic.counts[:3], (topic.name, counts, topic.counts)
            assert not counts.broker_bits & ~topic.counts.broker_bits, topic.name
            for registration in topic.partitions.values():
                registration.check()


EMPTY_TOPICS = TopicsImage(by_id={}, by_name={})


class TopicDelta:
    """The changes to one topic. `base` is None for a new topic.

    Args:
        keep: whether the records change `base`; a snapshot repeats all of its partitions instead.
    """

    __slots__ = ("_image", "_keeps_base", "_partitions", "_touched", "base", "name", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, base: TopicImage | None, *, keep: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        self._keeps_base = keep
        self._partitions = MapEditor(base.partitions if base is not None and keep else {})
        self._touched: dict[int, None] = {}
        self._image: TopicImage | None = None

    @classmethod
    def of_new(cls, topic: TopicImage) -> "TopicDelta":
        """Return the delta that creates the whole topic."""
        delta = cls(topic.name, topic.topic_id, None, keep=False)
        delta._partitions = MapEditor(topic.partitions)
        delta._image = topic
        return delta

    def partition(self, partition_id: int) -> PartitionRegistration | None:
        """Return the partition as it is after the records so far."""
        return self._partitions.get(partition_id)

    def set_partition(self, partition_id: int, registration: PartitionRegistration) -> None:
        if self.base is not None:  # of a new topic all partitions are new
            old = self.base.partitions.get(partition_id)
            if old == registration:
                registration = old  # a snapshot repeats it
            else:
                self._touched[partition_id] = None
        self._partitions.set(partition_id, registration)

    def clear_elr(self) -> None:
        for partition_id, registration in list(self._partitions.current().items()):
            if registration.elr or registration.last_known_elr:
                self.set_partition(partition_id, without_elr(registration))

    def changed_partitions(
        self,
    ) -> Iterator[tuple[int, PartitionRegistration | None, PartitionRegistration]]:
        """Yield (partition id, old or None, new) for each changed partition."""
        if self.base is None:
            for partition_id, new in self._partitions.current().items():
                yield partition_id, None, new
            return
        for partition_id in self._touched:
            now = self._partitions.get(partition_id)
            old = self.base.partitions.get(partition_id)
            if now is not None and now != old:
                yield partition_id, old, now

    def may_concern(self, broker_id: int) -> bool:
        """Return False only if the broker has no replica of the topic before and after `apply`."""
        if self._image is None:
            return True
        images = (self.base, self._image)
        return any(image is not None and image.may_have_replica_on(broker_id) for image in images)

    def apply(self) -> TopicImage:
        if self._image is None or self._partitions.is_changed:
            partitions = self._partitions.result()
            counts = self._counts(partitions)
            self._image = TopicImage(self.name, self.topic_id, partitions, counts)
        return self._image

    def _counts(self, partitions: Mapping[int, PartitionRegistration]) -> PartitionCounts:
        if self.base is None or not self._keeps_base:
            return count_partitions(partitions.values())
        old = self.base.partitions
        return self.base.counts.changed(
            count_partitions(old[number] for number in self._touched if number in old),
            count_partitions(partitions[number] for number in self._touched),
        )


class TopicsDelta:
    """Changes of topics. Publishers read `changed` and `deleted`; both in order of the records."""

    def __init__(self, base: TopicsImage) -> None:
        self.base = base
        self._by_id = MapEditor(base.by_id)
        self._by_name = MapEditor(base.by_name)
        self.changed: dict[Uuid, TopicDelta] = {}
        self.deleted: dict[Uuid, TopicImage] = {}

    def clear(self) -> None:
        """Forget every topic, as at the start of a snapshot."""
        self.changed.clear()
        self.deleted = dict(self.base.by_id)
        self._by_id.clear()
        self._by_name.clear()

    def replay_topic(self, record: TopicRecord) -> None:
        topic_id = bytes(record.topic_id)
        # A snapshot repeats known topics: this one is not new.
        base = self.deleted.pop(topic_id, None)
        delta = TopicDelta(record.name, topic_id, base, keep=False)
        self.changed[topic_id] = delta
        image = TopicImage(record.name, topic_id, {}, PartitionCounts())
        self._by_id.set(topic_id, image)
        self._by_name.set(record.name, image)

    def create_all(self, topics: TopicsImage) -> None:
        """Create all topics of an image, as its records would on an empty base."""
        self.changed = {t: TopicDelta.of_new(topic) for t, topic in topics.by_id.items()}
        self._by_id = MapEditor(topics.by_id)
        self._by_name = MapEditor(topics.by_name)

    def replay_partition(self, record: PartitionRecord) -> None:
        self.set_partition(record.topic_id, record.partition_id, registration_of(record))

    def set_partition(
        self, topic_id: Uuid, partition_id: int, registration: PartitionRegistration
    ) -> None:
        """Establish a partition, as its PartitionRecord does."""
        self._topic(topic_id).set_partition(partition_id, registration)

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        old = topic.partition(record.partition_id)
        if old is None:
            raise ProtocolViolation(
                f"PartitionChangeRecord for {topic.name}-{record.partition_id}, "
                "which was never created"
            )
        topic.set_partition(record.partition_id, merge(old, record))

    def replay_remove_topic(self, record: RemoveTopicRecord) -> TopicImage:
        """Remove the topic and return it."""
        topic_id = bytes(record.topic_id)
        image = self._by_id.remove(topic_id)
        if image is None:
            raise ProtocolViolation(f"RemoveTopicRecord for unknown topic {uuid_text(topic_id)}")
        self._by_name.remove(image.name)
        self.changed.pop(topic_id, None)
        base = self.base.by_id.get(topic_id)
        if base is not None:
            self.deleted[topic_id] = base
        return image

    def replay_clear_elr(self, record: ClearElrRecord) -> None:
        if not record.topic_name:
            for topic_id in list(self._by_id.current()):
                self._topic(topic_id).clear_elr()
            return
        image = self._by_name.get(record.topic_name)
        if image is None:
            raise ProtocolViolation(f"ClearElrRecord for unknown topic {record.topic_name}")
        self._topic(image.topic_id).clear_elr()

    def _topic(self, topic_id: Uuid) -> TopicDelta:
        delta = self.changed.get(topic_id)
        if delta is None:
            image = self._by_id.get(bytes(topic_id))
            if image is None:
                raise ProtocolViolation(f"record for unknown topic id {uuid_text(topic_id)}")
            delta = TopicDelta(image.name, image.topic_id, image, keep=True)
            self.changed[image.topic_id] = delta
        return delta

    def apply(self) -> TopicsImage:
        for topic_id, delta in self.changed.items():
            image = delta.apply()
            if self._by_id.get(topic_id) is not image:
                self._by_id.set(topic_id, image)
                self._by_name.set(delta.name, image)
        return TopicsImage(self._by_id.result(), self._by_name.result())
