"""The cluster as a client knows it: brokers, topics, leaders; read from Metadata answers."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from spindle.client.errors import BrokerNotRunning, NotInMetadata, error_for, raise_for
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address of a broker on the listener that answered."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.node_id} at {self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionView:
    """A partition. `leader` is -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline_replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TopicView:
    """A topic. `topic_id` is zero if the broker is too old for topic ids."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: Mapping[int, PartitionView]


def no_broker_text(broker: int | str, known: Iterable[int]) -> str:
    """Return the text of the error for a broker that is not among the known ones.

    Metadata leaves out the brokers that are down, so the text says that this one may be down.
    """
    names = ", ".join(map(str, sorted(known))) or "none"
    return f"broker {broker} is unknown or down; known brokers: {names}"


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster as a client knows it. `refused` has the errors of topics that were refused."""

    cluster_id: str | None = None
    controller_id: int = -1
    brokers: Mapping[int, BrokerAddress] = field(default_factory=dict)
    topics: Mapping[str, TopicView] = field(default_factory=dict)
    refused: Mapping[str, ErrorCode] = field(default_factory=dict)

    def topic(self, name: str) -> TopicView:
        """Return a topic by name.

        Raises:
            ApiError: it was refused, or not asked for.
        """
        topic = self.topics.get(name)
        if topic is None:
            code = self.refused.get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise NotInMetadata(code, f"there is no topic {name!r}")
            raise error_for(code, f"topic {name!r}")
        return topic

    def broker(self, node_id: str) -> BrokerAddress:
        """Return a broker by the text of its id, as configuration resources name it.

        Raises:
            BrokerNotRunning: there is no such broker now.
        """
        address = self.brokers.get(int(node_id)) if node_id.isdecimal() else None
        if address is None:
            name = int(node_id) if node_id.isdecimal() else repr(node_id)
            text = no_broker_text(name, self.brokers)
            raise BrokerNotRunning(ErrorCode.BROKER_NOT_AVAILABLE, text)
        return address

    def leader_of(self, of: TopicPartition) -> BrokerAddress:
        """Return the broker that leads a partition.

        Raises:
            ApiError: the partition does not exist, or has no leader now.
        """
        partitions = self.topic(of.topic).partitions
        partition = partitions.get(of.partition)
        if partition is None:
            known = f"{of.topic} has the partitions 0 to {max(partitions, default=0)}"
            text = f"there is no partition {of}; {known}"
            raise NotInMetadata(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, text)
        leader = self.brokers.get(partition.leader)
        if partition.leader == NO_LEADER or leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {of} has no leader now")
        return leader

    def has_leader(self, of: TopicPartition) -> bool:
        """Return whether the partition exists and a broker that serves leads it now."""
        topic = self.topics.get(of.topic)
        view = None if topic is None else topic.partitions.get(of.partition)
        return view is not None and view.leader in self.brokers

    def by_leader(
        self, partitions: Iterable[TopicPartition]
    ) -> dict[BrokerAddress, list[TopicPartition]]:
        """Return the partitions grouped by leader, leaders and partitions in the order given."""
        led: dict[BrokerAddress, list[TopicPartition]] = {}
        for partition in partitions:
            led.setdefault(self.leader_of(partition), []).append(partition)
        return led


def metadata_request(topics: Sequence[str] | None, *, create: bool = False) -> MetadataRequest:
    """Return a request for these topics, or for all topics with None.

    Args:
        create: Create missing topics if the brokers allow it (auto.create.topics.enable).
    """
    wanted = None
    if topics is not None:
        wanted = [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    return MetadataRequest(topics=wanted, allow_auto_topic_creation=create)


def cluster_view(response: MetadataResponse) -> ClusterView:
    """Return the view in a Metadata answer.

    Raises:
        ApiError: the broker refused the whole request.
    """
    raise_for(response.error_code, "Metadata")
    topics: dict[str, TopicView] = {}
    refused: dict[str, ErrorCode] = {}
    for topic in response.topics:
        name = topic.name or ""
        if topic.error_code:
            refused[name] = ErrorCode(topic.error_code)
        else:
            topics[name] = _topic_view(name, topic)
    return ClusterView(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers={
            b.node_id: BrokerAddress(b.node_id, b.host, b.port, b.rack) for b in response.brokers
        },
        topics=topics,
        refused=refused,
    )


def _topic_view(name: str, topic: MetadataResponse.MetadataResponseTopic) -> TopicView:
    return TopicView(
        name,
        topic.topic_id or ZERO_UUID,
        topic.is_internal,
        {
            p.partition_index: PartitionView(
                p.partition_index,
                p.leader_id,
                p.leader_epoch,
                tuple(p.replica_nodes),
                tuple(p.isr_nodes),
                tuple(p.offline_replicas),
            )
            for p in sorted(topic.partitions, key=lambda p: p.partition_index)
        },
    )
