"""Elections: pre-votes, votes, and the responses to both (KIP-595, KIP-996)."""

from spindle.common.errors import ErrorCode
from spindle.common.ids import OffsetAndEpoch
from spindle.protocol.messages.vote import VoteRequest, VoteResponse
from spindle.raft import requests, transitions
from spindle.raft.core import LAST_EPOCH, QuorumCore, is_up_to_date
from spindle.raft.leader_duties import start_leadership
from spindle.raft.peers import is_addressed_to, requested_partition
from spindle.raft.responses import epoch_response
from spindle.raft.roles import Candidate, Prospective, Unattached
from spindle.raft.voters import ReplicaKey

# ---------------------------------------------------------------- asked for a vote


def handle_vote_request(core: QuorumCore, token: int, request: VoteRequest, now_ms: int) -> None:
    """Grant or refuse a vote, after moving to the candidate's epoch if it is newer."""
    partition = requested_partition(core, request)
    error = _check_vote(core, partition)
    if error is None and partition.replica_epoch > core.epoch:
        transitions.become_unattached(core, partition.replica_epoch, now_ms)
    if error is None and not is_addressed_to(core, request.voter_id, partition.voter_directory_id):
        error = ErrorCode.INVALID_VOTER_KEY
    is_granted = False
    if error is None:
        candidate = ReplicaKey(partition.replica_id, partition.replica_directory_id)
        log_end = OffsetAndEpoch(partition.last_offset, partition.last_offset_epoch)
        is_granted = can_grant(core, candidate, log_end, is_pre_vote=partition.pre_vote)
        role = core.role
        if is_granted and not partition.pre_vote and role.voted_key is None:
            transitions.become_unattached(core, role.epoch, now_ms, voted_key=candidate)
    code = error or ErrorCode.NONE
    core.reply(token, epoch_response(core, VoteResponse, code, vote_granted=is_granted))


def can_grant(
    core: QuorumCore, candidate: ReplicaKey, log_end: OffsetAndEpoch, *, is_pre_vote: bool
) -> bool:
    """Return whether the local node grants its vote or pre-vote in the current epoch."""
    role = core.role
    is_fit = is_up_to_date(log_end, core.log.end)
    if is_pre_vote:
        return is_fit and not role.refuses_pre_votes()
    if not role.may_vote:
        return False
    if role.voted_key is not None:
        return role.voted_key.matches(candidate)
    return role.leader_id < 0 and is_fit


def _check_vote(
    core: QuorumCore, partition: VoteRequest.TopicData.PartitionData
) -> ErrorCode | None:
    newest = partition.replica_epoch if partition.pre_vote else partition.replica_epoch - 1
    if (
        partition.last_offset < 0
        or partition.last_offset_epoch < 0
        or partition.last_offset_epoch > newest
        or partition.replica_epoch > LAST_EPOCH
    ):
        return ErrorCode.INVALID_REQUEST
    if partition.replica_epoch < core.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if partition.replica_id < 0:
        return ErrorCode.INVALID_REQUEST
    return None


# ---------------------------------------------------------------- asking for votes


def poll_unattached(core: QuorumCore, role: Unattached, now_ms: int) -> None:
    """Become prospective when the election timeout is over; a sole voter need not wait."""
    if not core.is_voter or core.is_shutting_down or core.is_installing_snapshot:
        return
    if core.is_sole_voter or now_ms >= role.election_deadline_ms:
        transitions.become_prospective(core, now_ms)
    else:
        core.wake_at(role.election_deadline_ms)


def poll_prospective(core: QuorumCore, role: Prospective, now_ms: int) -> None:
    """Become candidate after enough pre-votes; give up after a refusal or at the deadline."""
    if role.votes.is_granted:
        transitions.become_candidate(core, now_ms)
    elif role.votes.is_rejected or now_ms >= role.election_deadline_ms:
        if role.leader_id >= 0 and role.leader_endpoints:
            transitions.become_follower(
                core, role.epoch, role.leader_id, role.leader_endpoints, now_ms, role.voted_key
            )
        else:
            transitions.become_unattached(core, role.epoch, now_ms, role.leader_id, role.voted_key)
    else:
        core.wake_at(role.election_deadline_ms)
        _ask_for_votes(core, role, now_ms, is_pre_vote=True)


def poll_candidate(core: QuorumCore, role: Candidate, now_ms: int) -> None:
    """Become leader after enough votes; after a refusal or at the deadline, try again later."""
    if role.votes.is_granted and not role.is_backing_off:
        start_leadership(core, role.votes.granting_ids, now_ms)
        return
    if now_ms >= role.election_deadline_ms:
        if not role.is_backing_off:
            core.election_retries += 1
        transitions.become_prospective(core, now_ms)
        return
    if not role.is_backing_off:
        if role.votes.is_rejected:
            role.is_backing_off = True
            role.election_deadline_ms = now_ms + transitions.election_backoff_ms(core)
        else:
            _ask_for_votes(core, role, now_ms, is_pre_vote=False)
    core.wake_at(role.election_deadline_ms)


def _ask_for_votes(
    core: QuorumCore, role: Prospective | Candidate, now_ms: int, *, is_pre_vote: bool
) -> None:
    if core.is_shutting_down:
        return
    for voter_id in role.votes.unanswered_ids:
        voter = core.voters.get(voter_id)
        if voter is not None:
            message = requests.vote_request(
                core.local.cluster_id,
                role.epoch,
                core.local.key,
                voter.key,
                core.log.end,
                is_pre_vote=is_pre_vote,
            )
            core.send_to_voter(voter, message, now_ms)


def handle_vote_unsupported(role: Prospective) -> None:
    """Count a voter that does not support pre-votes as granting one."""
    for voter_id in role.votes.unanswered_ids:
        role.votes.record(voter_id, True)
