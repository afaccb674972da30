"""Delivery to the listeners, and its order."""

from collections.abc import Sequence

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.committed import CommittedBatch
from spindle.publication.feed import Delivery, SnapshotReader
from spindle.raft.ready import LeaderAndEpoch


class Recorder:
    """A listener that notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.heard += [(batch.base_offset, batch.last_offset) for batch in batches]

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        raise NotImplementedError

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: list[CommittedBatch]) -> None:
        self.heard.append((snapshot_id, len(content)))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.heard.append(leader)


def committed(base: int, last: int) -> CommittedBatch:
    return CommittedBatch(base, last, 1, 0, 80, [])


def listening(delivery: Delivery) -> Recorder:
    recorder = Recorder()
    delivery.subscribe(recorder).next_offset = delivery.tail_start
    return recorder


def test_batches_are_delivered_when_they_are_committed_as_a_whole() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    delivery.appended([committed(0, 0), committed(1, 3), committed(4, 4)])
    delivery.deliver()
    assert recorder.heard == []
    delivery.high_watermark = 3
    delivery.deliver()
    assert recorder.heard == [(0, 0)]
    delivery.high_watermark = 5
    delivery.deliver()
    assert recorder.heard == [(0, 0), (1, 3), (4, 4)]
    assert delivery.tail_start == 5


def test_truncated_batches_are_never_delivered() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    delivery.appended([committed(0, 0), committed(1, 3)])
    delivery.truncated_to(1)
    delivery.appended([committed(1, 1)])
    delivery.high_watermark = 2
    delivery.deliver()
    assert recorder.heard == [(0, 0), (1, 1)]


def test_a_listener_behind_the_batches_in_memory_is_served_from_the_disk() -> None:
    delivery = Delivery(10)
    recorder = Recorder()
    subscription = delivery.subscribe(recorder)
    assert not delivery.is_behind(subscription), "nothing is known to be committed"
    delivery.appended([committed(10, 10)])
    delivery.high_watermark = 11
    delivery.deliver()
    assert recorder.heard == []
    assert delivery.is_behind(subscription)
    delivery.give(subscription, [committed(0, 9)])
    assert delivery.is_behind(subscription)
    delivery.give(subscription, [committed(10, 10)])
    assert not delivery.is_behind(subscription)
    delivery.appended([committed(11, 12)])
    delivery.high_watermark = 13
    delivery.deliver()
    assert recorder.heard == [(0, 9), (10, 10), (11, 12)]


def test_a_listener_being_served_from_the_disk_gets_nothing_else() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    delivery.subscriptions[0].is_loading = True
    delivery.appended([committed(0, 0)])
    delivery.high_watermark = 1
    delivery.deliver()
    assert recorder.heard == []
    assert not delivery.is_behind(delivery.subscriptions[0])
    delivery.subscriptions[0].is_loading = False
    assert delivery.is_behind(delivery.subscriptions[0])


def test_a_log_that_was_reset_is_loaded_by_all_listeners() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    delivery.appended([committed(0, 4)])
    delivery.reset_to(OffsetAndEpoch(50, 2))
    delivery.high_watermark = 50
    assert delivery.is_behind(delivery.subscriptions[0])
    delivery.give_snapshot(delivery.subscriptions[0], OffsetAndEpoch(50, 2), [committed(0, 0)])
    delivery.appended([committed(50, 50)])
    delivery.high_watermark = 51
    delivery.deliver()
    assert recorder.heard == [(OffsetAndEpoch(50, 2), 1), (50, 50)]


def test_the_own_leadership_is_announced_after_all_batches_before_it() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    me = LeaderAndEpoch(1, 3)
    delivery.appended([committed(0, 4)])
    delivery.leader_changed(me, 5)
    assert recorder.heard == []
    delivery.high_watermark = 5
    delivery.deliver()
    assert recorder.heard == [(0, 4), me]


def test_only_the_newest_leader_is_announced() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    delivery.leader_changed(LeaderAndEpoch(1, 3), 5)
    other = LeaderAndEpoch(2, 4)
    delivery.leader_changed(other, 0)
    assert recorder.heard == [other]


def test_a_cancelled_subscriber_gets_no_calls() -> None:
    delivery = Delivery(0)
    recorder = listening(delivery)
    delivery.unsubscribe(recorder)
    delivery.appended([committed(0, 0)])
    delivery.high_watermark = 1
    delivery.deliver()
    delivery.leader_changed(LeaderAndEpoch(1, 1), 0)
    assert recorder.heard == []
