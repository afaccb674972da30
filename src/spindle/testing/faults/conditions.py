"""Conditions on a node's metadata and disks, awaited without polling."""

from collections.abc import Callable, Mapping
from typing import Any

from spindle.common.uuids import is_reserved_directory_id, uuid_text
from spindle.metadata.image import MetadataImage
from spindle.publication.loader import Publication
from spindle.publication.publishers import ImagePublisher, MetadataPublisher
from spindle.testing.faults.faulty_machine import FaultyMachine

Condition = Callable[[MetadataImage, Mapping[str, str]], Any]
"""From the metadata and the offline directories to the answer; None while it does not hold."""


class ConditionWatch(MetadataPublisher):
    """Calls `then` once with the answer of a condition. Made and used on the event loop."""

    def __init__(
        self,
        publisher: ImagePublisher,
        machine: FaultyMachine,
        condition: Condition,
        then: Callable[[Any], None],
    ) -> None:
        self._publisher = publisher
        self._machine = machine
        self._condition = condition
        self._then = then
        self._is_watching = True
        publisher.add(self)
        machine.on_offline(self._look)
        self._look()

    def on_publication(self, publication: Publication) -> None:
        self._look()

    def stop(self) -> None:
        """Stop watching."""
        if self._is_watching:
            self._is_watching = False
            self._publisher.remove(self)
            self._machine.remove_listener(self._look)

    def _look(self) -> None:
        if not self._is_watching:
            return
        answer = self._condition(self._publisher.image, self._machine.offline)
        if answer is not None:
            self.stop()
            self._then(answer)


def condition_of(request: Mapping[str, Any]) -> Condition:
    """Return the condition that a request describes."""
    return _CONDITIONS[request["name"]](request)


def _in_sync(request: Mapping[str, Any]) -> Condition:
    """Wait until all brokers are active, and every replica of every partition is in sync."""
    brokers, topics = request["brokers"], request["topics"]

    def condition(image: MetadataImage, offline: Mapping[str, str]) -> Any:
        if not all(map(image.cluster.is_active, brokers)):
            return None
        for topic in image.topics.by_id.values():
            if topics is not None and topic.name not in topics:
                continue
            for partition in topic.partitions.values():
                if partition.leader < 0 or set(partition.isr) != set(partition.replicas):
                    return None
        return True

    return condition


def _partition(request: Mapping[str, Any]) -> Condition:
    """Wait until a partition exists."""
    name, number = request["topic"], request["partition"]

    def condition(image: MetadataImage, offline: Mapping[str, str]) -> Any:
        topic = image.topics.by_name.get(name)
        return None if topic is None or number not in topic.partitions else True

    return condition


def _leader(request: Mapping[str, Any]) -> Condition:
    """Wait until one of these brokers is active and leads the partition; return its id."""
    name, number = request["topic"], request["partition"]
    brokers, others = request["brokers"], request["other_than"]

    def condition(image: MetadataImage, offline: Mapping[str, str]) -> Any:
        topic = image.topics.by_name.get(name)
        partition = None if topic is None else topic.partitions.get(number)
        if partition is None or partition.leader in others or partition.leader not in brokers:
            return None
        return partition.leader if image.cluster.is_active(partition.leader) else None

    return condition


def _fenced(request: Mapping[str, Any]) -> Condition:
    """Wait until a broker is fenced."""
    broker = request["broker"]
    return lambda image, offline: None if image.cluster.is_active(broker) else True


def _offline(request: Mapping[str, Any]) -> Condition:
    """Wait until the node has taken a log directory offline; return the reason."""
    path = request["path"]
    return lambda image, offline: offline.get(path)


def _replica(request: Mapping[str, Any]) -> Condition:
    """Wait until a broker has its replica of a partition in a directory; return the directory's id.

    The answer is empty if the broker has no replica of the partition.
    """
    name, number, broker = request["topic"], request["partition"], request["broker"]

    def condition(image: MetadataImage, offline: Mapping[str, str]) -> Any:
        topic = image.topics.by_name.get(name)
        partition = None if topic is None else topic.partitions.get(number)
        if partition is None:
            return None
        if broker not in partition.replicas:
            return ""
        directory = partition.directory(broker)
        return None if is_reserved_directory_id(directory) else uuid_text(directory)

    return condition


_CONDITIONS: Mapping[str, Callable[[Mapping[str, Any]], Condition]] = {
    "in-sync": _in_sync,
    "leader": _leader,
    "partition": _partition,
    "fenced": _fenced,
    "offline": _offline,
    "replica": _replica,
}
