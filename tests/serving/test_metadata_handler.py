"""Metadata and DescribeTopicPartitions while brokers and leaders are away."""

import asyncio
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest
from cluster_image import LISTENER, ClusterImage

from spindle.authorization.authorizer import NoAuthorizer
from spindle.common.errors import ErrorCode
from spindle.protocol.codec import encode, encode_struct
from spindle.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.serving.context import RequestContext
from spindle.serving.encoded_topics import EncodedTopics
from spindle.serving.handlers.describe_topic_partitions import describe_topic_partitions
from spindle.serving.handlers.metadata import metadata

Partition = MetadataResponse.MetadataResponseTopic.MetadataResponsePartition


class Broker:
    """A broker that answers Metadata requests by an image."""

    def __init__(self, cluster: ClusterImage) -> None:
        self.cluster = cluster
        self.services = SimpleNamespace(
            metadata=SimpleNamespace(),
            cluster_id="c",
            random=Random(1),
            authorizer=NoAuthorizer(),
            encoded_topics=EncodedTopics(),
        )

    def answer(self, version: int, *names: str) -> MetadataResponse:
        """Return the response to a request for these topics, or for all if none is named."""
        self.services.metadata.image = self.cluster.image
        context = RequestContext(3, version, 0, "app", "127.0.0.1", LISTENER)
        asked = [MetadataRequest.MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=asked or None)
        return asyncio.run(metadata(cast(Any, self.services), context, request))


def partition_of(cluster: ClusterImage, version: int) -> Partition:
    """Return the first partition of topic "t" as Metadata of this version answers it."""
    (topic,) = Broker(cluster).answer(version, "t").topics
    (partition,) = topic.partitions
    return partition


def three_brokers() -> ClusterImage:
    cluster = ClusterImage(1, 2, 3)
    cluster.create("t", [1, 2, 3])
    return cluster


def test_version_0_leaves_out_a_replica_whose_broker_is_fenced() -> None:
    cluster = three_brokers()
    cluster.fence(3)
    cluster.change("t", isr=[1, 2])
    partition = partition_of(cluster, 0)
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
        1,
        [1, 2],
        [1, 2],
    )


def test_version_0_leaves_an_in_sync_replica_without_the_listener_out_of_the_isr() -> None:
    cluster = three_brokers()
    cluster.register(2, listener="INTERNAL")
    partition = partition_of(cluster, 0)
    assert partition.error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert (partition.replica_nodes, partition.isr_nodes) == ([1, 3], [1, 3])


def test_version_0_of_a_partition_without_a_leader_says_that_first() -> None:
    cluster = three_brokers()
    cluster.fence(1)
    cluster.change("t", isr=[2, 3], leader=-1)
    partition = partition_of(cluster, 0)
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert (partition.leader_id, partition.replica_nodes) == (-1, [2, 3])


def test_version_0_of_a_whole_partition_has_no_error() -> None:
    partition = partition_of(three_brokers(), 0)
    assert partition.error_code == ErrorCode.NONE
    assert (partition.leader_id, partition.replica_nodes, partition.isr_nodes) == (
        1,
        [1, 2, 3],
        [1, 2, 3],
    )


@pytest.mark.parametrize("version", [1, 5, 13])
def test_later_versions_list_every_replica_without_an_error(version: int) -> None:
    cluster = three_brokers()
    cluster.fence(3)
    partition = partition_of(cluster, version)
    assert partition.error_code == ErrorCode.NONE
    assert (partition.replica_nodes, partition.offline_replicas) == ([1, 2, 3], [3])


def described(cluster: ClusterImage) -> Any:
    """Return the first partition of topic "t" as DescribeTopicPartitions answers it."""
    services = SimpleNamespace(
        metadata=SimpleNamespace(image=cluster.image),
        authorizer=NoAuthorizer(),
        config=SimpleNamespace(integer=lambda _: 2000),
    )
    context = RequestContext(75, 0, 0, "app", "127.0.0.1", LISTENER)
    request = DescribeTopicPartitionsRequest(
        topics=[DescribeTopicPartitionsRequest.TopicRequest(name="t")],
        response_partition_limit=10,
    )
    answer = describe_topic_partitions(cast(Any, services), context, request)
    (topic,) = answer.topics
    (partition,) = topic.partitions
    return partition


def without_leader() -> ClusterImage:
    cluster = three_brokers()
    cluster.change("t", isr=[1], leader=-1)
    cluster.fence(1)
    return cluster


def test_describe_topic_partitions_has_no_error_for_a_partition_without_a_leader() -> None:
    partition = described(without_leader())
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, -1)
    assert (partition.replica_nodes, partition.offline_replicas) == ([1, 2, 3], [1])


