"""The inputs of a quorum member: its identity, its settings, and what its disk holds."""

from typing import NamedTuple

from spindle.common.ids import Endpoint
from spindle.raft.log_view import LogView
from spindle.raft.ready import ElectionState
from spindle.raft.voters import KRaftVersionRange, ReplicaKey, Voter, VoterHistory


class LocalNode(NamedTuple):
    """The identity of the local node.

    Attributes:
        controller_listener: name of the default controller listener.
        endpoints: its controller listeners, the default one first; empty on brokers.
        can_vote: True if it has the controller role.
    """

    key: ReplicaKey
    cluster_id: str
    controller_listener: str = "CONTROLLER"
    endpoints: tuple[Endpoint, ...] = ()
    can_vote: bool = True
    versions: KRaftVersionRange = KRaftVersionRange()

    @property
    def voter(self) -> Voter:
        return Voter(self.key, self.endpoints, self.versions)


class QuorumSettings(NamedTuple):
    """The `controller.quorum.*` settings, by their names there."""

    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    election_backoff_max_ms: int = 1000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    fetch_max_bytes: int = 1 << 20
    fetch_snapshot_max_bytes: int = 1 << 20
    auto_join: bool = False
    bootstrap_servers: tuple[Endpoint, ...] = ()


class StoredState(NamedTuple):
    """The state on the disk at a start."""

    election: ElectionState | None
    log: LogView
    history: VoterHistory
