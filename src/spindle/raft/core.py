"""State, role changes and sending: what all parts of the quorum's state machine share.

The parts (votes, leadership, serving, following, membership) are modules of functions over a
`QuorumCore`; `quorum.Quorum` dispatches events to them.
"""

from collections import deque
from collections.abc import Sequence
from typing import Final

from spindle.common.ids import NO_LEADER, Endpoint, OffsetAndEpoch
from spindle.common.ports import RandomSource
from spindle.protocol.message import Message
from spindle.raft.connections import Connections
from spindle.raft.election_state import ElectionState
from spindle.raft.leader import LeaderAndEpoch
from spindle.raft.ready import (
    AppendBatches,
    Destination,
    Flush,
    ReadLog,
    ReadSnapshot,
    Ready,
    Reply,
    Request,
    Truncate,
)
from spindle.raft.roles import (
    Candidate,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    check_move,
)
from spindle.raft.settings import LocalNode, QuorumSettings, StoredState
from spindle.raft.voters import ReplicaKey, Voter, VoterSet

LAST_EPOCH: Final = 2**31 - 2
"""Epochs have 32 bits on the wire. An epoch that leaves no room for the next one is refused."""
_STORY_LENGTH: Final = 50
_FIRST_BOOTSTRAP_ID: Final = -2


class QuorumFault(Exception):
    """The node must leave the quorum: its log contradicts committed records."""


