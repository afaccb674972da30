"""The voters of the quorum and how their set changes with the log (KIP-595, KIP-853).

Under kraft.version 0 the voters come from the configuration and are known by id. Under
kraft.version 1 a voter is an id *and* the id of its metadata directory: a node whose disk was
replaced is another voter. A set takes effect when its record is appended, not when it is committed,
so the history keeps every set with its offset until the log can no longer be truncated below it.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from spindle.common.ids import Endpoint
from spindle.common.uuids import ZERO_UUID, Uuid, uuid_text

FIRST_KRAFT_VERSION: Final = 0
RECONFIGURABLE_KRAFT_VERSION: Final = 1


class ReplicaKey(NamedTuple):
    """A replica of the metadata log. The zero directory id stands for "not known"."""

    id: int
    directory_id: Uuid = ZERO_UUID

    def matches(self, other: "ReplicaKey") -> bool:
        """Return True if this key names the other one; a zero directory id names any."""
        return self.id == other.id and self.directory_id in (ZERO_UUID, other.directory_id)

    def __str__(self) -> str:
        directory = (
            uuid_text(self.directory_id) if self.directory_id != ZERO_UUID else "<undefined>"
        )
        return f"ReplicaKey(id={self.id}, directoryId={directory})"


def voter_endpoints(rows: Iterable[Any]) -> tuple[Endpoint, ...]:
    """Return listeners in the form of the quorum's messages and records: name, host and port."""
    return tuple(Endpoint(row.name, row.host, row.port) for row in rows)


class KRaftVersionRange(NamedTuple):
    """The kraft.version levels that a node can run."""

    min_version: int = FIRST_KRAFT_VERSION
    max_version: int = RECONFIGURABLE_KRAFT_VERSION


class Voter(NamedTuple):
    """A voter and where its controller listeners are reached, the default listener first."""

    key: ReplicaKey
    endpoints: tuple[Endpoint, ...] = ()
    versions: KRaftVersionRange = KRaftVersionRange()

    def endpoint(self, listener: str) -> Endpoint | None:
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


class VoterSet:
    """An immutable set of voters with distinct node ids, in the order of their record."""

    __slots__ = ("_by_id",)

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id: dict[int, Voter] = {}
        for voter in voters:
            if voter.key.id in self._by_id:
                raise ValueError(f"voter {voter.key.id} appears twice")
            self._by_id[voter.key.id] = voter

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self._by_id == other._by_id

    def __hash__(self) -> int:
        return hash(frozenset(self._by_id.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._by_id.values())!r})"

    @property
    def ids(self) -> list[int]:
        return list(self._by_id)

    @property
    def keys(self) -> list[ReplicaKey]:
        return [voter.key for voter in self._by_id.values()]

    @property
    def majority(self) -> int:
        """The number of voters that form a majority."""
        return len(self._by_id) // 2 + 1

    def get(self, voter_id: int) -> Voter | None:
        return self._by_id.get(voter_id)

    def contains(self, key: ReplicaKey) -> bool:
        """Return whether the key is a voter's; a zero directory id in the set matches any."""
        voter = self._by_id.get(key.id)
        return voter is not None and voter.key.matches(key)

    def is_only_voter(self, key: ReplicaKey) -> bool:
        return len(self._by_id) == 1 and self.contains(key)

    def with_voter(self, voter: Voter) -> "VoterSet":
        """Return the set with a voter added, or the voter of that id replaced in its place."""
        voters = dict(self._by_id)
        voters[voter.key.id] = voter
        return VoterSet(voters.values())

    def without(self, key: ReplicaKey) -> "VoterSet":
        return VoterSet(voter for voter in self if voter.key != key)


class VoterHistory:
    """Voter sets and kraft.version levels by the offset of their records.

    Attributes:
        static_voters: the set of the configuration, in force while the log has none.
    """

    __slots__ = ("_sets", "_versions", "static_voters")

    def __init__(self, static_voters: VoterSet) -> None:
        self.static_voters = static_voters
        self._sets: list[tuple[int, VoterSet]] = []
        self._versions: list[tuple[int, int]] = []

    @property
    def voters(self) -> VoterSet:
        return self._sets[-1][1] if self._sets else self.static_voters

    @property
    def ignores_static_voters(self) -> bool:
        """Whether voters are configured, but those of the log are in force (KIP-853)."""
        return bool(self._sets) and len(self.static_voters) > 0

    @property
    def kraft_version(self) -> int:
        return self._versions[-1][1] if self._versions else FIRST_KRAFT_VERSION

    @property
    def voters_offset(self) -> int | None:
        """Offset of the record of the current set; None for the configured one."""
        return self._sets[-1][0] if self._sets else None

    def voters_before(self, offset: int) -> VoterSet:
        """Return the set that was in force when everything below `offset` had been written."""
        at = bisect_right(self._sets, offset - 1, key=lambda entry: entry[0])
        return self._sets[at - 1][1] if at else self.static_voters

    def kraft_version_before(self, offset: int) -> int:
        at = bisect_right(self._versions, offset - 1, key=lambda entry: entry[0])
        return self._versions[at - 1][1] if at else FIRST_KRAFT_VERSION

    def add_voters(self, offset: int, voters: VoterSet) -> None:
        if self._sets and self._sets[-1][0] >= offset:
            raise ValueError(f"voters at offset {offset} follow those at {self._sets[-1][0]}")
        self._sets.append((offset, voters))

    def add_kraft_version(self, offset: int, version: int) -> None:
        if self._versions and self._versions[-1][0] >= offset:
            raise ValueError(f"kraft.version at {offset} follows that at {self._versions[-1][0]}")
        self._versions.append((offset, version))

    def truncate_to(self, offset: int) -> None:
        """Forget what was recorded at `offset` or later."""
        while self._sets and self._sets[-1][0] >= offset:
            self._sets.pop()
        while self._versions and self._versions[-1][0] >= offset:
            self._versions.pop()

    def forget_before(self, offset: int) -> None:
        """Drop entries that no truncation at or above `offset` can bring back."""
        while len(self._sets) > 1 and self._sets[1][0] < offset:
            del self._sets[0]
        while len(self._versions) > 1 and self._versions[1][0] < offset:
            del self._versions[0]

    def clear(self) -> None:
        """Forget everything: a snapshot takes the place of the log."""
        self._sets.clear()
        self._versions.clear()
