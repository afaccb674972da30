"""The roles of a node in an epoch, each with its own state, and the moves between them.

Observers are only ever unattached or followers. KIP-595; Prospective: KIP-996.

Every role has `epoch`, `leader_id` (-1 if it is not known), `leader_endpoints` (empty if the voter
set has them), `voted_key`, and

    is_settled   True unless the node looks for the leader of its epoch or elects one
    may_vote     True if a vote may be given in this epoch
"""

from dataclasses import dataclass, field
from typing import ClassVar, Final, Literal, NamedTuple, TypeAlias

from spindle.common.ids import NO_LEADER, Endpoint, OffsetAndEpoch
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.raft.progress import Progress
from spindle.raft.voters import ReplicaKey, Voter, VoterSet


class VoteCount:
    """The answers to one round of votes or pre-votes."""

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: VoterSet) -> None:
        self._voters = voters
        self._answers: dict[int, bool] = {}

    def record(self, voter_id: int, is_granted: bool) -> None:
        """Record a response; one from outside the voter set does not count."""
        if self._voters.get(voter_id) is not None:
            self._answers[voter_id] = is_granted

    @property
    def granting_ids(self) -> list[int]:
        return [voter_id for voter_id, granted in self._answers.items() if granted]

    @property
    def unanswered_ids(self) -> list[int]:
        return [voter_id for voter_id in self._voters.ids if voter_id not in self._answers]

    @property
    def is_granted(self) -> bool:
        return len(self.granting_ids) >= self._voters.majority

    @property
    def is_rejected(self) -> bool:
        granted_or_open = len(self.granting_ids) + len(self.unanswered_ids)
        return granted_or_open < self._voters.majority


class _Role:
    """The parts that are the same in most roles."""

    __slots__ = ()
    is_settled: ClassVar[bool] = False
    may_vote: ClassVar[bool] = False

    def refuses_pre_votes(self) -> bool:
        """Return True if the node has a working leader, so that no election is due (KIP-996)."""
        return False

    def on_leader_resigned(self, leader_id: int, deadline_ms: int) -> None:
        """Elect at the deadline if this is the leader that the node follows."""


@dataclass(slots=True)
class Unattached(_Role):
    """Knows the epoch, but no leader that it can reach."""

    may_vote: ClassVar[bool] = True
    leader_endpoints: ClassVar[tuple[Endpoint, ...]] = ()

    epoch: int
    election_deadline_ms: int
    leader_id: int = NO_LEADER
    voted_key: ReplicaKey | None = None


@dataclass(slots=True)
class Prospective(_Role):
    """Asks for pre-votes: whether it would win an election, without raising the epoch."""

    may_vote: ClassVar[bool] = True

    epoch: int
    election_deadline_ms: int
    votes: VoteCount
    leader_id: int = NO_LEADER
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted_key: ReplicaKey | None = None


@dataclass(slots=True)
class Candidate(_Role):
    """Has voted for itself in a new epoch and asks for the others' votes."""

    leader_id: ClassVar[int] = NO_LEADER
    leader_endpoints: ClassVar[tuple[Endpoint, ...]] = ()
    epoch: int
    election_deadline_ms: int
    votes: VoteCount
    voted_key: ReplicaKey
    is_backing_off: bool = False


class ParkedFetch(NamedTuple):
    """A fetch that waits for records, a newer high watermark or its deadline."""

    token: int
    offset: int
    max_bytes: int
    high_watermark: int
    deadline_ms: int


@dataclass(slots=True)
class VoterChange:
    """A change of the voter set, and the request that waits for it; there is at most one (KIP-853).

    Attributes:
        stage: `probing` while the new voter's versions are asked for, `committing` once its
            record is in the log.
        offset: of that record; -1 before.
    """

    token: int
    request: AddRaftVoterRequest | RemoveRaftVoterRequest
    deadline_ms: int
    voter: Voter | None = None
    stage: Literal["probing", "committing"] = "committing"
    offset: int = -1
    is_answered: bool = False

    def is_probing(self, node_id: int) -> bool:
        """Return True if the change waits for the answer of this new voter."""
        is_new_voter = self.voter is not None and self.voter.key.id == node_id
        return self.stage == "probing" and is_new_voter


