"""State, role changes and sending: what all parts of the quorum's state machine share.

The parts (votes, leader_duties, leader_requests, follower, membership) are modules of functions
over a `QuorumCore`; `quorum.Quorum` dispatches events to them.
"""

from collections import deque
from collections.abc import Sequence
from enum import Enum
from typing import Final

from spindle.common.ids import NO_LEADER, Endpoint, OffsetAndEpoch
from spindle.common.ports import RandomSource
from spindle.protocol.message import Message
from spindle.raft.connections import Connections
from spindle.raft.ready import (
    AppendBatches,
    Destination,
    ElectionState,
    Flush,
    LeaderAndEpoch,
    ReadLog,
    ReadSnapshot,
    Ready,
    Reply,
    Request,
    Truncate,
)
from spindle.raft.roles import Leader, Resigned, Role, check_move
from spindle.raft.settings import LocalNode, QuorumSettings, StoredState
from spindle.raft.voters import Voter, VoterSet

LAST_EPOCH: Final = 2**31 - 2
"""Epochs have 32 bits on the wire. An epoch that leaves no room for the next one is refused."""
_STORY_LENGTH: Final = 50
_FIRST_BOOTSTRAP_ID: Final = -2


class ShutdownState(Enum):
    """HANDING_OVER: the node was the leader when its shutdown began."""

    RUNNING = "running"
    LEAVING = "leaving"
    HANDING_OVER = "handing over"


class QuorumFault(Exception):
    """The node must leave the quorum: its log contradicts committed records."""


class QuorumCore:
    """The state of one node in the quorum.

    Attributes:
        leader: the role of the local node if it is the leader, else None.
        high_watermark: the highest one that this node has seen; a new leader does not know its own
            yet.
        shutdown: whether the node leaves the quorum in an orderly way.
        is_installing_snapshot: the disk is replacing the log by a snapshot. Nothing may be appended
            until it reports the end.
        ready: the work that the current step asks for.
        recent_roles: the last role changes, for reports of faults.
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
        self.shutdown = ShutdownState.RUNNING
        self.ready = Ready()
        self.recent_roles: deque[str] = deque(maxlen=_STORY_LENGTH)
        self.leader: Leader | None = None
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
        assert self._role is not None, "no event before StartUp"
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
    def is_shutting_down(self) -> bool:
        return self.shutdown is not ShutdownState.RUNNING

    @property
    def has_left(self) -> bool:
        """Whether a node that is shutting down may stop.

        A former leader stays until another node leads: its vote is needed, because a follower that
        has fetched from a leader grants no pre-vote (KIP-996). It need not stay if the remaining
        voters are no majority.
        """
        if self.shutdown is not ShutdownState.HANDING_OVER or self.is_sole_voter:
            return self.is_shutting_down
        role = self.role
        if isinstance(role, Resigned):
            reachable = len(self.other_voters()) - len(role.unreachable_ids)
            return reachable + self.is_voter < self.voters.majority
        return self.leader_id not in (NO_LEADER, self.local.key.id)

    @property
    def leader_id(self) -> int:
        """The leader of the current epoch; -1 if it is not known."""
        return self.role.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        role = self.role
        if role.leader_endpoints or role is self.leader:
            return role.leader_endpoints
        voter = self.voters.get(role.leader_id)
        return voter.endpoints if voter is not None else ()

    @property
    def leader_high_watermark(self) -> int:
        """The high watermark in a leader's answers: -1 until a record of its epoch is committed."""
        leader, offset = self.leader, self.high_watermark
        if leader is None or offset is None or offset <= leader.epoch_start_offset:
            return -1
        return offset

    # ------------------------------------------------------------ the role

    def enter(self, role: Role, *, is_durable: bool = True) -> None:
        """Enter a role; a durable one is stored before anything else of this step is done."""
        before = self._role
        check_move(before, role)
        self._role = role
        self.leader = role if isinstance(role, Leader) else None
        self.connections.reset()
        self.recent_roles.append(f"{type(role).__name__}({role.epoch})")
        if is_durable:
            self.ready.election_state = self._election_state()

    def announce_leader(self) -> None:
        """Add a change of the visible leader to `ready`."""
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
        """Append the batches; `Ready` carries them to the driver."""
        base_offset = self.log.end_offset
        self.log.append(base_offset, end_offset, epoch)
        self.ready.log_operations.append(AppendBatches(base_offset, end_offset, batches))

    def append_fetched(
        self, batches: bytes, end_offset: int, starts: Sequence[tuple[int, int]]
    ) -> None:
        """Append the leader's batches; `starts` are (epoch, base offset) of each."""
        base_offset = self.log.end_offset
        for epoch, offset in starts:
            self.log.epochs.assign(epoch, offset)
        self.log.end_offset = end_offset
        self.ready.log_operations.append(AppendBatches(base_offset, end_offset, batches))

    def flush(self) -> None:
        self.log.flush_started()
        self.ready.log_operations.append(Flush())

    def truncate_to(self, offset: int) -> None:
        """Truncate the log.

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
        """Store a high watermark; return True if it is higher than the last one."""
        if self.high_watermark is not None and offset <= self.high_watermark:
            return False
        self.high_watermark = offset
        self.ready.high_watermark = offset
        return True

    def voters_changed(self, offset: int, voters: VoterSet) -> None:
        """Use a voter set, which was appended at `offset`, from now on."""
        self.history.add_voters(offset, voters)
        if self.leader is not None:
            self.leader.progress.set_voters(voters)

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
        """Send a request unless the voter has an open one; return False if it has."""
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
        """Request a step at `time_ms` at the latest."""
        ready = self.ready
        if ready.wake_at_ms is None or time_ms < ready.wake_at_ms:
            ready.wake_at_ms = time_ms

    def _election_state(self) -> ElectionState:
        return ElectionState(
            self.epoch, self.leader_id, self.role.voted_key, tuple(self.voters.ids)
        )


def is_up_to_date(candidate: OffsetAndEpoch, own: OffsetAndEpoch) -> bool:
    """Return whether a candidate's log is at least as long as ours, by epoch, then by offset."""
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)
