"""The leader's view of the replicas: what each has fetched, and what is committed (KIP-595).

A fetch offset acknowledges everything before it. The leader's own vote is its flushed log end.
"""

from dataclasses import dataclass
from typing import Final

from spindle.common.uuids import ZERO_UUID
from spindle.raft.voters import ReplicaKey, VoterSet

OBSERVER_SESSION_MS: Final = 300_000
UNKNOWN: Final = -1


@dataclass(slots=True)
class ReplicaProgress:
    """One follower or observer.

    Attributes:
        end_offset: its last fetch offset; -1 before its first fetch in this epoch.
        last_fetch_ms: time of that fetch; -1 for none.
        last_caught_up_ms: time of the last fetch that reached the leader's end offset of the
            previous fetch.
        leader_end_at_last_fetch: the leader's end offset at that fetch.
    """

    key: ReplicaKey
    end_offset: int = UNKNOWN
    last_fetch_ms: int = UNKNOWN
    last_caught_up_ms: int = UNKNOWN
    leader_end_at_last_fetch: int = UNKNOWN

    def fetched(self, offset: int, leader_end_offset: int, now_ms: int) -> None:
        if offset >= leader_end_offset:
            self.last_caught_up_ms = now_ms
        elif 0 <= self.leader_end_at_last_fetch <= offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
        self.end_offset = max(self.end_offset, offset)
        self.last_fetch_ms = now_ms
        self.leader_end_at_last_fetch = leader_end_offset


class Progress:
    """The progress of all replicas in one epoch, and the high watermark computed from it."""

    __slots__ = ("_observers", "_replicas", "_since_ms", "epoch_start_offset", "local", "voters")

    def __init__(
        self, local: ReplicaKey, voters: VoterSet, epoch_start_offset: int, now_ms: int
    ) -> None:
        self.local = local
        self.epoch_start_offset = epoch_start_offset
        self._replicas: dict[int, ReplicaProgress] = {}
        self._observers: dict[ReplicaKey, ReplicaProgress] = {}
        self._since_ms = now_ms
        self.voters = VoterSet()
        self.set_voters(voters)

    def set_voters(self, voters: VoterSet) -> None:
        """Use a new voter set: removed voters become observers, added ones keep their progress."""
        for voter_id, replica in list(self._replicas.items()):
            voter = voters.get(voter_id)
            if voter is not None and replica.key.directory_id == ZERO_UUID:
                replica.key = voter.key  # with kraft.version 1 the voters' directories are known
            if voter is None or voter.key != replica.key:
                del self._replicas[voter_id]
                if replica.last_fetch_ms >= 0:
                    self._observers[replica.key] = replica
        for voter in voters:
            if voter.key.id not in self._replicas:
                known = self._observers.pop(voter.key, None)
                self._replicas[voter.key.id] = known or ReplicaProgress(voter.key)
        self.voters = voters

    @property
    def voter_replicas(self) -> list[ReplicaProgress]:
        return [self._replicas[voter_id] for voter_id in self.voters.ids]

    @property
    def observers(self) -> list[ReplicaProgress]:
        return list(self._observers.values())

    def find(self, key: ReplicaKey) -> ReplicaProgress | None:
        if self.voters.contains(key):
            return self._replicas[key.id]
        return self._observers.get(key)

    def fetched(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_ms: int) -> None:
        """Record a replica's fetch from `offset`: it has everything before."""
        replica = self.find(key)
        if replica is None:
            replica = self._observers[key] = ReplicaProgress(key)
        replica.fetched(offset, leader_end_offset, now_ms)

    def expire_observers(self, now_ms: int) -> None:
        for key, replica in list(self._observers.items()):
            if now_ms - replica.last_fetch_ms >= OBSERVER_SESSION_MS:
                del self._observers[key]

    def committed_offset(self, flushed_offset: int) -> int | None:
        """Return the offset up to which a majority has the log; None before a record of this epoch.

        Records of earlier epochs count as committed only through a record of this epoch.
        """
        is_voter = self._is_local_voter()
        ends = sorted(
            (
                flushed_offset
                if is_voter and replica.key.id == self.local.id
                else replica.end_offset
                for replica in self.voter_replicas
            ),
            reverse=True,
        )
        if not ends:
            return None
        offset = ends[len(ends) // 2]
        return offset if offset > self.epoch_start_offset else None

    def majority_fetched_since_ms(self) -> int:
        """Return the latest time at which a majority, this leader included, had fetched."""
        times = sorted(
            (max(replica.last_fetch_ms, self._since_ms) for replica in self._remote_voters()),
            reverse=True,
        )
        needed = self.voters.majority - (1 if self._is_local_voter() else 0)
        return times[needed - 1] if 0 < needed <= len(times) else self._since_ms

    @property
    def needs_others(self) -> bool:
        """Whether the leader alone is no majority."""
        return self.voters.majority > (1 if self._is_local_voter() else 0)

    def voters_by_progress(self) -> list[ReplicaKey]:
        """Return the other voters, the one with the longest log first."""
        ordered = sorted(self._remote_voters(), key=lambda replica: -replica.end_offset)
        return [replica.key for replica in ordered]

    def _remote_voters(self) -> list[ReplicaProgress]:
        is_voter = self._is_local_voter()
        return [
            replica
            for replica in self.voter_replicas
            if not (is_voter and replica.key.id == self.local.id)
        ]

    def _is_local_voter(self) -> bool:
        return self.voters.contains(self.local)
