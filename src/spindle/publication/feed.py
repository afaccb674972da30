"""Feeds the listeners of the quorum: new batches from memory, earlier ones from the disk.

Batches stay decoded in memory from their append until they are committed and delivered. A listener
that is further behind (a new one, or all of them after a start) gets earlier batches from the disk
until it reaches those in memory.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, Protocol

from spindle.common.errors import (
    CorruptLog,
    CorruptRecords,
    ProtocolViolation,
    UnsupportedMetadata,
)
from spindle.common.ids import OffsetAndEpoch
from spindle.disks.executor import DirectoryExecutor
from spindle.metadata_log.committed import CommittedBatch, decode_batches
from spindle.metadata_log.metadata_log import MetadataLog
from spindle.metadata_log.snapshots import SnapshotBatch, read_snapshot_values
from spindle.raft.log_view import BOOTSTRAP_SNAPSHOT_ID
from spindle.raft.ready import AppendBatches, LeaderAndEpoch, LogOperation, Truncate


class SnapshotReader:
    """Makes the content for `QuorumListener.on_snapshot` out of the batches of a snapshot."""

    def replay(self, batch: SnapshotBatch) -> None:
        """Read the next batch.

        Raises:
            CorruptRecords: a value of the batch is not a metadata record.
            ProtocolViolation: a record contradicts the records before it.
        """
        raise NotImplementedError

    def complete(self) -> Any:
        """Return the content, after the last batch."""
        raise NotImplementedError


class QuorumListener(Protocol):
    """Called on the event loop's thread, in the order of the log."""

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        """Handle batches that follow the previous ones without a gap."""
        ...

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        """Return a reader for the batches of a snapshot.

        Only this method and the reader are called on an I/O thread, so that a large snapshot does
        not block the node. They must change no state. Nothing else is delivered meanwhile.
        """
        ...

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: Any) -> None:
        """Replace all state by that of a snapshot, up to `snapshot_id.offset` (exclusive).

        `content` is what the reader has returned from `complete`.
        """
        ...

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """React to a new leader or epoch.

        The local node is announced as leader only after `on_commit` has got everything up to the
        start of its epoch.
        """
        ...


@dataclass(slots=True)
class Subscription:
    """A listener and the offset that it has reached.

    Attributes:
        next_offset: first offset that it has not received; None before its first delivery.
        is_loading: True while a part of the log is read from the disk for it.
        leader: the leader to announce when it has received all below `leader_after_offset`.
    """

    listener: QuorumListener
    next_offset: int | None = None
    is_loading: bool = False
    leader: LeaderAndEpoch | None = None
    leader_after_offset: int = 0


class Delivery:
    """The batches in memory and the subscriptions.

    Attributes:
        high_watermark: offset up to which batches may be delivered; None while it is unknown.
    """

    def __init__(self, log_end_offset: int) -> None:
        self.high_watermark: int | None = None
        self.subscriptions: list[Subscription] = []
        self._tail: deque[CommittedBatch] = deque()
        self._tail_start = log_end_offset

    @property
    def tail_start(self) -> int:
        """The offset of the first batch that may be in memory."""
        return self._tail_start

    def subscribe(self, listener: QuorumListener) -> Subscription:
        subscription = Subscription(listener)
        self.subscriptions.append(subscription)
        return subscription

    def unsubscribe(self, listener: QuorumListener) -> None:
        self.subscriptions = [s for s in self.subscriptions if s.listener is not listener]

    # ------------------------------------------------------------ the log changes

    def appended(self, batches: Iterable[CommittedBatch]) -> None:
        self._tail.extend(batches)

    def truncated_to(self, offset: int) -> None:
        while self._tail and self._tail[-1].last_offset >= offset:
            self._tail.pop()
        self._tail_start = min(self._tail_start, offset)

    def reset_to(self, snapshot_id: OffsetAndEpoch) -> None:
        """Start again at the end of a snapshot, which every listener needs now."""
        self._tail.clear()
        self._tail_start = snapshot_id.offset
        for subscription in self.subscriptions:
            subscription.next_offset = None

    # ------------------------------------------------------------ delivery

    def deliver(self, max_bytes: int | None = None) -> bool:
        """Deliver committed batches to all listeners that have everything before them.

        Args:
            max_bytes: no batch is added to this many bytes; None delivers all.

        Returns whether there are more.
        """
        committed: list[CommittedBatch] = []
        size_bytes = 0
        while self._is_committed_in_memory() and (max_bytes is None or size_bytes < max_bytes):
            committed.append(self._tail.popleft())
            size_bytes += committed[-1].size_bytes
        if not committed:
            return False
        start_offset = self._tail_start
        self._tail_start = committed[-1].last_offset + 1
        for subscription in list(self.subscriptions):
            if subscription.next_offset == start_offset and not subscription.is_loading:
                self.give(subscription, committed)
        return self._is_committed_in_memory()

    def _is_committed_in_memory(self) -> bool:
        end_offset = self.high_watermark
        return (
            end_offset is not None and bool(self._tail) and self._tail[0].last_offset < end_offset
        )

    def give(self, subscription: Subscription, batches: list[CommittedBatch]) -> None:
        subscription.next_offset = batches[-1].last_offset + 1
        subscription.listener.on_commit(batches)
        self.tell_leader(subscription)

    def give_snapshot(
        self, subscription: Subscription, snapshot_id: OffsetAndEpoch, content: Any
    ) -> None:
        subscription.next_offset = snapshot_id.offset
        subscription.listener.on_snapshot(snapshot_id, content)
        self.tell_leader(subscription)

    def is_behind(self, subscription: Subscription) -> bool:
        """Return whether the listener has to be served from the disk now."""
        if self.high_watermark is None or subscription.is_loading:
            return False
        next_offset = subscription.next_offset
        return next_offset is None or next_offset < min(self._tail_start, self.high_watermark)

    # ------------------------------------------------------------ leadership

    def leader_changed(self, leader: LeaderAndEpoch, after_offset: int) -> None:
        for subscription in list(self.subscriptions):
            self.announce(subscription, leader, after_offset)

    def announce(
        self, subscription: Subscription, leader: LeaderAndEpoch, after_offset: int
    ) -> None:
        """Announce a leader to a listener when it has received all below `after_offset`."""
        subscription.leader = leader
        subscription.leader_after_offset = after_offset
        self.tell_leader(subscription)

    def tell_leader(self, subscription: Subscription) -> None:
        leader = subscription.leader
        if leader is not None and (subscription.next_offset or 0) >= (
            subscription.leader_after_offset
        ):
            subscription.leader = None
            subscription.listener.on_leader_change(leader)


