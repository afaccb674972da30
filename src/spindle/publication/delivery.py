"""Delivery of committed batches to the listeners, and the offset that each listener has reached.

Batches stay decoded in memory from their append until they are committed and delivered. A listener
that is further behind (a new one, or each of them after a start) gets earlier batches from the disk
until it reaches those in memory.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.committed import CommittedBatch
from spindle.publication.listener import QuorumListener
from spindle.raft.ready import LeaderAndEpoch


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

    def deliver(self) -> None:
        """Deliver the committed batches to all listeners that have everything before them."""
        end_offset = self.high_watermark
        if end_offset is None:
            return
        committed: list[CommittedBatch] = []
        while self._tail and self._tail[0].last_offset < end_offset:
            committed.append(self._tail.popleft())
        if not committed:
            return
        start_offset = self._tail_start
        self._tail_start = committed[-1].last_offset + 1
        for subscription in list(self.subscriptions):
            if subscription.next_offset == start_offset and not subscription.is_loading:
                self.give(subscription, committed)

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
