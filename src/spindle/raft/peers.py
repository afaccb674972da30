"""The checks of cluster, epoch and leader that all messages between quorum members share."""

from collections.abc import Sequence
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import Endpoint
from spindle.common.uuids import Uuid
from spindle.raft import transitions
from spindle.raft.connections import InFlight
from spindle.raft.core import QuorumCore
from spindle.raft.requests import only_partition, response_partition
from spindle.raft.roles import Follower, Leader
from spindle.raft.voters import ReplicaKey


def check_cluster(core: QuorumCore, cluster_id: str | None) -> None:
    """Raise ApiError INCONSISTENT_CLUSTER_ID if a request names another cluster."""
    if cluster_id is not None and cluster_id != core.local.cluster_id:
        raise ApiError(ErrorCode.INCONSISTENT_CLUSTER_ID)


def requested_partition(core: QuorumCore, request: Any) -> Any:
    """Return the metadata partition of a request.

    Raises:
        ApiError: the request as a whole is wrong: it names another cluster or partition.
    """
    check_cluster(core, request.cluster_id)
    partition = only_partition(request.topics)
    if partition is None:
        raise ApiError(ErrorCode.INVALID_REQUEST)
    return partition


def is_addressed_to(core: QuorumCore, voter_id: int, directory_id: Uuid) -> bool:
    """Return whether a request is for the local node; -1 and a zero id match every voter."""
    local = core.local.key
    return ReplicaKey(local.id if voter_id == -1 else voter_id, directory_id).matches(local)


def check_leads(core: QuorumCore, epoch: int) -> Leader:
    """Return the leader's role if this node leads `epoch`.

    Raises:
        ApiError: it does not, or it is shutting down.
    """
    if epoch < core.epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if epoch > core.epoch:
        raise ApiError(ErrorCode.UNKNOWN_LEADER_EPOCH)
    leader = core.leader
    if leader is None:
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    if core.is_shutting_down:
        raise ApiError(ErrorCode.BROKER_NOT_AVAILABLE)
    return leader


def leader_named_by(
    core: QuorumCore, leader_id: int, node_endpoints: Sequence[Any]
) -> tuple[Endpoint, ...]:
    """Return the endpoint that an answer gives for the leader, as a tuple of one or none."""
    listener = core.local.controller_listener
    return tuple(
        Endpoint(listener, at.host, at.port)
        for at in node_endpoints
        if at.node_id == leader_id and at.host
    )[:1]


def apply_common_fields(core: QuorumCore, sent: InFlight, response: Any, now_ms: int) -> Any | None:
    """Apply the error, epoch and leader of a response.

    Return its partition if the caller has more to do with it, else None.
    """
    partition = response_partition(response)
    if response.error_code or partition is None:
        core.connections.back_off(sent.destination.id, now_ms)
        return None
    current = partition.current_leader if hasattr(partition, "current_leader") else partition
    error, epoch, leader_id = partition.error_code, current.leader_epoch, current.leader_id
    role = core.role
    has_leader = role.is_settled or bool(role.leader_endpoints)
    if epoch > core.epoch or (epoch == core.epoch and leader_id >= 0 and not has_leader):
        endpoints = leader_named_by(core, leader_id, response.node_endpoints)
        transitions.learn_leader(core, leader_id, epoch, endpoints, now_ms)
        if error == ErrorCode.NONE and sent.epoch == core.epoch:
            return partition if isinstance(core.role, Follower) else None
    elif error == ErrorCode.NONE:
        return None if 0 <= epoch < core.epoch else partition
    # The peer has nothing new or cannot answer now: do not ask it again at once.
    core.connections.back_off(sent.destination.id, now_ms)
    return None
