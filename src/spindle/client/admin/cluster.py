"""Cluster id and nodes, the metadata quorum, and feature levels (KIP-584, KIP-595)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import UnsupportedByPeer
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import METADATA_TOPIC
from spindle.common.uuids import Uuid
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from spindle.protocol.messages.remove_raft_voter import (
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
)
from spindle.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from spindle.protocol.messages.unregister_controller import (
    UnregisterControllerRequest,
    UnregisterControllerResponse,
)
from spindle.protocol.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


@dataclass(frozen=True, slots=True)
class ClusterNode:
    """A node of the cluster."""

    node_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster's id and nodes, in order of their ids."""

    cluster_id: str
    controller_id: int
    nodes: tuple[ClusterNode, ...]


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """A voter or observer. Times in ms since 1970, -1 if unknown."""

    node_id: int
    directory_id: Uuid
    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """The metadata quorum. `endpoints` has listener, host and port of nodes that report them."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[tuple[str, str, int], ...]]


@dataclass(frozen=True, slots=True)
class FeatureLevels:
    """The levels of a feature that the broker supports, and the finalized level (0 for none)."""

    name: str
    first: int
    last: int
    finalized: int


class UpgradeType(IntEnum):
    """The loss of metadata that a change of a level may cause."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


def describe_cluster(
    client: WireClient, *, controllers: bool = False, include_fenced: bool = False
) -> ClusterDescription:
    """Return the cluster id and the brokers, or the controllers if a controller is asked.

    Raises:
        ApiError: the node refused.
        ClientError: no node could be asked, or none can list fenced brokers.
    """
    request = DescribeClusterRequest(
        endpoint_type=_CONTROLLERS if controllers else _BROKERS,
        include_fenced_brokers=include_fenced,
    )
    first_version = 2 if include_fenced else 1 if controllers else 0
    answer = client.retrying(
        lambda: client.ask(request, DescribeClusterResponse, first_version=first_version)
    )
    raise_refusal(answer.error_code, answer.error_message)
    nodes = (ClusterNode(b.broker_id, b.host, b.port, b.rack, b.is_fenced) for b in answer.brokers)
    return ClusterDescription(
        answer.cluster_id, answer.controller_id, tuple(sorted(nodes, key=lambda n: n.node_id))
    )


