"""Traffic by topic: plain numbers that handlers add to and the exporter reads."""

from collections.abc import Iterable
from typing import NamedTuple


class TopicTraffic:
    """The traffic of one topic since the start of the broker.

    A produce or fetch counts once per partition; a fetch only if its answer holds the partition.
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
        """Add the traffic of another topic."""
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Traffic:
    """The traffic of all topics that this broker hosts or has hosted.

    Attributes:
        replicated_bytes: bytes of records sent to followers.
    """

    def __init__(self) -> None:
        self.by_topic: dict[str, TopicTraffic] = {}
        self.replicated_bytes = 0
        self._gone = TopicTraffic()

    def of(self, topic: str) -> TopicTraffic:
        """Return the counters of a hosted topic."""
        traffic = self.by_topic.get(topic)
        if traffic is None:
            traffic = self.by_topic[topic] = TopicTraffic()
        return traffic

    def of_former(self, topic: str) -> TopicTraffic:
        """Return the counters for traffic of a topic that may be hosted no more."""
        return self.by_topic.get(topic, self._gone)

    def forget(self, topics: Iterable[str]) -> None:
        """Drop deleted topics; their traffic stays in the total."""
        for topic in topics:
            gone = self.by_topic.pop(topic, None)
            if gone is not None:
                self._gone.add(gone)

    def snapshot(self) -> "TrafficSnapshot":
        """Return a copy for another thread."""
        gone = TopicTraffic()
        gone.add(self._gone)
        return TrafficSnapshot(list(self.by_topic.items()), gone)


class TrafficSnapshot(NamedTuple):
    """The hosted topics, whose counters keep counting, and the sum of deleted topics."""

    topics: list[tuple[str, TopicTraffic]]
    gone: TopicTraffic

    def total(self) -> TopicTraffic:
        """Return the traffic of all topics since the start."""
        total = TopicTraffic()
        total.add(self.gone)
        for _, one in self.topics:
            total.add(one)
        return total
