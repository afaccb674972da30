"""How a snapshot reaches a listener: in parts, between which the thread does other work."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from spindle.common.errors import CorruptLog
from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.committed import CommittedBatch
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.snapshots import SnapshotBatch, SnapshotInfo, encode_snapshot
from spindle.protocol.messages.metadata_records import TopicRecord
from spindle.publication.feed import ListenerFeed, SnapshotReader
from spindle.publication.publishers import ImagePublisher
from spindle.raft.ready import LeaderAndEpoch

ID = OffsetAndEpoch(50_000, 2)
TOPICS = 20_000


class Thread:
    """A directory's thread whose functions run one by one in `run_one`."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[..., None], Callable[..., Any], tuple[Any, ...]]] = (
            deque()
        )

    def call(self, callback: Callable[..., None], function: Callable[..., Any], *args: Any) -> None:
        self.waiting.append((callback, function, args))

    def run_one(self) -> None:
        callback, function, args = self.waiting.popleft()
        try:
            result = function(*args)
        except Exception as error:  # noqa: BLE001 - as the real thread does
            callback(None, error)
        else:
            callback(result, None)

    def run_all(self) -> int:
        count = 0
        while self.waiting:
            self.run_one()
            count += 1
        return count


class SnapshotOnly:
    """A metadata log that has a snapshot and no records after it."""

    start_offset = end_offset = ID.offset
    snapshot_ids = (ID,)

    def __init__(self, values: Sequence[bytes]) -> None:
        info = SnapshotInfo(0, 0, None)
        self._data = b"".join(encode_snapshot(values, info, epoch=ID.epoch, now_ms=0))

    def read_snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> bytes:
        return self._data

    def snapshot_path(self, snapshot_id: OffsetAndEpoch) -> str:
        return "/d/a.checkpoint"


class EmptyLog:
    """A metadata log of a new node."""

    start_offset = end_offset = 0
    snapshot_ids = ()


class Recorder:
    """A listener that records batches and leaders."""

    def __init__(self) -> None:
        self.heard: list[object] = []

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        self.heard += [(batch.base_offset, batch.last_offset) for batch in batches]

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
        raise NotImplementedError

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: object) -> None:
        raise NotImplementedError

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader != LeaderAndEpoch():
            self.heard.append(leader)


class Publisher(ImagePublisher):
    """Counts the snapshots that it gets."""

    snapshots = 0

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: Any) -> None:
        self.snapshots += 1
        super().on_snapshot(snapshot_id, content)


class Loading:
    """A feed that has begun to load a snapshot for a publisher."""

    def __init__(self, values: Sequence[bytes]) -> None:
        self.thread = Thread()
        self.errors: list[BaseException] = []
        self.publisher = Publisher()
        log: Any = SnapshotOnly(values)
        thread: Any = self.thread
        self.feed = ListenerFeed(
            log, thread, ID.offset, self.errors.append, lambda function, *args: function(*args)
        )
        self.feed.committed(ID.offset)
        self.feed.subscribe(self.publisher)


def topics() -> list[bytes]:
    records = [TopicRecord(name=f"t{n}", topic_id=n.to_bytes(16, "big")) for n in range(TOPICS)]
    return list(encode_records(records))


def test_other_work_of_the_thread_runs_between_the_parts_of_a_large_snapshot() -> None:
    loading = Loading(topics())
    loading.thread.run_one()
    votes: list[str] = []
    loading.thread.call(lambda *_: None, votes.append, "stored")
    loading.thread.run_one()
    loading.thread.run_one()
    assert votes == ["stored"]
    assert loading.publisher.snapshots == 0
    assert not loading.publisher.image.topics.by_id, "no part of a snapshot is visible alone"
    loading.thread.run_all()
    assert loading.publisher.snapshots == 1
    assert len(loading.publisher.image.topics.by_id) == TOPICS
    assert loading.errors == []


def test_a_listener_that_left_ends_the_load_of_its_snapshot() -> None:
    loading = Loading(topics())
    loading.thread.run_one()
    loading.feed.unsubscribe(loading.publisher)
    assert loading.thread.run_all() == 1
    assert loading.publisher.snapshots == 0


def test_a_leader_that_is_elected_meanwhile_is_announced() -> None:
    loading = Loading(topics()[:10])
    loading.thread.run_one()
    loading.feed.leader_changed(LeaderAndEpoch(3, 2), 0)
    loading.thread.run_all()
    assert loading.publisher.last_committed_offset == ID.offset - 1
    assert len(loading.publisher.image.topics.by_id) == 10
    assert loading.publisher.leader == LeaderAndEpoch(3, 2)


def test_a_large_commit_is_delivered_in_parts() -> None:
    later: deque[Callable[[], object]] = deque()
    feed, recorder = _feed_of_large_batches(later)
    feed.committed(4)
    assert recorder.heard == [(0, 0), (1, 1)]
    feed.committed(5)
    assert recorder.heard == [(0, 0), (1, 1)]
    later.popleft()()
    assert recorder.heard == [(0, 0), (1, 1), (2, 2), (3, 3)]
    later.popleft()()
    assert recorder.heard[4:] == [(4, 4)]
    assert not later


def test_all_that_is_committed_is_delivered_before_a_new_leader() -> None:
    later: deque[Callable[[], object]] = deque()
    feed, recorder = _feed_of_large_batches(later)
    feed.committed(5)
    feed.leader_changed(LeaderAndEpoch(3, 2), 0)
    assert recorder.heard == [*((n, n) for n in range(5)), LeaderAndEpoch(3, 2)]
    later.popleft()()
    assert len(recorder.heard) == 6


def _feed_of_large_batches(
    later: deque[Callable[[], object]],
) -> tuple[ListenerFeed, Recorder]:
    """Return a feed whose log has five batches of 70,000 bytes, and its listener."""
    log, thread = EmptyLog(), Thread()
    errors: list[BaseException] = []
    feed = ListenerFeed(
        cast("Any", log),
        cast("Any", thread),
        0,
        errors.append,
        lambda function, *args: later.append(lambda: function(*args)),
    )
    recorder = Recorder()
    feed.committed(0)
    feed.subscribe(recorder)
    later.popleft()()
    thread.run_all()
    feed.log_changed([], [CommittedBatch(n, n, 1, 0, 70_000, []) for n in range(5)])
    return feed, recorder


@pytest.mark.parametrize("value", [b"", b"\1\2", b"\1\x03\2short", b"\0\2\0"])
def test_a_damaged_value_names_the_file(value: bytes) -> None:
    loading = Loading([*topics()[:3], value])
    loading.thread.run_all()
    (error,) = loading.errors
    assert isinstance(error, CorruptLog)
    assert "/d/a.checkpoint" in str(error)
    assert loading.publisher.snapshots == 0


def test_a_batch_without_values_is_read() -> None:
    replay = ImagePublisher().begin_snapshot(ID)
    replay.replay(SnapshotBatch(0, 5, []))
    assert replay.complete().image.provenance.last_append_time_ms == 5
