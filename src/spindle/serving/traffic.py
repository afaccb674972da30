"""What goes in and out by topic: plain numbers that handlers add to and the exporter reads."""

from collections.abc import Iterable
from typing import NamedTuple


class TopicTraffic:
    """Since the start of the broker.

    Produces and fetches are counted by partition, fetches only where the answer tells something of
    the partition.
    """

    __slots__ = (
        "bytes_in",
        "bytes_out",
        "failed_fetches",
        "failed_produces",
        "fetches",
        "messages_in",
        "produces",
    )

    def __init__(self) -> None:
        self.bytes_in = 0
        self.bytes_out = 0
        self.messages_in = 0
        self.produces = 0
        self.fetches = 0
        self.failed_produces = 0
        self.failed_fetches = 0

    def add(self, other: "TopicTraffic") -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """Of all topics that this broker hosts or has hosted.

    Attributes:
        replicated_bytes: of records given to other brokers that follow.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self.replicated_bytes = 0
        self._gone = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """The counters of a hosted topic."""
        found = self.by_topic.get(topic)
        if found is None:
            found = self.by_topic[topic] = TopicTraffic()
        return found

    def forget(self, topics: Iterable[str]) -> None:
        """These are deleted: they keep counting in the total only."""
        for topic in topics:
            gone = self.by_topic.pop(topic, None)
            if gone is not None:
                self._gone.add(gone)

    def snapshot(self) -> "TrafficSnapshot":
        """For a reader on another thread."""
        gone = TopicTraffic()
        gone.add(self._gone)
        return TrafficSnapshot(list(self.by_topic.items()), gone)


class TrafficSnapshot(NamedTuple):
    """The topics of a moment, whose counters go on, and what deleted topics have left."""

    topics: list[tuple[str, TopicTraffic]]
    gone: TopicTraffic

    def total(self) -> TopicTraffic:
        """Of all topics since the start."""
        total = TopicTraffic()
        total.add(self.gone)
        for _, one in self.topics:
            total.add(one)
        return total