class QuorumCore:
    """The state of one node in the quorum.

    Attributes:
        high_watermark: the highest one ever learned; a new leader's own may be unknown yet.
        is_handing_over: the local node was the leader when it was told to shut down.
        is_installing_snapshot: the disk replaces the log by a snapshot. Until that is reported
            nothing may be appended, in any role.
        ready: the work that the current step asks for.
        story: the last role changes, for reports of faults.
    """

    def __init__(
        self, local: LocalNode, settings: QuorumSettings, random: RandomSource, stored: StoredState
    ) -> None:
        self.local = local
        self.settings = settings
        self.random = random
        self.log = stored.log
        self.history = stored.history
        self.stored_election = stored.election
        self.high_watermark: int | None = None
        self.connections = Connections(settings.request_timeout_ms, settings.retry_backoff_ms)
        self.election_retries = 0
        self.is_installing_snapshot = False
        self.is_shutting_down = False
        self.is_handing_over = False
        self.ready = Ready()
        self.story: deque[str] = deque(maxlen=_STORY_LENGTH)
        self._role: Role | None = None
        self._announced = LeaderAndEpoch()
        self._bootstrap = [
            Destination(_FIRST_BOOTSTRAP_ID - index, at.host, at.port)
            for index, at in enumerate(settings.bootstrap_servers)
            if at not in local.endpoints
        ]

    # ------------------------------------------------------------ what is known

    @property
    def role(self) -> Role:
        assert self._role is not None, "the first event is Start"
        return self._role

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def voters(self) -> VoterSet:
        return self.history.voters

    @property
    def is_voter(self) -> bool:
        return self.voters.contains(self.local.key)

    @property
    def is_sole_voter(self) -> bool:
        return self.voters.is_only_voter(self.local.key)

    @property
    def has_left(self) -> bool:
        """Whether a node that is shutting down may go.

        A former leader stays until another node leads: its vote is needed, because a follower that
        has fetched from a leader grants no pre-vote (KIP-996). It need not stay if the voters that
        are left are no majority.
        """
        if not self.is_handing_over or self.is_sole_voter:
            return self.is_shutting_down
        role = self.role
        if isinstance(role, Resigned):
            reachable = len(self.other_voters()) - len(role.unreachable_ids)
            return reachable + self.is_voter < self.voters.majority
        return self.leader_id not in (NO_LEADER, self.local.key.id)

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch; -1 if it is not known."""
        role = self.role
        return NO_LEADER if isinstance(role, Candidate) else role.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        role = self.role
        if isinstance(role, Leader):
            return self.local.endpoints
        if isinstance(role, Follower | Prospective) and role.leader_endpoints:
            return role.leader_endpoints
        voter = self.voters.get(self.leader_id)
        return voter.endpoints if voter is not None else ()

    @property
    def leader_high_watermark(self) -> int:
        """The high watermark in a leader's answers: -1 until a record of its epoch is committed."""
        role = self.role
        known = self.high_watermark
        if isinstance(role, Leader) and known is not None and known > role.epoch_start_offset:
            return known
        return -1

    # ------------------------------------------------------------ the role

    def enter(self, role: Role, *, is_durable: bool = True) -> None:
        """Take up a role; a durable one is stored before anything else of this step is done."""
        before = self._role
        check_move(before, role)
        self._role = role
        self.connections.reset()
        self.story.append(f"{type(role).__name__}({role.epoch})")
        if is_durable:
            self.ready.election_state = self._election_state()

    @property
    def voted_key(self) -> ReplicaKey | None:
        """The vote given in this epoch."""
        role = self.role
        if isinstance(role, Candidate):
            return self.local.key
        if isinstance(role, Unattached | Prospective | Follower):
            return role.voted_key
        return None

    def announce_leader(self) -> None:
        """Put a change of the visible leader into `ready`."""
        leader_id = self.leader_id
        if leader_id == self.local.key.id and self.leader_high_watermark < 0:
            leader_id = NO_LEADER
        visible = LeaderAndEpoch(leader_id, self.epoch)
        if visible != self._announced:
            self._announced = visible
            self.ready.leader = visible

    @property
    def visible_leader(self) -> LeaderAndEpoch:
        """The leader as it was last announced."""
        return self._announced

    # ------------------------------------------------------------ the log

    def append(self, batches: bytes, end_offset: int, epoch: int) -> None:
        """Hand out an append at the end of the log."""
        base_offset = self.log.end_offset
        self.log.append(base_offset, end_offset, epoch)
        self.ready.log_operations.append(AppendBatches(base_offset, end_offset, batches))

    def append_fetched(
        self, batches: bytes, end_offset: int, starts: Sequence[tuple[int, int]]
    ) -> None:
        """Hand out an append of the leader's batches; `starts` are (epoch, base offset) of each."""
        base_offset = self.log.end_offset
        for epoch, offset in starts:
            self.log.epochs.assign(epoch, offset)
        self.log.end_offset = end_offset
        self.ready.log_operations.append(AppendBatches(base_offset, end_offset, batches))

    def flush(self) -> None:
        self.log.flush_started()
        self.ready.log_operations.append(Flush())

    def truncate_to(self, offset: int) -> None:
        """Hand out a truncation.

        Raises:
            QuorumFault: committed records would be lost.
        """
        if self.high_watermark is not None and offset < self.high_watermark:
            raise QuorumFault(
                f"the leader of epoch {self.epoch} asks to truncate to offset {offset}, "
                f"but everything below {self.high_watermark} is committed"
            )
        self.log.truncate_to(offset)
        self.history.truncate_to(offset)
        self.ready.log_operations.append(Truncate(offset))

    def raise_high_watermark(self, offset: int) -> bool:
        """Note a high watermark; True if it is higher than the last one."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.ready.high_watermark = offset
        return True

    def voters_changed(self, offset: int, voters: VoterSet) -> None:
        """Put a voter set into force that was appended at `offset`."""
        self.history.add_voters(offset, voters)
        if isinstance(self.role, Leader):
            self.role.progress.set_voters(voters)

    # ------------------------------------------------------------ messages

    def other_voters(self) -> list[Voter]:
        is_voter = self.is_voter
        return [
            voter for voter in self.voters if not (is_voter and voter.key.id == self.local.key.id)
        ]

    def destination(self, node_id: int, endpoints: Sequence[Endpoint]) -> Destination | None:
        """Return the address of a node: its default controller listener, else its first one."""
        for endpoint in endpoints:
            if endpoint.listener == self.local.controller_listener:
                return Destination(node_id, endpoint.host, endpoint.port)
        return Destination(node_id, endpoints[0].host, endpoints[0].port) if endpoints else None

    def known_peers(self) -> list[Destination]:
        """Return every node that may know the leader."""
        peers = list(self._bootstrap)
        for voter in self.other_voters():
            destination = self.destination(voter.key.id, voter.endpoints)
            if destination is not None:
                peers.append(destination)
        return peers

    def send(self, destination: Destination, message: Message, now_ms: int) -> None:
        request_id = self.connections.sent(destination, message, self.epoch, now_ms)
        self.ready.requests.append(Request(request_id, destination, message))
        self.wake_at(self.connections.next_time_ms(destination.id))

    def send_to_voter(self, voter: Voter, message: Message, now_ms: int) -> bool:
        """Send if nothing is under way to the voter; False if something is."""
        if not self.connections.is_ready(voter.key.id, now_ms):
            self.wake_at(self.connections.next_time_ms(voter.key.id))
            return False
        destination = self.destination(voter.key.id, voter.endpoints)
        if destination is None:
            return False
        self.send(destination, message, now_ms)
        return True

    def reply(
        self, token: int, response: Message, read: ReadLog | ReadSnapshot | None = None
    ) -> None:
        self.ready.replies.append(Reply(token, response, read))

    def wake_at(self, time_ms: int) -> None:
        """Ask for a step at `time_ms` at the latest."""
        ready = self.ready
        if ready.wake_at_ms is None or time_ms < ready.wake_at_ms:
            ready.wake_at_ms = time_ms

    def _election_state(self) -> ElectionState:
        return ElectionState(self.epoch, self.leader_id, self.voted_key, tuple(self.voters.ids))


def is_same_candidate(stored: ReplicaKey, candidate: ReplicaKey) -> bool:
    """Return whether a vote was given to this candidate; one without a directory id fits any."""
    return stored.id == candidate.id and stored.directory_id in (bytes(16), candidate.directory_id)


def is_up_to_date(candidate: OffsetAndEpoch, own: OffsetAndEpoch) -> bool:
    """Return whether a candidate's log reaches at least as far: by epoch, then by offset."""
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)
