"""Ports of share groups: the stored state of share partitions, as leaders and groups use it."""

from typing import Protocol

from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.coordinator.share.state_shard import WrittenState


class ShareStateStore(Protocol):
    """The states of share partitions, wherever their coordinators are.

    Every method raises ApiError if the coordinator refuses the request, or if none answers in time.
    """

    async def initialize(self, key: ShareKey, state_epoch: int, start_offset: int) -> None:
        """Begin or reset a state."""
        ...

    async def read(self, key: ShareKey, leader_epoch: int) -> Snapshot:
        """Return a state for the leader in this epoch; older leaders can then not write."""
        ...

    async def write(self, key: ShareKey, written: WrittenState) -> None:
        """Store a change."""
        ...

    async def summary(self, key: ShareKey) -> Snapshot | None:
        """Return a state without its batches; None if there is none."""
        ...

    async def delete(self, key: ShareKey) -> None:
        """Delete a state."""
        ...
