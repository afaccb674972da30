"""The brokers' reports of a cluster: metadata, log directories, policies, the metadata quorum."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.audit.placement import ClusterPlacement, PlacedPartition, PlacedTopic
from spindle.client.admin.cluster import (
    ClusterNode,
    QuorumDescription,
    describe_brokers,
    describe_quorum,
)
from spindle.client.admin.topics import describe_topics
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import BROKER_FAILURES, ask_every_broker, log_dirs_of
from spindle.client.cluster_metadata import ClusterView, TopicView
from spindle.client.configs import describe_configs_request, described_configs
from spindle.client.log_dirs import LogDirView
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.config.resources import ConfigResourceType
from spindle.protocol.messages.describe_configs import DescribeConfigsResponse

_POLICY: Final = "cleanup.policy"
_TOPICS_AT_ONCE: Final = 500
_WAIT_MS: Final = 5_000
"""Maximum time for a broker to report its replicas."""


@dataclass(frozen=True, slots=True)
class ReportedCluster:
    """The reports of the brokers at one moment.

    Attributes:
        nodes: the registered brokers, also those that do not run, by id.
        log_dirs: the log directories of each broker, or the reason why it did not respond.
        policies: whether topics are compacted; topics whose policy is unknown are missing.
        quorum: the metadata quorum, or the reason why it is not known.
    """

    nodes: Mapping[int, ClusterNode]
    view: ClusterView
    log_dirs: Mapping[int, Sequence[LogDirView] | str]
    policies: Mapping[str, bool]
    quorum: QuorumDescription | str


def read_placement(client: WireClient) -> ClusterPlacement:
    """Query the placement of replicas. Brokers do not report directory ids.

    Raises:
        ApiError, ClientError: no broker could be queried.
    """
    view = client.metadata()
    policies = _policies(client, sorted(view.topics))
    eligible = _eligible(client, view)
    return ClusterPlacement(
        {
            topic.topic_id: _placed(topic, policies.get(topic.name), eligible)
            for topic in view.topics.values()
        }
    )


def _eligible(client: WireClient, view: ClusterView) -> dict[TopicPartition, tuple[int, ...]]:
    """Return the eligible leader replicas of the partitions without a replica in sync."""
    names = [
        topic.name
        for topic in view.topics.values()
        if any(not partition.isr for partition in topic.partitions.values())
    ]
    try:
        topics, _ = describe_topics(client, names)
    except BROKER_FAILURES:
        return {}  # the comparison works without it
    return {
        TopicPartition(topic.name, partition.partition): partition.eligible or ()
        for topic in topics
        for partition in topic.partitions
    }


def _placed(
    topic: TopicView,
    is_compacted: bool | None,
    eligible: Mapping[TopicPartition, tuple[int, ...]],
) -> PlacedTopic:
    return PlacedTopic(
        topic.name,
        topic.topic_id,
        is_compacted,
        {
            number: PlacedPartition(
                partition.replicas,
                (ZERO_UUID,) * len(partition.replicas),
                partition.isr,
                partition.leader,
                eligible.get(TopicPartition(topic.name, number), ()),
            )
            for number, partition in topic.partitions.items()
        },
    )


def read_cluster(client: WireClient) -> ReportedCluster:
    """Query all brokers of a cluster. A broker that does not respond is part of the result.

    Raises:
        ApiError, ClientError: no broker returned the brokers and topics.
    """
    nodes = describe_brokers(client).nodes
    view = client.metadata()
    answers = ask_every_broker(client, nodes, log_dirs_of, _WAIT_MS)
    return ReportedCluster(
        {node.node_id: node for node in nodes},
        view,
        {
            node_id: str(answer) if isinstance(answer, Exception) else answer
            for node_id, answer in answers.items()
        },
        _policies(client, sorted(view.topics)),
        _quorum(client),
    )


def _policies(client: WireClient, topics: Sequence[str]) -> dict[str, bool]:
    policies = {}
    for at in range(0, len(topics), _TOPICS_AT_ONCE):
        names = topics[at : at + _TOPICS_AT_ONCE]
        request = describe_configs_request(ConfigResourceType.TOPIC, names, [_POLICY])
        try:
            answer = client.retrying(lambda: client.ask(request, DescribeConfigsResponse))  # noqa: B023
        except BROKER_FAILURES:
            continue  # the checks work without it
        # A topic may be deleted between the two requests; its refusal must not hide the others.
        answer.results = [result for result in answer.results if not result.error_code]
        for name, configs in described_configs(answer).items():
            if _POLICY in configs:
                policies[name] = "compact" in (configs[_POLICY] or "")
    return policies


def _quorum(client: WireClient) -> QuorumDescription | str:
    try:
        return describe_quorum(client)
    except BROKER_FAILURES as error:
        return str(error)
