"""Topics and their partitions in the image, by name and by id (KIP-516)."""

from collections.abc import Iterator, Mapping

from spindle.common.errors import ProtocolViolation
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


@immutable
class TopicImage:
    """One topic. `partitions` is keyed by partition id, in the order of creation."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionRegistration]


@immutable
class TopicsImage:
    """All topics. Invariant: both maps hold the same `TopicImage` objects."""

    by_id: Mapping[Uuid, TopicImage]
    by_name: Mapping[str, TopicImage]

    def partition(self, topic_id: Uuid, partition_id: int) -> PartitionRegistration | None:
        topic = self.by_id.get(topic_id)
        return topic.partitions.get(partition_id) if topic else None

    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.by_id.values())

    def check(self) -> None:
        """Assert the invariants of the topics and of every partition."""
        assert len(self.by_id) == len(self.by_name)
        for topic_id, topic in self.by_id.items():
            assert topic.topic_id == topic_id
            assert self.by_name[topic.name] is topic
            for registration in topic.partitions.values():
                registration.check()


EMPTY_TOPICS = TopicsImage(by_id={}, by_name={})


class TopicDelta:
    """The changes to one topic. `base` is None for a new topic."""

    __slots__ = ("_partitions", "_touched", "base", "name", "topic_id")

    def __init__(self, name: str, topic_id: Uuid, base: TopicImage | None, *, keep: bool) -> None:
        self.name = name
        self.topic_id = topic_id
        self.base = base
        self._partitions = MapEditor(base.partitions if base is not None and keep else {})
        self._touched: dict[int, None] = {}

    def partition(self, partition_id: int) -> PartitionRegistration | None:
        """Return the partition as it is after the records so far."""
        return self._partitions.get(partition_id)

    def set_partition(self, partition_id: int, registration: PartitionRegistration) -> None:
        self._partitions.set(partition_id, registration)
        self._touched[partition_id] = None

    def clear_elr(self) -> None:
        for partition_id, registration in list(self._partitions.current().items()):
            if registration.elr or registration.last_known_elr:
                self.set_partition(partition_id, without_elr(registration))

    def changed_partitions(
        self,
    ) -> Iterator[tuple[int, PartitionRegistration | None, PartitionRegistration]]:
        """Yield (partition id, old or None, new) for each changed partition."""
        before = self.base.partitions if self.base is not None else {}
        for partition_id in self._touched:
            new = self._partitions.get(partition_id)
            old = before.get(partition_id)
            if new is not None and new != old:
                yield partition_id, old, new

    def apply(self) -> TopicImage:
        return TopicImage(self.name, self.topic_id, self._partitions.result())


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
        self._by_id.set(topic_id, TopicImage(record.name, topic_id, {}))
        self._by_name.set(record.name, TopicImage(record.name, topic_id, {}))

    def replay_partition(self, record: PartitionRecord) -> None:
        self._topic(record.topic_id).set_partition(record.partition_id, registration_of(record))

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
            self._by_id.set(topic_id, image)
            self._by_name.set(delta.name, image)
        return TopicsImage(self._by_id.result(), self._by_name.result())
