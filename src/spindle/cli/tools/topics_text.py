"""The lines of `kafka-topics --describe`."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spindle.client.admin.configs import ReportedConfig, ReportedSource
from spindle.client.admin.partitions import Reassignment
from spindle.client.admin.topics import PartitionDescription, TopicDescription
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.java_text import in_map_order, string_hash
from spindle.common.uuids import ZERO_UUID, uuid_text

_MIN_ISR: Final = "min.insync.replicas"


@dataclass(frozen=True, slots=True)
class DescribedTopic:
    """A topic with all data of its description.

    `moves` has the running reassignments, `brokers` the ids of the live brokers.
    """

    topic: TopicDescription
    entries: Sequence[ReportedConfig]
    moves: Mapping[TopicPartition, Reassignment]
    brokers: Collection[int]

    @property
    def overrides(self) -> list[ReportedConfig]:
        """The settings that are not defaults."""
        ordered = in_map_order(self.entries, lambda each: string_hash(each.name))
        return [entry for entry in ordered if entry.source is not ReportedSource.DEFAULT_CONFIG]

    @property
    def min_isr(self) -> int:
        """The number of replicas in sync that acks=all requires."""
        return next((int(entry.value or 1) for entry in self.entries if entry.name == _MIN_ISR), 1)

    def move_of(self, partition: PartitionDescription) -> Reassignment | None:
        """Return the reassignment of a partition; None if there is none."""
        return self.moves.get(TopicPartition(self.topic.name, partition.partition))

    def replication_factor(self, partition: PartitionDescription) -> int:
        """Return the number of replicas, without those that a reassignment adds."""
        move = self.move_of(partition)
        if move is None or not {*move.adding, *move.removing} & {*partition.replicas}:
            return len(partition.replicas)
        return len(move.replicas) - len(move.adding)


_REPORTS: Final[Mapping[str, Callable[[DescribedTopic, PartitionDescription], bool]]] = {
    "under-replicated-partitions": lambda topic, p: topic.replication_factor(p) > len(p.isr),
    "unavailable-partitions": lambda topic, p: (
        p.leader == NO_LEADER or p.leader not in topic.brokers
    ),
    "under-min-isr-partitions": lambda topic, p: (
        p.leader == NO_LEADER or len(p.isr) < topic.min_isr
    ),
    "at-min-isr-partitions": lambda topic, p: len(p.isr) == topic.min_isr,
}


def summary_line(shown: DescribedTopic) -> str:
    """Return the line about the topic itself."""
    topic = shown.topic
    words = [f"Topic: {topic.name}"]
    if topic.topic_id != ZERO_UUID:
        words.append(f"TopicId: {uuid_text(topic.topic_id)}")
    factor = shown.replication_factor(topic.partitions[0]) if topic.partitions else 0
    configs = ",".join(f"{override.name}={override.value}" for override in shown.overrides)
    words += [
        f"PartitionCount: {len(topic.partitions)}",
        f"ReplicationFactor: {factor}",
        f"Configs: {configs}",
    ]
    return "\t".join(words)


def partition_lines(shown: DescribedTopic, reports: Sequence[str]) -> list[str]:
    """Return a line for each partition, or for each that one of the reports selects."""
    return [_partition_line(shown, partition) for partition in _selected(shown, reports)]


def topic_json(shown: DescribedTopic, reports: Sequence[str]) -> dict[str, Any]:
    """Return the topic as a document."""
    topic = shown.topic
    return {
        "topic": topic.name,
        "topicId": uuid_text(topic.topic_id),
        "internal": topic.is_internal,
        "partitionCount": len(topic.partitions),
        "configs": {override.name: override.value for override in shown.overrides},
        "partitions": [
            {
                "partition": p.partition,
                "leader": None if p.leader == NO_LEADER else p.leader,
                "replicas": list(p.replicas),
                "isr": list(p.isr),
                "elr": None if p.eligible is None else list(p.eligible),
                "lastKnownElr": (
                    None if p.last_known_eligible is None else list(p.last_known_eligible)
                ),
                "offlineReplicas": list(p.offline),
            }
            for p in _selected(shown, reports)
        ],
    }


def _selected(shown: DescribedTopic, reports: Sequence[str]) -> list[PartitionDescription]:
    if not reports:
        return list(shown.topic.partitions)
    checks = [_REPORTS[name] for name in reports]
    return [p for p in shown.topic.partitions if any(check(shown, p) for check in checks)]


def _partition_line(shown: DescribedTopic, partition: PartitionDescription) -> str:
    words = [
        "",
        f"Topic: {shown.topic.name}",
        f"Partition: {partition.partition}",
        f"Leader: {'none' if partition.leader == NO_LEADER else partition.leader}",
        f"Replicas: {_ids(partition.replicas)}",
        f"Isr: {_ids(partition.isr)}",
    ]
    move = shown.move_of(partition)
    if move is not None:
        words += [
            f"Adding Replicas: {_ids(move.adding)}",
            f"Removing Replicas: {_ids(move.removing)}",
        ]
    words += [
        f"Elr: {'N/A' if partition.eligible is None else _ids(partition.eligible)}",
        "LastKnownElr: "
        + ("N/A" if partition.last_known_eligible is None else _ids(partition.last_known_eligible)),
    ]
    return "\t".join(words)


def _ids(brokers: Sequence[int]) -> str:
    return ",".join(map(str, brokers))