def unregister_broker(client: WireClient, broker_id: int) -> None:
    """Delete the registration of a broker that will not return.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    request = UnregisterBrokerRequest(broker_id=broker_id)
    answer = client.retrying(lambda: client.ask(request, UnregisterBrokerResponse))
    raise_refusal(answer.error_code, answer.error_message)


def unregister_controller(client: WireClient, controller_id: int) -> None:
    """Remove the registration of a controller that will not come back (KIP-1312).

    Raises:
        ApiError: the cluster refused.
        UnsupportedByPeer: the node that is asked does not serve the request.
        ClientError: no node could be asked.
    """
    request = UnregisterControllerRequest(controller_id=controller_id)
    answer = client.retrying(lambda: client.ask(request, UnregisterControllerResponse))
    raise_refusal(answer.error_code, answer.error_message)


def describe_brokers(client: WireClient) -> ClusterDescription:
    """Return the cluster with its fenced brokers, if the broker that is asked can list them.

    Raises:
        ApiError: the broker refused.
        ClientError: no broker could be asked.
    """
    try:
        return describe_cluster(client, include_fenced=True)
    except UnsupportedByPeer:
        # Brokers before Kafka 4.0 know no fenced brokers in this answer.
        return describe_cluster(client)


def describe_quorum(client: WireClient) -> QuorumDescription:
    """Return the quorum of the metadata log.

    Raises:
        ApiError: the leader refused.
        ClientError: no node could be asked.
    """
    topic = DescribeQuorumRequest.TopicData
    request = DescribeQuorumRequest(
        topics=[
            topic(topic_name=METADATA_TOPIC, partitions=[topic.PartitionData(partition_index=0)])
        ]
    )

    def attempt() -> DescribeQuorumResponse:
        answer = client.ask(request, DescribeQuorumResponse)
        raise_refusal(answer.error_code, answer.error_message)
        if len(answer.topics) != 1 or len(answer.topics[0].partitions) != 1:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer is not about one partition")
        partition = answer.topics[0].partitions[0]
        raise_refusal(partition.error_code, partition.error_message)
        return answer

    answer = client.retrying(attempt)
    quorum = answer.topics[0].partitions[0]
    return QuorumDescription(
        quorum.leader_id,
        quorum.leader_epoch,
        quorum.high_watermark,
        _replicas(quorum.current_voters),
        _replicas(quorum.observers),
        {
            node.node_id: tuple(
                (listener.name, listener.host, listener.port) for listener in node.listeners
            )
            for node in answer.nodes
        },
    )


def _replicas(
    states: Sequence[DescribeQuorumResponse.TopicData.PartitionData.ReplicaState],
) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            s.replica_id,
            s.replica_directory_id,
            s.log_end_offset,
            s.last_fetch_timestamp,
            s.last_caught_up_timestamp,
        )
        for s in states
    )


def add_voter(
    client: WireClient,
    node_id: int,
    directory_id: Uuid,
    listeners: Sequence[tuple[str, str, int]],
) -> None:
    """Make a controller that follows the log a voter (KIP-853).

    Raises:
        ApiError: the leader refused.
        ClientError: no node could be asked.
    """
    request = AddRaftVoterRequest(
        cluster_id=None,
        timeout_ms=client.settings.request_timeout_ms,
        voter_id=node_id,
        voter_directory_id=directory_id,
        listeners=[
            AddRaftVoterRequest.Listener(name=name, host=host, port=port)
            for name, host, port in listeners
        ],
    )
    answer = client.retrying(lambda: client.ask(request, AddRaftVoterResponse))
    raise_refusal(answer.error_code, answer.error_message)


def remove_voter(client: WireClient, node_id: int, directory_id: Uuid) -> None:
    """Remove a controller from the voters (KIP-853).

    Raises:
        ApiError: the leader refused.
        ClientError: no node could be asked.
    """
    request = RemoveRaftVoterRequest(
        cluster_id=None, voter_id=node_id, voter_directory_id=directory_id
    )
    answer = client.retrying(lambda: client.ask(request, RemoveRaftVoterResponse))
    raise_refusal(answer.error_code, answer.error_message)


def describe_features(
    client: WireClient, node: BrokerAddress | None = None
) -> tuple[list[FeatureLevels], int]:
    """Return the features of a node, in order of their names, and the epoch (-1: none).

    Args:
        node: any node of the cluster answers if it is None.

    Raises:
        ApiError: the node refused.
        ClientError: the node could not be asked.
    """
    request = ApiVersionsRequest(client_software_name="spindle", client_software_version="1")
    answer = client.retrying(
        lambda: client.ask(request, ApiVersionsResponse, broker=node, first_version=3)
    )
    raise_refusal(answer.error_code)
    finalized = {f.name: f.max_version_level for f in answer.finalized_features}
    levels = [
        FeatureLevels(f.name, f.min_version, f.max_version, finalized.get(f.name, 0))
        for f in answer.supported_features
    ]
    return sorted(levels, key=lambda f: f.name), answer.finalized_features_epoch


def finalized_level(client: WireClient, feature: str) -> int:
    """Return the level of a feature that is in force; 0 if the broker reports none.

    Raises:
        ApiError: the broker refused.
        ClientError: no broker could be asked.
    """
    features, _ = describe_features(client)
    return next((levels.finalized for levels in features if levels.name == feature), 0)


def update_features(
    client: WireClient,
    levels: Mapping[str, int],
    upgrade_type: UpgradeType,
    *,
    validate_only: bool,
) -> None:
    """Change the levels of features, all of them or none.

    Raises:
        ApiError: the controller refused.
        ClientError: no broker could be asked.
    """
    request = UpdateFeaturesRequest(
        timeout_ms=client.settings.request_timeout_ms,
        feature_updates=[
            UpdateFeaturesRequest.FeatureUpdateKey(
                feature=name, max_version_level=level, upgrade_type=upgrade_type
            )
            for name, level in levels.items()
        ],
        validate_only=validate_only,
    )
    answer = client.retrying(lambda: client.ask(request, UpdateFeaturesResponse, first_version=1))
    raise_refusal(answer.error_code, answer.error_message)
    for result in answer.results:
        raise_refusal(result.error_code, result.error_message)
