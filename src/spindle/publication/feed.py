"""Feeds the listeners of the quorum: new batches from memory, earlier ones from the disk."""

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from spindle.common.ids import OffsetAndEpoch
from spindle.disks.executor import DirectoryExecutor
from spindle.metadata_log.committed import CommittedBatch, decode_batches
from spindle.metadata_log.metadata_log import MetadataLog
from spindle.metadata_log.snapshots import read_snapshot
from spindle.publication.delivery import Delivery, Subscription
from spindle.publication.listener import QuorumListener
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID
from spindle.raft.ready import AppendBatches, LeaderAndEpoch, LogOperation, Truncate

_LOAD_BYTES: Final = 1 << 20


class _Loaded(NamedTuple):
    """The part of the log that was read for a listener that is behind: a snapshot, or batches."""

    batches: list[CommittedBatch]
    snapshot_id: OffsetAndEpoch | None = None
    content: Any = None


class ListenerFeed:
    """The listeners, and the batches on their way to them.

    Args:
        log_end_offset: log end offset when the log was loaded.
        on_error: gets the fault after which the quorum member cannot go on.
        call_soon: runs a function on the event loop after the present one.
    """

    def __init__(
        self,
        log: MetadataLog,
        thread: DirectoryExecutor,
        log_end_offset: int,
        on_error: Callable[[BaseException], None],
        call_soon: Callable[..., object],
    ) -> None:
        self._log = log
        self._thread = thread
        self._on_error = on_error
        self._call_soon = call_soon
        self._delivery = Delivery(log_end_offset)
        self._leader = LeaderAndEpoch()
        self._leader_after_offset = 0
        self._is_stopped = False

    def stop(self) -> None:
        self._is_stopped = True

    # ------------------------------------------------------------ listeners

    def subscribe(self, listener: QuorumListener) -> None:
        """Add a listener; it is called for the first time after this method has returned."""
        subscription = self._delivery.subscribe(listener)
        self._call_soon(self._introduce, subscription, self._leader)

    def unsubscribe(self, listener: QuorumListener) -> None:
        self._delivery.unsubscribe(listener)

    def _introduce(self, subscription: Subscription, leader: LeaderAndEpoch) -> None:
        if subscription.leader is None and leader == self._leader and not self._is_stopped:
            self._delivery.announce(subscription, leader, self._leader_after_offset)
        self._load_for(subscription)

    # ------------------------------------------------------------ news

    def log_changed(
        self, operations: list[LogOperation], own_batches: list[CommittedBatch] | None
    ) -> None:
        """Follow changes of the log.

        Args:
            own_batches: the appended batches, if the caller has their records; else they are
                decoded.
        """
        for operation in operations:
            match operation:
                case AppendBatches(batches=batches) if own_batches is None:
                    self._delivery.appended(decode_batches(batches))
                case Truncate(offset):
                    self._delivery.truncated_to(offset)
        if own_batches is not None:
            self._delivery.appended(own_batches)

    def committed(self, high_watermark: int) -> None:
        """Deliver what is below the new high watermark."""
        self._delivery.high_watermark = high_watermark
        self._delivery.deliver()

    def leader_changed(self, leader: LeaderAndEpoch, after_offset: int) -> None:
        """Announce a leader to each listener when it has received all below `after_offset`."""
        self._leader = leader
        self._leader_after_offset = after_offset
        self._delivery.leader_changed(leader, after_offset)

    def reset_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """Start again at the end of a snapshot."""
        self._delivery.reset_to(snapshot_id)

    def serve_behind(self) -> None:
        """Read from the disk for the listeners that are behind."""
        for subscription in self._delivery.subscriptions:
            self._load_for(subscription)

    # ------------------------------------------------------------ listeners that are behind

    def _load_for(self, subscription: Subscription) -> None:
        end_offset = self._delivery.high_watermark
        if self._is_stopped or end_offset is None or not self._delivery.is_behind(subscription):
            return
        next_offset = subscription.next_offset
        subscription.is_loading = True

        def loaded(found: _Loaded | None, error: BaseException | None) -> None:
            subscription.is_loading = False
            if found is None:
                assert error is not None
                self._on_error(error)
            elif subscription in self._delivery.subscriptions and not self._is_stopped:
                try:
                    self._give(subscription, next_offset, found)
                except Exception as fault:  # noqa: BLE001 - the listener lacks a part of the log now
                    self._on_error(fault)

        self._thread.call(loaded, self._load, subscription.listener, next_offset, end_offset)

    def _load(self, listener: QuorumListener, next_offset: int | None, end_offset: int) -> _Loaded:
        """Read what a listener needs from `next_offset` on; runs on the directory's thread."""
        newest = self._log.snapshot_ids[-1] if self._log.snapshot_ids else BOOTSTRAP_SNAPSHOT_ID
        is_before_log = next_offset is None or next_offset < self._log.start_offset
        if newest != BOOTSTRAP_SNAPSHOT_ID and is_before_log:
            data = self._log.read_snapshot_bytes(newest)
            read = read_snapshot(data, self._log.snapshot_path(newest))
            return _Loaded([], newest, listener.read_snapshot(newest, read))
        offset = next_offset or 0
        batches: list[CommittedBatch] = []
        if offset < min(end_offset, self._log.end_offset):
            for batch in decode_batches(self._log.read(offset, _LOAD_BYTES)):
                if batch.last_offset >= end_offset:
                    break
                if batch.base_offset >= offset:
                    batches.append(batch)
        return _Loaded(batches)

    def _give(self, subscription: Subscription, next_offset: int | None, found: _Loaded) -> None:
        if subscription.next_offset != next_offset:
            self._load_for(subscription)  # the log was replaced by a snapshot while this was read
            return
        if found.snapshot_id is not None:
            self._delivery.give_snapshot(subscription, found.snapshot_id, found.content)
        elif found.batches:
            self._delivery.give(subscription, found.batches)
        elif next_offset is None:
            subscription.next_offset = 0
        self._load_for(subscription)
