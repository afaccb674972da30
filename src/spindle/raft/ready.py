"""Events that drive the quorum's state machine, and `Ready`: the work that a step asks for.

The driver works through the fields of a `Ready` in their order, and takes one `Ready` after the
other. So a vote is on the disk before it is sent, and records are in the log before an answer
acknowledges them.
"""

from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

from spindle.common.ids import NO_LEADER, OffsetAndEpoch
from spindle.common.ports import Bytes
from spindle.protocol.message import Message
from spindle.raft.voters import ReplicaKey, VoterSet

# ---------------------------------------------------------------- epochs


class ElectionState(NamedTuple):
    """The state of the current epoch that survives a restart, stored in `quorum-state` (KIP-595).

    Attributes:
        voter_ids: the voters at the time of writing; only in files of version 0.
    """

    epoch: int = 0
    leader_id: int = NO_LEADER
    voted_key: ReplicaKey | None = None
    voter_ids: tuple[int, ...] = ()


class LeaderAndEpoch(NamedTuple):
    """The leader of an epoch; `leader_id` is -1 while it is unknown."""

    leader_id: int = NO_LEADER
    epoch: int = 0


class NotLeader(Exception):
    """Refuses an append: the local node does not lead this epoch."""

    def __init__(self, epoch: int, leader: LeaderAndEpoch) -> None:
        super().__init__(epoch, leader)
        self.epoch = epoch
        self.leader = leader

    def __str__(self) -> str:
        return (
            f"cannot append in epoch {self.epoch}: "
            f"node {self.leader.leader_id} leads epoch {self.leader.epoch}"
        )


# ---------------------------------------------------------------- events


class StartUp(NamedTuple):
    """The first event: enter the role of the stored state."""


class Tick(NamedTuple):
    """Time has passed."""


class RequestReceived(NamedTuple):
    """A request of a peer or client; `token` comes back in its `Reply`."""

    token: int
    request: Message


class ResponseReceived(NamedTuple):
    """The answer to the `Request` of this id."""

    request_id: int
    response: Message


class RequestFailed(NamedTuple):
    """The request failed: the connection broke, or the peer does not support the needed version.

    `is_refused` says that no process listens at the destination.
    """

    request_id: int
    is_unsupported_version: bool = False
    is_refused: bool = False


class AppendRecords(NamedTuple):
    """Encoded metadata records for the log, from the active controller of `epoch`."""

    epoch: int
    values: list[bytes]
    is_atomic: bool = False


class LogFlushed(NamedTuple):
    """The oldest open `Flush` is done."""


class SnapshotWritten(NamedTuple):
    """A snapshot of the local state is complete."""

    snapshot_id: OffsetAndEpoch


class SnapshotInstalled(NamedTuple):
    """A fetched snapshot is complete and the log was reset to its end."""

    snapshot_id: OffsetAndEpoch
    voters: VoterSet | None
    kraft_version: int


class SnapshotUnfit(NamedTuple):
    """A fetched snapshot is damaged: it was removed, and the log is as it was."""

    snapshot_id: OffsetAndEpoch


class LogCleaned(NamedTuple):
    """Retention removed old segments and snapshots."""

    start_offset: int
    snapshots: tuple[OffsetAndEpoch, ...]


class KRaftVersionUpgrade(NamedTuple):
    """Raise kraft.version, as leader of `epoch`."""

    epoch: int
    version: int
    is_validate_only: bool = False


class Resign(NamedTuple):
    """Give up the leadership of `epoch`, if the local node still has it."""

    epoch: int


class Shutdown(NamedTuple):
    """Leave the quorum: resign, and take part in no election."""


Event: TypeAlias = (
    StartUp
    | Tick
    | RequestReceived
    | ResponseReceived
    | RequestFailed
    | AppendRecords
    | LogFlushed
    | SnapshotWritten
    | SnapshotInstalled
    | SnapshotUnfit
    | LogCleaned
    | KRaftVersionUpgrade
    | Resign
    | Shutdown
)

# ---------------------------------------------------------------- operations on the log


class AppendBatches(NamedTuple):
    """Add whole batches at the end; offsets and epochs are set already."""

    base_offset: int
    end_offset: int
    batches: Bytes


class Truncate(NamedTuple):
    """Remove everything from `offset` on."""

    offset: int


class Flush(NamedTuple):
    """Flush everything appended so far to the disk, then report `LogFlushed`."""


class WriteSnapshotChunk(NamedTuple):
    """Bytes of a snapshot that is being fetched; position 0 starts it again."""

    snapshot_id: OffsetAndEpoch
    position: int
    data: Bytes


class InstallSnapshot(NamedTuple):
    """The fetched snapshot is complete: keep it and reset the log to its end.

    Then report `SnapshotInstalled`, or `SnapshotUnfit` if the snapshot is damaged.
    """

    snapshot_id: OffsetAndEpoch


LogOperation: TypeAlias = AppendBatches | Truncate | Flush | WriteSnapshotChunk | InstallSnapshot

# ---------------------------------------------------------------- messages


class Destination(NamedTuple):
    """The address of a peer. Bootstrap servers, whose node ids are not known, have ids below -1."""

    id: int
    host: str
    port: int


class Request(NamedTuple):
    """A request to another node of the quorum."""

    request_id: int
    destination: Destination
    message: Message


class ReadLog(NamedTuple):
    """Put log bytes into the reply's partition: whole batches, at least one."""

    offset: int
    max_bytes: int


class ReadSnapshot(NamedTuple):
    """Put a slice of a snapshot, and its size, into the reply's partition."""

    snapshot_id: OffsetAndEpoch
    position: int
    max_bytes: int


class Reply(NamedTuple):
    """The response to a `RequestReceived`; the driver first adds the bytes that `read` names."""

    token: int
    response: Message
    read: ReadLog | ReadSnapshot | None = None


@dataclass(slots=True)
class Ready:
    """The work that a step asks for, in the order of the fields.

    Attributes:
        election_state: written to the file and synced before the other fields are handled.
        log_operations: to be done in order on the metadata directory.
        requests: to be sent; answers come back as events.
        replies: answers to received requests.
        high_watermark: new value: batches below it are to be delivered.
        leader: new leader for the listeners, announced after the batches.
        wake_at_ms: step with `Tick` at this time if nothing happens before; None for never.
    """

    election_state: ElectionState | None = None
    log_operations: list[LogOperation] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    high_watermark: int | None = None
    leader: LeaderAndEpoch | None = None
    wake_at_ms: int | None = None
