"""Leading an epoch: its first batch, appends, the high watermark, and how it begins and ends."""

from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import Endpoint
from spindle.protocol.messages.begin_quorum_epoch import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
)
from spindle.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from spindle.raft import kraft_records, requests, transitions
from spindle.raft.appends import append_control
from spindle.raft.connections import InFlight
from spindle.raft.core import LAST_EPOCH, QuorumCore
from spindle.raft.kraft_records import ControlRecord
from spindle.raft.leader_requests import refuse_parked_fetches
from spindle.raft.membership import finish_voter_change
from spindle.raft.peers import is_addressed_to, requested_partition
from spindle.raft.responses import epoch_response
from spindle.raft.roles import Leader, Resigned
from spindle.raft.voters import RECONFIGURABLE_KRAFT_VERSION, ReplicaKey, voter_endpoints

_CHECK_QUORUM_FACTOR: Final = 1.5

# ---------------------------------------------------------------- the first batch


def start_leadership(core: QuorumCore, granting_ids: list[int], now_ms: int) -> None:
    """Become leader and write the epoch's first batch."""
    role = transitions.new_leader(core, granting_ids, now_ms)
    core.enter(role)
    core.election_retries = 0
    records = [kraft_records.leader_change(core.local.key.id, core.voters.ids, granting_ids)]
    if core.history.kraft_version >= RECONFIGURABLE_KRAFT_VERSION:
        records += _membership_records(core)
    append_control(core, records, now_ms)


def _membership_records(core: QuorumCore) -> list[ControlRecord]:
    """Return the kraft.version and voters records that a new leader must append.

    They are those missing from the log or naming an old address of this node.
    """
    mine = core.local.voter
    is_member = core.is_voter
    own_record = core.voters.get(mine.key.id) if is_member else None
    voter_set = core.voters.with_voter(mine) if is_member else core.voters
    offset = core.history.voters_offset
    if offset is None or offset < 0:
        version = core.history.kraft_version
        return [kraft_records.kraft_version(version), kraft_records.voters(voter_set)]
    if own_record is not None and own_record != mine:
        return [kraft_records.voters(voter_set)]
    return []


# ---------------------------------------------------------------- begin and end of an epoch


def poll_leader(core: QuorumCore, role: Leader, now_ms: int) -> None:
    """Resign without a majority, remind silent voters, and forget old observers."""
    progress = role.progress
    if progress.needs_others:
        timeout_ms = int(core.settings.fetch_timeout_ms * _CHECK_QUORUM_FACTOR)
        deadline_ms = progress.majority_fetched_since_ms() + timeout_ms
        if now_ms >= deadline_ms:
            resign(core, role, now_ms)
            return
        core.wake_at(deadline_ms)
    if core.is_shutting_down or _is_removed(core):
        resign(core, role, now_ms)
        return
    progress.expire_observers(now_ms)
    _remind_voters(core, role, now_ms)


def _is_removed(core: QuorumCore) -> bool:
    """Return whether a committed voter set lacks the local node."""
    offset = core.history.voters_offset
    return not core.is_voter and offset is not None and core.leader_high_watermark > offset


