"""The checks of cluster, epoch and leader that all messages between quorum members share."""

from collections.abc import Sequence
from typing import Any

from spindle.common.errors import ErrorCode
from spindle.common.ids import Endpoint
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.raft import transitions
from spindle.raft.connections import InFlight
from spindle.raft.core import QuorumCore
from spindle.raft.requests import only_partition
from spindle.raft.roles import Follower, Leader, Prospective, Resigned


def check_request(core: QuorumCore, cluster_id: str | None, partition: Any) -> ErrorCode | None:
    """Return the error of a request as a whole; None if it names this cluster and partition."""
    if cluster_id is not None and cluster_id != core.local.cluster_id:
        return ErrorCode.INCONSISTENT_CLUSTER_ID
    return ErrorCode.INVALID_REQUEST if partition is None else None


def is_addressed_to(core: QuorumCore, voter_id: int, directory_id: Uuid) -> bool:
    """Return whether a request is for the local node; -1 and zero ids address every voter."""
    local = core.local.key
    if voter_id not in (-1, local.id):
        return False
    return directory_id in (ZERO_UUID, local.directory_id)


def check_leader_request(core: QuorumCore, epoch: int) -> ErrorCode | None:
    """Return the error of a request to the leader of `epoch`; None if this node leads it."""
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if epoch > core.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if not isinstance(core.role, Leader):
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return ErrorCode.BROKER_NOT_AVAILABLE if core.is_shutting_down else None


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


def rest_of_answer(core: QuorumCore, sent: InFlight, response: Any, now_ms: int) -> Any | None:
    """Return the partition of an answer about epochs, if it says more than all answers do."""
    partition = only_partition(response.topics)
    if response.error_code or partition is None:
        core.connections.back_off(sent.destination.id, now_ms)
        return None
    endpoints = leader_named_by(core, partition.leader_id, response.node_endpoints)
    if handle_common_response(core, sent, partition, endpoints, now_ms):
        return None
    return partition


def handle_common_response(
    core: QuorumCore,
    sent: InFlight,
    partition: Any,
    endpoints: tuple[Endpoint, ...],
    now_ms: int,
) -> bool:
    """Follow an answer's epoch, leader and error; return True if the answer says nothing more."""
    current = partition.current_leader if hasattr(partition, "current_leader") else partition
    error, epoch, leader_id = partition.error_code, current.leader_epoch, current.leader_id
    if epoch > core.epoch or (epoch == core.epoch and leader_id >= 0 and not _has_leader(core)):
        transitions.learn_leader(core, leader_id, epoch, endpoints, now_ms)
        if error == ErrorCode.NONE and sent.epoch == core.epoch:
            return not isinstance(core.role, Follower)
        core.connections.back_off(sent.destination.id, now_ms)
        return True
    if error == ErrorCode.NONE:
        return bool(0 <= epoch < core.epoch)
    # The peer has nothing new or cannot answer now: do not ask it again at once.
    core.connections.back_off(sent.destination.id, now_ms)
    return True


def _has_leader(core: QuorumCore) -> bool:
    """Return whether the node knows the leader of its epoch without asking."""
    role = core.role
    if isinstance(role, Prospective):
        return bool(role.leader_endpoints)
    return isinstance(role, Leader | Follower | Resigned)