_LOAD_BYTES: Final = 1 << 17
"""The batches that are read for a listener at a time: some ten milliseconds of replay on the event
loop."""
_SNAPSHOT_BATCHES: Final = 8
"""The batches of a snapshot that are read at a time: some ten milliseconds of work. Between them
the thread does the quorum's other work, such as storing votes and records."""


class _Loaded:
    """The part of the log that was read for a listener that is behind."""


@dataclass(frozen=True, slots=True)
class _LoadedBatches(_Loaded):
    batches: list[CommittedBatch]


@dataclass(frozen=True, slots=True)
class _LoadedSnapshot(_Loaded):
    snapshot_id: OffsetAndEpoch
    content: Any


class _SnapshotLoad(_Loaded):
    """The beginning of a snapshot; used on the directory's thread."""

    def __init__(
        self, snapshot_id: OffsetAndEpoch, data: bytes, path: str, reader: SnapshotReader
    ) -> None:
        self._snapshot_id = snapshot_id
        self._path = path
        self._batches = read_snapshot_values(data, path)
        self._reader = reader

    def advance(self) -> _Loaded:
        """Read some more batches; return the content after the last one.

        Raises:
            CorruptLog: the snapshot is damaged.
            UnsupportedMetadata: a newer release has written it.
        """
        batches = list(islice(self._batches, _SNAPSHOT_BATCHES))
        for batch in batches:
            try:
                self._reader.replay(batch)
            except UnsupportedMetadata:
                raise
            except (CorruptRecords, ProtocolViolation) as error:
                raise CorruptLog(self._path, batch.position, str(error)) from None
        if batches:
            return self
        return _LoadedSnapshot(self._snapshot_id, self._reader.complete())


class ListenerFeed:
    """The listeners, and the batches on their way to them.

    Args:
        log_end_offset: log end offset when the log was loaded.
        on_error: called with a fault after which the quorum member cannot continue.
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
        self._stored_end_offset = log_end_offset
        self._leader = LeaderAndEpoch()
        self._leader_after_offset = 0
        self._is_delivering = False
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
        if not self._is_delivering:
            self._deliver_some()

    def _deliver_some(self) -> None:
        """Deliver a part now and the rest after other work of the event loop."""
        self._is_delivering = self._delivery.deliver(_LOAD_BYTES)
        if self._is_delivering:
            self._call_soon(self._deliver_more)

    def _deliver_more(self) -> None:
        if self._is_stopped:
            return
        try:
            self._deliver_some()
        except Exception as fault:  # noqa: BLE001 - the listeners lack a part of the log now
            self._on_error(fault)

    def leader_changed(self, leader: LeaderAndEpoch, after_offset: int) -> None:
        """Announce a leader to each listener when it has received all below `after_offset`.

        Before that, everything committed is delivered: a request whose records are committed is
        answered before its controller learns of a successor.
        """
        self._delivery.deliver()
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
            is_wanted = subscription in self._delivery.subscriptions and not self._is_stopped
            if isinstance(found, _SnapshotLoad) and is_wanted:
                self._thread.call(loaded, found.advance)
                return
            subscription.is_loading = False
            if found is None:
                assert error is not None
                self._on_error(error)
            elif is_wanted:
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
            path = self._log.snapshot_path(newest)
            return _SnapshotLoad(newest, data, path, listener.begin_snapshot(newest))
        offset = next_offset or 0
        batches: list[CommittedBatch] = []
        if offset < min(end_offset, self._log.end_offset):
            for batch in decode_batches(self._log.read(offset, _LOAD_BYTES)):
                if batch.last_offset >= end_offset:
                    break
                if batches and offset < self._stored_end_offset <= batch.base_offset:
                    break  # so that a listener sees the state in which the node had stopped
                if batch.base_offset >= offset:
                    batches.append(batch)
        return _LoadedBatches(batches)

    def _give(self, subscription: Subscription, next_offset: int | None, found: _Loaded) -> None:
        if subscription.next_offset != next_offset:
            self._load_for(subscription)  # the log was replaced by a snapshot while this was read
            return
        if isinstance(found, _LoadedSnapshot):
            self._delivery.give_snapshot(subscription, found.snapshot_id, found.content)
        elif isinstance(found, _LoadedBatches) and found.batches:
            self._delivery.give(subscription, found.batches)
        elif next_offset is None:
            subscription.next_offset = 0
        self._load_for(subscription)
