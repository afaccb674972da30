"""The port through which a node receives batches, snapshots and leaders of the metadata quorum."""

from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.committed import CommittedBatch
from spindle.raft.ready import LeaderAndEpoch


class QuorumListener(Protocol):
    """Called on the event loop's thread, in the order of the log."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Handle batches that follow the previous ones without a gap."""
        ...

    def read_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> Any:
        """Convert a snapshot into the content for `on_snapshot`, while its batches are read.

        Only this method is called on an I/O thread, so that a large snapshot does not block the
        node. It must change no state. Nothing else is delivered meanwhile. The offsets of the
        batches count within the snapshot.
        """
        ...

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: Any) -> None:
        """Replace all state by that of a snapshot, up to `snapshot_id.offset` (exclusive).

        `content` is the result of `read_snapshot`.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """React to a new leader or epoch.

        The local node is announced as leader only after `on_commit` has got everything up to the
        start of its epoch.
        """
        ...
