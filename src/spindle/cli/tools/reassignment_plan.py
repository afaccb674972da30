"""Plans of `kafka-reassign-partitions`: brokers and directories of replicas."""

from collections.abc import Sequence
from typing import Any

from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.json_file import COMMAND, entries, parse_document, partition_of
from spindle.common.ids import TopicPartition
from spindle.operations.reassignment import ANY_DIRECTORY, Plan, Replica


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
