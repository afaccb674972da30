"""Role changes: how a node enters each role, and how long it waits there.

`roles` defines the legal moves and the state of each role.
"""

from typing import Final

from spindle.common.ids import NO_LEADER, Endpoint
from spindle.raft.core import LAST_EPOCH, QuorumCore, QuorumFault
from spindle.raft.progress import Progress
from spindle.raft.ready import ElectionState
from spindle.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    VoteCount,
)
from spindle.raft.voters import ReplicaKey

_MAX_RETRY_EXPONENT: Final = 11
_BACKOFF_BASE_MS: Final = 50
_SOON_PART: Final = 8


def become_unattached(
    core: QuorumCore,
    epoch: int,
    now_ms: int,
    leader_id: int = NO_LEADER,
    voted_key: ReplicaKey | None = None,
) -> None:
    """Enter an epoch whose leader is not known, or cannot be reached."""
    deadline_ms = election_deadline_ms(core, now_ms)
    core.enter(Unattached(epoch, deadline_ms, leader_id, voted_key))


def become_follower(
    core: QuorumCore,
    epoch: int,
    leader_id: int,
    endpoints: tuple[Endpoint, ...],
    now_ms: int,
    voted_key: ReplicaKey | None = None,
) -> None:
    """Follow the leader of an epoch."""
    core.election_retries = 0
    deadline_ms = now_ms + core.settings.fetch_timeout_ms
    core.enter(Follower(epoch, leader_id, endpoints, deadline_ms, deadline_ms, voted_key))


def become_prospective(core: QuorumCore, now_ms: int) -> None:
    """Ask the voters whether they would elect the local node."""
    role = core.role
    core.enter(
        Prospective(
            role.epoch,
            election_deadline_ms(core, now_ms),
            _own_vote(core),
            core.leader_id,
            core.leader_endpoints,
            role.voted_key,
        ),
        is_durable=False,
    )


def become_candidate(core: QuorumCore, now_ms: int) -> None:
    """Vote for the local node in the next epoch.

    Raises:
        QuorumFault: there is no further epoch.
    """
    if core.epoch > LAST_EPOCH:
        raise QuorumFault(f"epoch {core.epoch} is the last one")
    deadline_ms = election_deadline_ms(core, now_ms)
    core.enter(Candidate(core.epoch + 1, deadline_ms, _own_vote(core), core.local.key))


def become_resigned(core: QuorumCore, candidates: list[ReplicaKey], now_ms: int) -> None:
    """Give up the leadership; `candidates` are the preferred successors, best first."""
    role = core.role
    core.enter(
        Resigned(
            role.epoch,
            election_deadline_ms(core, now_ms),
            core.local.key.id,
            [voter.key.id for voter in core.other_voters()],
            candidates,
        ),
        is_durable=False,
    )


def enter_stored_role(core: QuorumCore, now_ms: int) -> None:
    """Enter the role that the stored state asks for after a start."""
    stored = core.stored_election or ElectionState()
    deadline_ms = election_deadline_ms(core, now_ms)
    election_ms = early_election_deadline_ms(core, now_ms)
    voted = stored.voted_key
    role: Role
    if stored.epoch < core.log.last_epoch:
        role = Unattached(core.log.last_epoch, election_ms)
    elif stored.leader_id == core.local.key.id:
        remote = [voter.key.id for voter in core.other_voters()]
        # A sole voter need not wait: it may lead again at once.
        until_ms = now_ms if core.is_sole_voter else deadline_ms
        role = Resigned(stored.epoch, until_ms, core.local.key.id, remote, [])
    elif voted is not None and voted.matches(core.local.key):
        role = Candidate(stored.epoch, deadline_ms, _own_vote(core), core.local.key)
    else:
        role = _stored_follower_role(core, stored, election_ms, now_ms)
    core.enter(role)


def learn_leader(
    core: QuorumCore, leader_id: int, epoch: int, endpoints: tuple[Endpoint, ...], now_ms: int
) -> None:
    """Follow the leader that a peer has named, if the epoch or the leader is new."""
    if epoch > LAST_EPOCH:
        return
    if not endpoints and (voter := core.voters.get(leader_id)) is not None:
        endpoints = voter.endpoints
    is_known = leader_id >= 0 and leader_id != core.local.key.id
    if epoch > core.epoch:
        if is_known and endpoints:
            become_follower(core, epoch, leader_id, endpoints, now_ms)
        else:
            become_unattached(core, epoch, now_ms, leader_id if is_known else NO_LEADER)
    elif epoch == core.epoch and is_known and endpoints and not core.role.is_settled:
        become_follower(core, epoch, leader_id, endpoints, now_ms, core.role.voted_key)


def election_deadline_ms(core: QuorumCore, now_ms: int) -> int:
    """Return a time between one and two election timeouts away: candidates rarely collide."""
    timeout_ms = core.settings.election_timeout_ms
    return now_ms + timeout_ms + core.random.randrange(0, timeout_ms)


def early_election_deadline_ms(core: QuorumCore, now_ms: int) -> int:
    """Return a random early election deadline, for a node that knows of no leader.

    At random, so that nodes that ask for the same reason do not all become candidates.
    """
    spread_ms = max(1, core.settings.election_timeout_ms // _SOON_PART)
    return now_ms + core.random.randrange(0, spread_ms)


def election_backoff_ms(core: QuorumCore) -> int:
    """Return how long a rejected candidate waits: longer with every attempt, and at random."""
    core.election_retries += 1
    longest = 1 << min(_MAX_RETRY_EXPONENT, core.election_retries)
    ceiling_ms = core.settings.election_backoff_max_ms
    wait_ms = _BACKOFF_BASE_MS * core.random.randrange(1, longest + 1)
    return min(wait_ms, ceiling_ms + core.random.randrange(0, _BACKOFF_BASE_MS))


def new_leader(core: QuorumCore, granting_ids: list[int], now_ms: int) -> Leader:
    """Return the role of a leader whose epoch begins at the end of the log."""
    start_offset = core.log.end_offset
    progress = Progress(core.local.key, core.voters, start_offset, now_ms)
    return Leader(core.epoch, start_offset, granting_ids, progress, core.local.endpoints)


def _own_vote(core: QuorumCore) -> VoteCount:
    votes = VoteCount(core.voters)
    if core.is_voter:
        votes.record(core.local.key.id, True)
    return votes


def _stored_follower_role(
    core: QuorumCore, stored: ElectionState, election_ms: int, now_ms: int
) -> Role:
    leader = core.voters.get(stored.leader_id)
    if leader is not None and leader.endpoints:
        deadline_ms = now_ms + core.settings.fetch_timeout_ms
        return Follower(
            stored.epoch,
            stored.leader_id,
            leader.endpoints,
            deadline_ms,
            deadline_ms,
            stored.voted_key,
        )
    return Unattached(stored.epoch, election_ms, stored.leader_id, stored.voted_key)
