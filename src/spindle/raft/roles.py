"""The roles of a node in an epoch, each with its own state, and the moves between them.

Observers are only ever unattached or followers. KIP-595; Prospective: KIP-996.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeAlias

from spindle.common.ids import NO_LEADER, Endpoint, OffsetAndEpoch
from spindle.raft.membership_state import VoterChange
from spindle.raft.progress import Progress
from spindle.raft.voters import ReplicaKey, Voter, VoterSet


class VoteCount:
    """The answers to one round of votes or pre-votes."""

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: VoterSet) -> None:
        self._voters = voters
        self._answers: dict[int, bool] = {}

    def record(self, voter_id: int, is_granted: bool) -> None:
        """Note an answer; an answer from outside the voter set does not count."""
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


@dataclass(slots=True)
class Unattached:
    """Knows the epoch, but no leader that it can reach."""

    epoch: int
    election_deadline_ms: int
    leader_id: int = NO_LEADER
    voted_key: ReplicaKey | None = None


@dataclass(slots=True)
class Prospective:
    """Asks for pre-votes: whether it would win an election, without raising the epoch."""

    epoch: int
    election_deadline_ms: int
    votes: VoteCount
    leader_id: int = NO_LEADER
    leader_endpoints: tuple[Endpoint, ...] = ()
    voted_key: ReplicaKey | None = None


@dataclass(slots=True)
class Candidate:
    """Has voted for itself in a new epoch and asks for the others' votes."""

    epoch: int
    election_deadline_ms: int
    votes: VoteCount
    is_backing_off: bool = False


class ParkedFetch(NamedTuple):
    """A fetch that waits for records, a newer high watermark or its deadline."""

    token: int
    offset: int
    max_bytes: int
    high_watermark: int
    deadline_ms: int


@dataclass(slots=True)
class Leader:
    """Appends and serves.

    Attributes:
        progress: what the replicas have fetched; the high watermark comes from it.
        begin_deadline_ms: when each voter that does not fetch is told again who leads, by id.
        reported_voters: voters as they described themselves under kraft.version 0, by id.
        parked_fetches: by the token of their request.
        voter_change: the change of the voter set that is under way.
    """

    epoch: int
    epoch_start_offset: int
    granting_ids: list[int]
    progress: Progress
    begin_deadline_ms: dict[int, int] = field(default_factory=dict)
    reported_voters: dict[int, Voter] = field(default_factory=dict)
    parked_fetches: dict[int, ParkedFetch] = field(default_factory=dict)
    voter_change: VoterChange | None = None

    @property
    def leader_id(self) -> int:
        return self.progress.local.id


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot on its way from the leader, and how many bytes of it are here."""

    snapshot_id: OffsetAndEpoch
    position: int = 0


@dataclass(slots=True)
class Follower:
    """Fetches from the leader. Observers are followers, too, but let no fetch time out."""

    epoch: int
    leader_id: int
    leader_endpoints: tuple[Endpoint, ...]
    fetch_deadline_ms: int
    update_voter_deadline_ms: int
    voted_key: ReplicaKey | None = None
    has_fetched: bool = False
    has_updated_voter: bool = False
    snapshot: SnapshotFetch | None = None


@dataclass(slots=True)
class Resigned:
    """Led this epoch, and neither leads nor votes in it again. Asks the voters to elect."""

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
