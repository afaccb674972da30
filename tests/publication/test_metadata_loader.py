"""The loader: publications, metadata transactions, snapshots, and when snapshots are made."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from metadata_history import history, image_of, uuid

from spindle.common.errors import ProtocolViolation
from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE
from spindle.metadata.local_changes import local_changes
from spindle.metadata.snapshot import snapshot_records
from spindle.metadata_log.committed import CommittedBatch
from spindle.metadata_log.encoding import encode_image, encode_records
from spindle.metadata_log.snapshots import SnapshotBatch
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from spindle.publication.loader import MetadataLoader, Publication, initial_publication
from spindle.publication.snapshot_generator import SnapshotGenerator


class Log:
    """Feeds batches to a loader, one offset after the other."""

    def __init__(self) -> None:
        self.loader = MetadataLoader()
        self.end = 0

    def batch(self, *records: Message) -> CommittedBatch:
        last = self.end + max(1, len(records)) - 1
        batch = CommittedBatch(self.end, last, 3, 1000 + self.end, 50, list(records))
        self.end = last + 1
        return batch

    def commit(self, *records: Message) -> list[Publication]:
        return self.loader.load_batches([self.batch(*records)])

    @property
    def topics(self) -> list[str]:
        return list(self.loader.image.topics.by_name)


A = TopicRecord(name="a", topic_id=uuid(1))
B = TopicRecord(name="b", topic_id=uuid(2))
C = TopicRecord(name="c", topic_id=uuid(3))


def test_batches_committed_together_are_one_publication() -> None:
    log = Log()
    (published,) = log.loader.load_batches([log.batch(A), log.batch(), log.batch(B)])
    assert log.topics == ["a", "b"]
    provenance = published.image.provenance
    assert (provenance.last_offset, provenance.last_epoch) == (2, 3)
    assert (provenance.last_append_time_ms, provenance.is_batch_aligned) == (1002, True)
    assert published.size_bytes == 150
    assert list(published.delta.topics.changed) == [uuid(1), uuid(2)]


def test_control_batches_move_the_offset_alone() -> None:
    log = Log()
    (published,) = log.commit()
    assert published.image.provenance.last_offset == 0
    assert published.delta.topics.changed == {}


def test_a_transaction_becomes_visible_at_its_end() -> None:
    log = Log()
    (before,) = log.commit(A, BeginTransactionRecord(name="x"), B)
    assert list(before.image.topics.by_name) == ["a"]
    assert before.image.provenance.last_offset == 0
    assert not before.image.provenance.is_batch_aligned
    assert log.loader.is_in_transaction
    assert log.commit(C) == []
    assert log.topics == ["a"]
    (published,) = log.commit(EndTransactionRecord())
    assert log.topics == ["a", "b", "c"]
    assert published.image.provenance.last_offset == 4
    assert list(published.delta.topics.changed) == [uuid(2), uuid(3)]


def test_an_aborted_transaction_leaves_nothing() -> None:
    log = Log()
    log.commit(A)
    log.commit(BeginTransactionRecord(), B)
    (published,) = log.commit(AbortTransactionRecord(reason="x"), C)
    assert log.topics == ["a", "c"]
    assert list(published.delta.topics.changed) == [uuid(3)]


def test_a_whole_transaction_in_one_batch_is_one_publication() -> None:
    log = Log()
    log.commit()
    (published,) = log.commit(
        BeginTransactionRecord(name="Bootstrap records"),
        FeatureLevelRecord(name="metadata.version", feature_level=30),
        EndTransactionRecord(),
    )
    assert published.image.metadata_version == 30
    assert published.image.provenance.last_offset == 3


@pytest.mark.parametrize(
    "records",
    [
        [EndTransactionRecord()],
        [AbortTransactionRecord()],
        [BeginTransactionRecord(), BeginTransactionRecord()],
    ],
)
def test_markers_out_of_place_are_refused(records: list[Message]) -> None:
    with pytest.raises(ProtocolViolation, match="transaction"):
        Log().commit(*records)


def test_a_snapshot_replaces_everything_also_an_open_transaction() -> None:
    log = Log()
    log.commit(A, BeginTransactionRecord(), B)
    state = image_of([C, RegisterBrokerRecord(broker_id=1, broker_epoch=5)])
    batch = SnapshotBatch(0, 777, list(encode_records(snapshot_records(state))))
    published = log.loader.load_snapshot(OffsetAndEpoch(90, 4), [batch])
    assert log.topics == ["c"]
    assert not log.loader.is_in_transaction
    assert published.is_snapshot
    assert published.image.provenance.last_offset == 89
    assert published.image.cluster.brokers[1].register_offset == 89
    assert list(published.delta.topics.deleted) == [uuid(1)]


def test_a_snapshot_read_before_another_commit_is_not_taken() -> None:
    log = Log()
    content = log.loader.begin_snapshot(OffsetAndEpoch(90, 4)).complete()
    log.commit(A)
    with pytest.raises(AssertionError, match="image has changed"):
        log.loader.take_snapshot(content)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_snapshot_gives_the_image_that_it_was_made_of(seed: int) -> None:
    image = image_of(history(seed, 80))
    batch = SnapshotBatch(0, 777, list(encode_image(image)))
    loaded = MetadataLoader().load_snapshot(OffsetAndEpoch(90, 4), [batch]).image
    loaded.check()
    assert loaded.topics == image.topics
    assert loaded.configs == image.configs


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_a_start_from_an_image_is_a_start_from_all_its_records(seed: int) -> None:
    image = image_of(history(seed, 80))
    started = initial_publication(image).delta
    replayed = MetadataDelta(EMPTY_IMAGE)
    for record in snapshot_records(image):
        replayed.replay(record, image.provenance.last_offset)
    replayed.apply(image.provenance)
    for broker_id in (*image.cluster.brokers, 99):
        assert local_changes(started, broker_id) == local_changes(replayed, broker_id)
    assert started.configs.changed == replayed.configs.changed


def _publication(log: Log, size_bytes: int = 50) -> Publication:
    batch = log.batch()._replace(size_bytes=size_bytes)
    (published,) = log.loader.load_batches([batch])
    return published


def test_snapshots_are_due_by_bytes() -> None:
    log = Log()
    log.commit(A)
    generator = SnapshotGenerator(max_bytes=100, max_interval_ms=0, now_ms=0)
    assert generator.on_publication(_publication(log, 99), 10**9) is None
    work = generator.on_publication(_publication(log, 1), 10**9)
    assert work is not None
    assert work.snapshot_id == OffsetAndEpoch(3, 3)
    assert work.last_append_time_ms == 1002
    assert list(work.values()) == list(encode_records([A]))
    assert generator.on_publication(_publication(log, 99), 10**9) is None


def test_snapshots_are_due_by_time_and_a_loaded_one_counts() -> None:
    log = Log()
    generator = SnapshotGenerator(max_bytes=0, max_interval_ms=1000, now_ms=0)
    assert generator.on_publication(_publication(log), 999) is None
    assert generator.on_publication(_publication(log), 1000) is not None
    loaded = log.loader.load_snapshot(OffsetAndEpoch(9, 3), [])
    assert generator.on_publication(loaded, 5000) is None
    assert generator.on_publication(_publication(log), 5999) is None


def test_no_snapshot_in_the_middle_of_a_batch() -> None:
    log = Log()
    generator = SnapshotGenerator(max_bytes=1, max_interval_ms=0, now_ms=0)
    (published,) = log.commit(A, BeginTransactionRecord(), B)
    assert generator.on_publication(published, 0) is None
    (published,) = log.commit(EndTransactionRecord())
    work = generator.on_publication(published, 0)
    assert work is not None
    assert work.snapshot_id.offset == 4
