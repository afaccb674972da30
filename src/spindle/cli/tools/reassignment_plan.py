"""Plans of `kafka-reassign-partitions`: which brokers, and which of their directories."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.json_file import COMMAND, entries, parse_document, partition_of
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


def parse_plan(text: str) -> Plan:
    """Return the plan in the text of a file.

    Raises:
        ToolFailed: the text is of another form, or names something twice.
    """
    replicas: dict[TopicPartition, tuple[int, ...]] = {}
    directories: dict[Replica, str] = {}
    twice = []
    document = parse_document(text)
    for entry in entries(document, "partitions") if "partitions" in document else []:
        partition = partition_of(entry)
        if partition in replicas:
            twice.append(str(partition))
        replicas[partition] = _brokers(entry, partition)
        for broker, path in zip(
            replicas[partition], _directories(entry, replicas[partition], partition), strict=True
        ):
            if path != ANY_DIRECTORY:
                directories[Replica(broker, partition)] = path
    if twice:
        names = ",".join(twice)
        raise ToolFailed(
            f"Partition reassignment contains duplicate topic partitions: {names}", COMMAND
        )
    wait_ms = document.get("waitMs", 0)
    if not isinstance(wait_ms, int) or wait_ms < 0:
        raise ToolFailed(f"the field waitMs is {wait_ms!r}, not a number of ms of at least 0")
    return Plan(dict(sorted(replicas.items())), dict(sorted(directories.items())), wait_ms)


def check_plan(plan: Plan) -> None:
    """Refuse a plan that cannot be executed.

    Raises:
        ToolFailed: it is empty, or a partition has no brokers or one of them twice.
    """
    if not plan.replicas:
        raise ToolFailed("Partition reassignment list cannot be empty", COMMAND)
    for partition, brokers in plan.replicas.items():
        if not brokers:
            raise ToolFailed("Partition replica list cannot be empty", COMMAND)
        twice = sorted({broker for broker in brokers if brokers.count(broker) > 1})
        if twice:
            raise ToolFailed(
                "Partition replica lists may not contain duplicate entries: "
                f"{partition} contains multiple entries for {','.join(map(str, twice))}",
                COMMAND,
            )


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


def parse_topics(text: str) -> list[str]:
    """Return the topics in the text of a file: `{"topics": [{"topic": "t"}], "version": 1}`.

    Raises:
        ToolFailed: the text is of another form, or names a topic twice.
    """
    names = [str(entry.get("topic")) for entry in entries(parse_document(text), "topics")]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ToolFailed(
            f"List of topics to reassign contains duplicate entries: [{', '.join(twice)}]", COMMAND
        )
    return names


def _brokers(entry: dict[str, Any], partition: TopicPartition) -> tuple[int, ...]:
    brokers = entry.get("replicas")
    if not isinstance(brokers, list) or not all(isinstance(broker, int) for broker in brokers):
        raise ToolFailed(f"the field replicas of partition {partition} is not a list of numbers")
    return tuple(brokers)


def _directories(
    entry: dict[str, Any], brokers: Sequence[int], partition: TopicPartition
) -> list[str]:
    paths = entry.get("log_dirs")
    if paths is None:
        return [ANY_DIRECTORY] * len(brokers)
    if not isinstance(paths, list) or not all(isinstance(path, str) for path in paths):
        raise ToolFailed(f"the field log_dirs of partition {partition} is not a list of paths")
    if len(paths) != len(brokers):
        raise ToolFailed(
            f"Size of replicas list {list(brokers)} is different from size of log dirs list "
            f"[{', '.join(paths)}] for partition {partition}",
            COMMAND,
        )
    return paths
