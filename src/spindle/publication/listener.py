"""The port by which a node hears of the metadata quorum: batches, snapshots and leadership."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.committed import CommittedBatch
from spindle.raft.leader import LeaderAndEpoch


class QuorumListener(Protocol):
    """Called on the event loop's thread, in the order of the log."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Take batches that follow the last ones without a gap."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> Any:
        """Make of a snapshot what `on_snapshot` needs, while its batches are read.

        This method alone is called on an I/O thread, so that a large snapshot does not stop the
        node, and must change nothing. Nothing else is delivered meanwhile. The offsets of the
        batches count within the snapshot.
        """
        ...

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: Any) -> None:
        """Replace all state by that of a snapshot, up to `snapshot_id.offset` (exclusive).

        `content` is what `read_snapshot` has made of it.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """React to a new leader or epoch.

        The local node is named as leader only after everything up to the start of its epoch was
        delivered by `on_commit`.
        """
        ...
