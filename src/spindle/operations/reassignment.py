"""Reassignments in the format of `kafka-reassign-partitions`, and the present places of
replicas."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spindle.client.admin.topics import describe_topics
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition

ANY_DIRECTORY: Final = "any"


class Replica(NamedTuple):
    """A partition on a broker."""

    broker: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition}-{self.broker}"


@dataclass(frozen=True, slots=True)
class Plan:
    """The brokers of each partition, and the directories of the replicas for which the plan names
    one.

    Attributes:
        wait_ms: how long after earlier moves deleted replicas still use the space that this plan
            needs. Only files of `spindle plan` have it; Kafka's tool ignores it.
    """

    replicas: Mapping[TopicPartition, tuple[int, ...]]
    directories: Mapping[Replica, str] = field(default_factory=dict)
    wait_ms: int = 0


def plan_json(
    replicas: Mapping[TopicPartition, Sequence[int]],
    directories: Mapping[Replica, str],
    wait_ms: int = 0,
) -> str:
    """Return a plan as the text of a file.

    Args:
        wait_ms: how long to wait after earlier moves.
    """
    wait = {
        "waitMs": wait_ms,
        "note": f"Start {wait_ms / 1000:g} s after the end of earlier moves: until then, deleted "
        "replicas still use the space that these moves need.",
    }
    document = {
        "version": 1,
        **(wait if wait_ms else {}),
        "partitions": [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "replicas": list(brokers),
                "log_dirs": [
                    directories.get(Replica(broker, partition), ANY_DIRECTORY) for broker in brokers
                ],
            }
            for partition, brokers in sorted(replicas.items())
        ],
    }
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


def parse_plan_json(text: str) -> Plan:
    """Return the plan in a text of `plan_json`, without its wait.

    Raises:
        ValueError: the text is of another form.
    """
    document = json.loads(text)
    entries = document.get("partitions", []) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise ValueError(f"a plan is an object with a list of partitions, not {document!r}")
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    directories: dict[Replica, str] = {}
    for entry in entries:
        partition, brokers, paths = _parse_entry(entry)
        replicas[partition] = tuple(brokers)
        for broker, path in zip(brokers, paths, strict=True):
            if path != ANY_DIRECTORY:
                directories[Replica(broker, partition)] = path
    return Plan(replicas, directories)


def _parse_entry(entry: Any) -> tuple[TopicPartition, list[int], list[str]]:
    match entry:
        case {"topic": str(topic), "partition": int(number), "replicas": list(brokers)}:
            paths = entry.get("log_dirs", [ANY_DIRECTORY] * len(brokers))
            is_whole = _are(int, brokers) and isinstance(paths, list) and _are(str, paths)
            if is_whole and len(paths) == len(brokers):
                return TopicPartition(topic, number), brokers, paths
    raise ValueError(f"{entry!r} is not a partition with its replicas and their directories")


def _are(kind: type, values: list[Any]) -> bool:
    return all(isinstance(value, kind) for value in values)


class ReplicaPlaces(NamedTuple):
    """The directory of every replica, and the target directory of those that move."""

    directories: Mapping[Replica, str]
    futures: Mapping[Replica, str]


def places_of(client: WireClient) -> ReplicaPlaces:
    """Return the directories of all replicas.

    Raises:
        ApiError: a broker refused.
        ClientError: a broker could not be asked.
    """
    directories: dict[Replica, str] = {}
    futures: dict[Replica, str] = {}
    for broker, views in client.describe_log_dirs().items():
        for view in views:
            for partition, replica in view.replicas.items():
                into = futures if replica.is_future else directories
                into[Replica(broker, partition)] = view.path
    return ReplicaPlaces(directories, futures)


def current_replicas(
    client: WireClient, topics: Sequence[str], *, missing_ok: bool = False
) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the brokers of all partitions of topics.

    Raises:
        ApiError: a topic does not exist, unless `missing_ok`.
        ClientError: no broker could be asked.
    """
    described, refused = describe_topics(client, topics)
    for name, error in refused.items():
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise error
        if not missing_ok:
            raise ApiError(error.code, f"Topic {name} not found.")
    return {
        TopicPartition(topic.name, partition.partition): partition.replicas
        for topic in described
        for partition in topic.partitions
    }