def test_describe_topic_partitions_shows_no_leader_that_the_listener_does_not_reach() -> None:
    cluster = three_brokers()
    cluster.register(1, listener="INTERNAL")
    partition = described(cluster)
    assert (partition.error_code, partition.leader_id) == (ErrorCode.NONE, -1)


@pytest.mark.parametrize("version", [0, 1, 5, 6, 13])
def test_metadata_has_an_error_for_a_partition_without_a_leader(version: int) -> None:
    partition = partition_of(without_leader(), version)
    assert partition.error_code == ErrorCode.LEADER_NOT_AVAILABLE
    assert partition.leader_id == -1


@pytest.mark.parametrize(
    ("version", "code"),
    [(5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)],
)
def test_a_leader_without_the_listener_is_named_as_such_since_version_6(
    version: int, code: ErrorCode
) -> None:
    cluster = three_brokers()
    cluster.register(1, listener="INTERNAL")
    assert partition_of(cluster, version).error_code == code


def is_same(broker: Broker, version: int) -> bool:
    """Whether all topics are as a broker without kept bytes answers them, byte for byte."""
    answer, fresh = broker.answer(version), Broker(broker.cluster).answer(version)
    fresh.controller_id = answer.controller_id
    fresh.topics = list(fresh.topics)
    return encode(answer, version) == encode(fresh, version) and answer == fresh


@pytest.mark.parametrize("version", [0, 1, 8, 9, 12, 13])
def test_kept_topics_follow_every_change_of_topics_and_brokers(version: int) -> None:
    cluster = three_brokers()
    broker = Broker(cluster)
    cluster.create("u", [2, 3], [3, 1])
    assert is_same(broker, version)
    cluster.change("u", 1, isr=[1], leader=1)
    assert is_same(broker, version)
    cluster.fence(3)
    assert is_same(broker, version)
    cluster.delete("t")
    assert [topic.name for topic in broker.answer(version).topics] == ["u"]
    cluster.create("t", [1])
    cluster.unfence(3)
    assert is_same(broker, version)
    assert [topic.name for topic in broker.answer(version).topics] == ["u", "t"]


def test_a_topic_is_encoded_once_until_it_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[str] = []

    def noting(topic: Any, parent: Any, version: int) -> bytes:
        encoded.append(topic.name)
        return encode_struct(topic, parent, version)

    monkeypatch.setattr("spindle.serving.encoded_topics.encode_struct", noting)
    cluster = three_brokers()
    cluster.create("u", [2, 3])
    broker = Broker(cluster)
    broker.answer(13)
    broker.answer(13)
    assert encoded == ["t", "u"]
    cluster.change("u", isr=[2])
    broker.answer(13)
    assert encoded == ["t", "u", "u"]
    broker.answer(12)
    assert encoded[3:] == ["t", "u"]


def test_versions_and_deleted_topics_beyond_the_limits_are_not_kept() -> None:
    cluster = three_brokers()
    broker = Broker(cluster)
    for version in range(14):
        broker.answer(version)
    views = broker.services.encoded_topics._views
    assert [version for _, version in views] == [10, 11, 12, 13]
    cluster.delete("t")
    broker.answer(13)
    assert not views[LISTENER, 13].topics


def test_topics_that_the_sender_may_not_see_are_left_out_of_the_kept_ones() -> None:
    cluster = three_brokers()
    cluster.create("u", [2, 3])
    broker = Broker(cluster)
    broker.answer(13)
    broker.services.authorizer = SimpleNamespace(
        is_active=True, allows=lambda principal, host, operation, kind, name, **_: name == "u"
    )
    assert [topic.name for topic in broker.answer(13).topics] == ["u"]


def only(*names: str) -> Any:
    """Return an authorizer that lets clients see these topics alone."""
    return SimpleNamespace(
        is_active=True, allows=lambda principal, host, operation, kind, name, **_: name in names
    )


def test_deleted_topics_are_not_kept_for_clients_that_see_a_part_of_the_topics() -> None:
    cluster = three_brokers()
    cluster.create("u", [2, 3])
    broker = Broker(cluster)
    broker.services.authorizer = only("u", "v")
    for _ in range(3):
        cluster.create("v", [2, 3])
        broker.answer(13)
        cluster.delete("v")
    broker.answer(13)
    assert len(broker.services.encoded_topics._views[LISTENER, 13].topics) <= 2


def test_topics_of_many_clients_together_are_kept_up_to_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = three_brokers()
    cluster.create("u", [2, 3])
    broker = Broker(cluster)
    broker.services.authorizer = only("t")
    broker.answer(13)
    view = broker.services.encoded_topics._views[LISTENER, 13]
    monkeypatch.setattr("spindle.serving.encoded_topics._MAX_BYTES", view.size_bytes + 1)
    broker.services.authorizer = only("u")
    broker.answer(13)
    assert (LISTENER, 13) not in broker.services.encoded_topics._views
