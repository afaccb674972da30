"""What the rest of a node sees of the metadata quorum: committed batches, snapshots and leadership.

The controller and the metadata loader are written against these protocols; `runtime` implements
them over the state machine of this package.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.committed import CommittedBatch
from spindle.protocol.message import Message
from spindle.raft.leader import LeaderAndEpoch


class QuorumListener(Protocol):
    """Called on the event loop's thread, in the order of the log."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Batches that follow the last ones without a gap."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> Any:
        """What `on_snapshot` needs of a snapshot, made while its batches are read.

        The exception to the rule: it is called on an I/O thread, so that a large snapshot does not
        stop the node, and must change nothing. Nothing else is delivered meanwhile. The offsets of
        the batches count within the snapshot.
        """
        ...

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: Any) -> None:
        """The whole state up to `snapshot_id.offset` (exclusive), in place of what went before.

        `content` is what `read_snapshot` has made of it.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """A new leader or epoch.

        The local node is named as leader only when everything up to the start of its epoch was
        delivered by `on_commit`.
        """
        ...


class MetadataQuorum(Protocol):
    """The replicated metadata log as the active controller uses it."""

    @property
    def leader(self) -> LeaderAndEpoch: ...

    @property
    def high_watermark(self) -> int | None:
        """First offset that is not known to be committed; None until that is known."""
        ...

    def append(self, epoch: int, records: Sequence[Message], *, is_atomic: bool) -> int:
        """Schedule an append as leader of `epoch`; the offset of the last record.

        Atomic records stay in one batch.

        Raises:
            NotLeader: the local node does not lead `epoch` (any more).
            ValueError: atomic records that do not fit into one batch of 8 MiB.
        """
        ...

    def subscribe(self, listener: QuorumListener) -> None:
        """Deliver the newest snapshot and all committed batches, then whatever follows."""
        ...