def _remind_voters(core: QuorumCore, role: Leader, now_ms: int) -> None:
    """Send BeginQuorumEpoch to voters that have not fetched for a while."""
    period_ms = max(1, core.settings.fetch_timeout_ms // 2)
    for voter in core.other_voters():
        replica = role.progress.find(voter.key)
        due_ms = role.begin_deadline_ms.get(voter.key.id, 0)
        if replica is not None and replica.last_fetch_ms >= 0:
            due_ms = max(due_ms, replica.last_fetch_ms + period_ms)
        if now_ms >= due_ms:
            message = requests.begin_quorum_epoch_request(
                core.local.cluster_id,
                role.epoch,
                core.local.key.id,
                core.local.endpoints,
                voter.key,
            )
            if core.send_to_voter(voter, message, now_ms):
                due_ms = now_ms + period_ms
                role.begin_deadline_ms[voter.key.id] = due_ms
        if due_ms > now_ms:
            core.wake_at(due_ms)


def resign(core: QuorumCore, leader: Leader, now_ms: int) -> None:
    """Give up leadership and ask the voters to elect, those with the longest logs first."""
    transitions.become_resigned(core, leader.progress.voters_by_progress(), now_ms)


def leave_leadership(core: QuorumCore, role: Leader) -> None:
    """Refuse the requests that wait for the local node as leader: it no longer leads."""
    refuse_parked_fetches(core, role)
    finish_voter_change(
        core, role, ErrorCode.NOT_LEADER_OR_FOLLOWER, "This node is no longer the leader."
    )


def poll_resigned(core: QuorumCore, role: Resigned, now_ms: int) -> None:
    """Send EndQuorumEpoch; after an election timeout start over in the next epoch."""
    if now_ms >= role.election_deadline_ms and not core.is_shutting_down:
        if core.is_sole_voter:
            transitions.become_prospective(core, now_ms)
        else:
            transitions.become_unattached(core, role.epoch + 1, now_ms)
        return
    for voter in core.other_voters():
        if voter.key.id in role.unacknowledged_ids:
            message = requests.end_quorum_epoch_request(
                core.local.cluster_id,
                role.epoch,
                core.local.key.id,
                core.local.endpoints,
                role.preferred_candidates,
            )
            core.send_to_voter(voter, message, now_ms)
    if role.election_deadline_ms > now_ms:
        core.wake_at(role.election_deadline_ms)


def handle_end_response(role: Resigned, sent: InFlight) -> None:
    """Record that a voter has acknowledged the end of this node's leadership."""
    if sent.destination.id in role.unacknowledged_ids:
        role.unacknowledged_ids.remove(sent.destination.id)
        role.unreachable_ids.discard(sent.destination.id)


# ---------------------------------------------------------------- other leaders


def handle_begin_request(
    core: QuorumCore, token: int, request: BeginQuorumEpochRequest, now_ms: int
) -> None:
    """Follow the leader that presents itself, then check the voter that it addresses."""
    partition = requested_partition(core, request)
    error = _check_sender(core, partition.leader_id, partition.leader_epoch)
    if error is None:
        endpoints = voter_endpoints(request.leader_endpoints)
        _follow_sender(core, partition.leader_id, partition.leader_epoch, endpoints, now_ms)
        if not is_addressed_to(core, request.voter_id, partition.voter_directory_id):
            error = ErrorCode.INVALID_VOTER_KEY
    response = epoch_response(core, BeginQuorumEpochResponse, error or ErrorCode.NONE)
    core.reply(token, response)


def _check_sender(core: QuorumCore, leader_id: int, epoch: int) -> ErrorCode | None:
    if epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.INVALID_REQUEST if leader_id < 0 or epoch > LAST_EPOCH else None


def _follow_sender(
    core: QuorumCore, leader_id: int, epoch: int, endpoints: tuple[Endpoint, ...], now_ms: int
) -> None:
    role = core.role
    if (
        role.is_settled
        and (role.epoch, role.leader_id) == (epoch, leader_id)
        and leader_id != core.local.key.id
        and len(endpoints) > len(role.leader_endpoints)
    ):
        transitions.become_follower(core, epoch, leader_id, endpoints, now_ms, role.voted_key)
    else:
        transitions.learn_leader(core, leader_id, epoch, endpoints, now_ms)


def handle_end_request(
    core: QuorumCore, token: int, request: EndQuorumEpochRequest, now_ms: int
) -> None:
    """Start an election soon after the leader resigned; its first candidate starts at once."""
    partition = requested_partition(core, request)
    error = _check_sender(core, partition.leader_id, partition.leader_epoch)
    if error is None:
        endpoints = voter_endpoints(request.leader_endpoints)
        transitions.learn_leader(
            core, partition.leader_id, partition.leader_epoch, endpoints, now_ms
        )
        candidates = [
            ReplicaKey(at.candidate_id, at.candidate_directory_id)
            for at in partition.preferred_candidates
        ] or [ReplicaKey(voter_id) for voter_id in partition.preferred_successors]
        deadline_ms = now_ms + _election_delay_ms(core, candidates)
        core.role.on_leader_resigned(partition.leader_id, deadline_ms)
    response = epoch_response(core, EndQuorumEpochResponse, error or ErrorCode.NONE)
    core.reply(token, response)


def _election_delay_ms(core: QuorumCore, candidates: list[ReplicaKey]) -> int:
    longest_ms = core.settings.election_backoff_max_ms
    for position, key in enumerate(candidates):
        if key.matches(core.local.key):
            if position == 0:
                return 0
            step_ms = longest_ms >> (len(candidates) - 1)
            return min(longest_ms, step_ms << (position - 1))
    return longest_ms