@dataclass(slots=True)
class Leader(_Role):
    """Appends and serves.

    Attributes:
        progress: what the replicas have fetched; the high watermark comes from it.
        begin_deadline_ms: when a voter that does not fetch gets BeginQuorumEpoch again, by id.
        reported_voters: voters as they described themselves under kraft.version 0, by id.
        parked_fetches: by the token of their request.
        voter_change: the running change of the voter set.
    """

    is_settled: ClassVar[bool] = True
    voted_key: ClassVar[ReplicaKey | None] = None
    epoch: int
    epoch_start_offset: int
    granting_ids: list[int]
    progress: Progress
    leader_endpoints: tuple[Endpoint, ...] = ()
    begin_deadline_ms: dict[int, int] = field(default_factory=dict)
    reported_voters: dict[int, Voter] = field(default_factory=dict)
    parked_fetches: dict[int, ParkedFetch] = field(default_factory=dict)
    voter_change: VoterChange | None = None

    @property
    def leader_id(self) -> int:
        return self.progress.local.id

    def refuses_pre_votes(self) -> bool:
        return True


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot that is being fetched from the leader, and the bytes received so far."""

    snapshot_id: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower(_Role):
    """Fetches from the leader. Observers are followers, too, but have no fetch timeout."""

    is_settled: ClassVar[bool] = True
    epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    fetch_deadline_ms: int
    update_voter_deadline_ms: int
    voted_key: ReplicaKey | None = None
    has_fetched: bool = False
    has_updated_voter: bool = False
    snapshot: SnapshotFetch | None = None

    def refuses_pre_votes(self) -> bool:
        return self.has_fetched

    def on_leader_resigned(self, leader_id: int, deadline_ms: int) -> None:
        if leader_id == self.leader_id:
            self.fetch_deadline_ms = deadline_ms


@dataclass(slots=True)
class Resigned(_Role):
    """Has led this epoch and resigned: does not lead or vote in it again. Asks for an election."""

    is_settled: ClassVar[bool] = True
    leader_endpoints: ClassVar[tuple[Endpoint, ...]] = ()
    voted_key: ClassVar[ReplicaKey | None] = None
    epoch: int
    election_deadline_ms: int
    leader_id: int
    unacknowledged_ids: list[int]
    preferred_candidates: list[ReplicaKey]
    unreachable_ids: set[int] = field(default_factory=set)


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned

SAME_EPOCH: Final = 0
HIGHER_EPOCH: Final = 1

LEGAL_MOVES: Final[dict[tuple[type[Role], type[Role]], int]] = {
    (Unattached, Unattached): SAME_EPOCH,
    (Unattached, Prospective): SAME_EPOCH,
    (Unattached, Follower): SAME_EPOCH,
    (Prospective, Unattached): SAME_EPOCH,
    (Prospective, Candidate): HIGHER_EPOCH,
    (Prospective, Follower): SAME_EPOCH,
    (Candidate, Unattached): HIGHER_EPOCH,
    (Candidate, Prospective): SAME_EPOCH,
    (Candidate, Leader): SAME_EPOCH,
    (Candidate, Follower): SAME_EPOCH,
    (Leader, Unattached): HIGHER_EPOCH,
    (Leader, Follower): HIGHER_EPOCH,
    (Leader, Resigned): SAME_EPOCH,
    (Follower, Unattached): HIGHER_EPOCH,
    (Follower, Prospective): SAME_EPOCH,
    (Follower, Follower): SAME_EPOCH,
    (Resigned, Unattached): HIGHER_EPOCH,
    (Resigned, Prospective): SAME_EPOCH,
    (Resigned, Follower): HIGHER_EPOCH,
}
"""The legal moves, and by how much the epoch must rise at least; every other move is a bug."""

FIRST_ROLES: Final[tuple[type[Role], ...]] = (Unattached, Candidate, Follower, Resigned)
"""The roles in which a node may start."""


class IllegalMove(Exception):
    """The state machine made a role change that is not legal: a bug, never a peer's fault."""


def check_move(before: Role | None, after: Role) -> None:
    """Refuse a role change that is not in the table.

    Raises:
        IllegalMove: the move is not there, or the epoch does not rise as it must.
    """
    if before is None:
        if not isinstance(after, FIRST_ROLES):
            raise IllegalMove(f"a node cannot start as {type(after).__name__}")
        return
    rise = LEGAL_MOVES.get((type(before), type(after)))
    if rise is None or after.epoch < before.epoch + rise:
        raise IllegalMove(
            f"{type(before).__name__} of epoch {before.epoch} "
            f"to {type(after).__name__} of epoch {after.epoch}"
        )
