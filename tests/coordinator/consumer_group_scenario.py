"""A shard with members of the consumer protocol that behave as clients do, for tests."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from group_scenario import GROUP, Scenario

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.coordinator.config import ConsumerGroupConfig, GroupCoordinatorConfig
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.consumer.heartbeat import check_request
from spindle.coordinator.consumer.subscriptions import TopicsView
from spindle.coordinator.coordinator_result import Client, GroupRequest
from spindle.metadata.topics import PartitionCounts, TopicImage, TopicsImage
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

REVOCATION_MS = 30_000
Claims = list[ConsumerGroupHeartbeatRequest.TopicPartitions]


def topic_id(name: str) -> Uuid:
    return name.encode().rjust(16, b"\1")


def topics_image(**counts: int) -> TopicsImage:
    """Return topics by name with their numbers of partitions."""
    registration: Any = None  # a group looks at the number of partitions alone
    topics = [
        TopicImage(
            name, topic_id(name), dict.fromkeys(range(count), registration), PartitionCounts()
        )
        for name, count in counts.items()
    ]
    return TopicsImage({t.topic_id: t for t in topics}, {t.name: t for t in topics})


@dataclass
class Consumer:
    """A client: its member id, epoch, and the partitions that it reads by topic name."""

    member_id: str
    instance_id: str | None = None
    epoch: int = 0
    owned: dict[str, set[int]] = field(default_factory=dict)

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted((topic, p) for topic, indexes in self.owned.items() for p in indexes)


class ConsumerScenario(Scenario):
    """A scenario of consumer groups.

    Attributes:
        topics: the topics of the cluster.
        may_describe: the topics that the sender of the next heartbeat may know of.
    """

    def __init__(self, config: GroupCoordinatorConfig | None = None, **counts: int) -> None:
        self.consumer_config = ConsumerGroupConfig(assignment_interval_ms=0)
        self.topics = topics_image(**(counts or {"t": 4}))
        self.may_describe: Callable[[str], bool] | None = None
        super().__init__(config)

    def consumer_config_of(self, _: str) -> ConsumerGroupConfig:
        return self.consumer_config

    def start(self) -> None:
        super().start()
        self.shard.groups.view = TopicsView(self.topics, 7)

    def consumer_group(self) -> ConsumerGroup:
        return self.shard.groups.consumer[GROUP]

    def beat(
        self, member_id: str = "a", epoch: int = 0, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send one heartbeat and return its answer.

        Raises:
            ApiError: the coordinator refuses it.
        """
        answer = self.answers[self.ask_beat(member_id, epoch, **fields)]
        if isinstance(answer, ApiError):
            raise answer
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def ask_beat(self, member_id: str, epoch: int, **fields: Any) -> str:
        """Send one heartbeat and return its token; see `beat`."""
        version = fields.pop("version", 1)
        fields.setdefault("topic_partitions", None)
        request = ConsumerGroupHeartbeatRequest(
            group_id=GROUP, member_id=member_id, member_epoch=epoch, **fields
        )
        check_request(request, version, self.consumer_config.assignors)
        client = Client("client", "/127.0.0.1", version, self.may_describe)
        self.shard.groups.view = TopicsView(self.topics, 7)
        return self._ask(
            lambda token, out: self.shard.consumers.heartbeat(
                GroupRequest(token, request, out, client)
            )
        )

    def refused(self, member_id: str = "a", epoch: int = 0, **fields: Any) -> ErrorCode:
        """Send a heartbeat that must be refused, and return the error."""
        try:
            answer = self.beat(member_id, epoch, **fields)
        except ApiError as error:
            return error.code
        raise AssertionError(f"accepted: {answer!r}")

    def join_consumer(
        self, member_id: str, *topics: str, instance_id: str | None = None, **fields: Any
    ) -> Consumer:
        """Let a client join, and return it with what it got."""
        consumer = Consumer(member_id, instance_id)
        fields.setdefault("rebalance_timeout_ms", REVOCATION_MS)
        names = None if "subscribed_topic_regex" in fields else list(topics or ("t",))
        answer = self.beat(
            member_id,
            0,
            instance_id=instance_id,
            subscribed_topic_names=names,
            topic_partitions=[],
            **fields,
        )
        self._take(consumer, answer)
        return consumer

    def step(self, *consumers: Consumer) -> None:
        """Let each client send a heartbeat with what it owns, and do what the answer says."""
        for consumer in consumers:
            answer = self.beat(
                consumer.member_id,
                consumer.epoch,
                instance_id=consumer.instance_id,
                topic_partitions=claims(consumer.owned),
            )
            self._take(consumer, answer)
        self.assert_no_partition_is_read_twice(*consumers)

    def subscribe(self, consumer: Consumer, *topics: str) -> None:
        """Let a client subscribe to other topics, and do what the answer says."""
        answer = self.beat(
            consumer.member_id,
            consumer.epoch,
            instance_id=consumer.instance_id,
            subscribed_topic_names=list(topics),
            topic_partitions=claims(consumer.owned),
        )
        self._take(consumer, answer)

    def settle(self, *consumers: Consumer) -> None:
        """Let the clients send heartbeats until nothing changes."""
        for _ in range(10):
            before = len(self.log)
            self.step(*consumers)
            if len(self.log) == before:
                return
        raise AssertionError(f"no end after 10 rounds: {self.consumer_group().state}")

    @staticmethod
    def assert_no_partition_is_read_twice(*consumers: Consumer) -> None:
        read = [name for consumer in consumers for name in consumer.partitions]
        assert len(read) == len(set(read)), read

    def _take(self, consumer: Consumer, answer: ConsumerGroupHeartbeatResponse) -> None:
        consumer.epoch = answer.member_epoch
        if answer.assignment is not None:
            names = {t.topic_id: t.name for t in self.topics.by_name.values()}
            consumer.owned = {
                names[t.topic_id]: set(t.partitions)
                for t in answer.assignment.topic_partitions
                if t.topic_id in names
            }


def claims(owned: dict[str, set[int]]) -> Claims:
    return [
        ConsumerGroupHeartbeatRequest.TopicPartitions(
            topic_id=topic_id(name), partitions=sorted(partitions)
        )
        for name, partitions in owned.items()
    ]
