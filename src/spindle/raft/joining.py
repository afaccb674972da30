"""Membership requests of a follower: update its voter record, or join the voters.

A voter whose endpoints or supported versions differ from the recorded ones reports it to the leader
(KIP-853). A controller that is an observer may add itself, after removing the record of its id with
a lost directory (KIP-1186).
"""

from spindle.protocol.message import Message
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.raft import requests
from spindle.raft.core import QuorumCore
from spindle.raft.roles import Follower
from spindle.raft.voters import RECONFIGURABLE_KRAFT_VERSION


def poll_membership(core: QuorumCore, role: Follower, now_ms: int) -> bool:
    """Send a due membership request to the leader; return True if sent: no fetch is sent then."""
    message = _due_request(core, role)
    if message is None:
        return False
    if now_ms < role.update_voter_deadline_ms:
        core.wake_at(role.update_voter_deadline_ms)
        return False
    leader = core.destination(role.leader_id, role.leader_endpoints)
    if leader is None or not core.connections.is_ready(leader.id, now_ms):
        return False
    core.send(leader, message, now_ms)
    role.update_voter_deadline_ms = now_ms + core.settings.fetch_timeout_ms
    return True


def _due_request(core: QuorumCore, role: Follower) -> Message | None:
    local = core.local
    recorded = core.voters.get(local.key.id)
    is_reconfigurable = core.history.kraft_version >= RECONFIGURABLE_KRAFT_VERSION
    if core.is_voter:
        is_known = is_reconfigurable and recorded == local.voter
        if is_known or role.has_updated_voter or not local.endpoints:
            return None
        return requests.update_voter_request(local.cluster_id, role.epoch, local.voter)
    if not (core.settings.auto_join and local.can_vote and is_reconfigurable and role.has_fetched):
        return None
    if recorded is not None:
        return RemoveRaftVoterRequest(
            cluster_id=local.cluster_id,
            voter_id=recorded.key.id,
            voter_directory_id=recorded.key.directory_id,
        )
    return requests.add_voter_request(
        local.cluster_id, core.settings.request_timeout_ms, local.voter
    )
