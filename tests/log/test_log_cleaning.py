"""Compaction, first of all against a recorded run of Apache Kafka 4.3.1."""

from typing import TypedDict, Unpack

import pytest
from hypothesis import given
from hypothesis import strategies as st
from log_builders import (
    NOW_MS,
    SMALL,
    append,
    batch,
    end_transaction,
    new_log,
    new_storage,
    read_all,
    reload,
    values,
)

from spindle.common.ids import TopicPartition
from spindle.common.ports import File
from spindle.disks.cleaner import FIRST_RETRY_MS, Cleaner
from spindle.disks.directory_store import DirectoryStore
from spindle.log.cleaning.cleaning import (
    DEFAULT_SETTINGS,
    Cleaning,
    CleaningResult,
    CleaningSettings,
)
from spindle.log.cleaning.plan import dirty_range, is_due, plan_cleaning
from spindle.log.cleaning.replacement import put_in_place
from spindle.log.errors import CleaningAborted, UncleanableLog
from spindle.log.formats.checkpoints import read_offset_checkpoint
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.protocol.records.batch import HEADER_BYTES, batches, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch, seal_batch
from spindle.protocol.records.compression import Codec, compress
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.record import decoded_bytes_limit, encode_record
from spindle.protocol.records.validation import AppendOrigin
from spindle.testing.filesystem import Fault, MemoryFileSystem
from verification.fuzz.hostile_records import forge, sound

COMPACT = LogConfig(
    segment_bytes=1024 * 1024,
    segment_ms=4000,
    delete_retention_ms=12_000,
    min_cleanable_dirty_ratio=0.01,
    cleanup_policy=("compact",),
    file_delete_delay_ms=2000,
)
T0 = 1_795_269_139_059


def clean(
    log: Log,
    now_ms: int,
    cleaner_offset: int | None = None,
    settings: CleaningSettings = DEFAULT_SETTINGS,
) -> CleaningResult:
    """One pass from planning to the exchange of files."""
    log.update_high_watermark(log.log_end_offset)
    plan = plan_cleaning(log, dirty_range(log, cleaner_offset, now_ms))
    cleaned = Cleaning(log.handles.file_system, plan, now_ms, settings).run()
    assert put_in_place(cleaned, now_ms)
    return cleaned


class ProducerFields(TypedDict, total=False):
    producer_id: int
    base_sequence: int


def produce(
    log: Log, at_ms: int, *pairs: tuple[str, str | None], **producer: Unpack[ProducerFields]
) -> None:
    records = [
        SimpleRecord(key.encode(), None if value is None else value.encode(), at_ms)
        for key, value in pairs
    ]
    data = (
        build_batch(records, **producer, producer_epoch=0, is_transactional=True)
        if producer
        else build_batch(records)
    )
    # Offsets of a group are transactional as well; their coordinator has verified them.
    origin = AppendOrigin.COORDINATOR if producer else AppendOrigin.CLIENT
    log.append_as_leader(data, 0, at_ms, origin=origin)


def shape(log: Log, segment_index: int) -> list[tuple[int, int, int, int, int]]:
    """Return (base offset, last offset, count, size, crc) of each batch."""
    segment = list(log.segments)[segment_index]
    return [
        (h.base_offset, h.last_offset, h.record_count, h.size_bytes, h.crc)
        for _, h, _ in segment.scan()
    ]


def test_a_log_with_a_time_that_no_batch_can_hold_is_uncleanable() -> None:
    log = new_log(COMPACT)
    built = build_batch([SimpleRecord(b"k", b"1", T0), SimpleRecord(b"k", b"2", T0 + 1)])
    # The content of a client's batch is not parsed: the second record is of 2^63.
    header = read_header(built)._replace(base_timestamp=2**63 - 1)
    log.append_as_leader(seal_batch(header, built[HEADER_BYTES:]), 0, T0, validated=True)
    log.roll(T0)
    produce(log, T0, ("l", "1"))
    with pytest.raises(UncleanableLog):
        clean(log, T0 + 10_000)


@pytest.mark.parametrize("is_native", [False, True], ids=["python", "native"])
@pytest.mark.parametrize(
    "payload",
    [
        b"\xff" * 20,
        compress(Codec.ZSTD, encode_record(0, 0, b"k", bytes(decoded_bytes_limit(0)))),
    ],
    ids=["unparsable", "bomb"],
)
def test_a_batch_that_cannot_be_decoded_makes_its_log_uncleanable(
    payload: bytes, is_native: bool
) -> None:
    log = new_log(COMPACT)
    codec = Codec.NONE if payload.startswith(b"\xff") else Codec.ZSTD
    hostile = forge(sound(T0), payload, attributes=int(codec))
    log.append_as_leader(hostile, 0, T0, validated=True)
    log.roll(T0)
    produce(log, T0, ("l", "1"))
    with pytest.raises(UncleanableLog):
        clean(log, T0 + 10_000, settings=CleaningSettings(is_native=is_native))


def test_every_batch_is_as_kafka_left_it() -> None:
    files = MemoryFileSystem()
    storage = new_storage(files)
    log = new_log(COMPACT, storage)
    produce(log, T0, ("a", "1"), ("b", "1"), ("c", "1"), ("d", "1"), ("a", "2"), ("b", "2"))
    produce(log, T0 + 52, ("a", "3"))
    produce(log, T0 + 60, ("b", "3"))
    produce(log, T0 + 61, ("c", None))
    produce(log, T0 + 64, ("e", "1"))
    produce(log, T0 + 4721, ("f", "1"))

    first = clean(log, 1_795_269_144_751)
    assert first.end_offset == 10
    d = (0, 5, 1, 70, 454007073)
    b = (7, 7, 1, 70, 4130228569)
    c = (8, 8, 1, 71, 9568780)
    e = (9, 9, 1, 70, 716404930)
    f = (10, 10, 1, 70, 4069656126)
    assert shape(log, 0) == [d, (6, 6, 1, 70, 225746916), b, c, e]
    assert shape(log, 1) == [f]

    produce(log, 1_795_269_149_666, ("a", "4"), ("g", None))
    produce(log, 1_795_269_154_181, ("f", "2"))
    second = clean(log, 1_795_269_154_969, first.end_offset)
    assert second.end_offset == 13
    assert log.segments.base_offsets == [0, 13]
    assert shape(log, 0) == [d, b, c, e, f, (11, 12, 2, 82, 2260594374)]

    produce(log, 1_795_269_172_392, ("h", "1"))
    produce(log, 1_795_269_176_900, ("h", "2"))
    third = clean(log, 1_795_269_177_700, second.end_offset)
    a = (11, 12, 1, 72, 3350591488)
    f2 = (13, 13, 1, 70, 353076933)
    h1 = (14, 14, 1, 70, 404239917)
    assert shape(log, 0) == [d, b, e, a, f2, h1]
    assert log.segments.base_offsets == [0, 15]

    produce(log, 1_795_269_185_249, ("t", "t"), producer_id=0, base_sequence=0)
    for is_commit, at_ms in ((True, 1_795_269_185_326), (False, 1_795_269_185_357)):
        if not is_commit:
            produce(log, 1_795_269_185_300, ("t", "u"), producer_id=0, base_sequence=1)
        marker = build_end_transaction(EndTransactionMarker(is_commit, 0), 0, 0, at_ms)
        log.append_as_leader(marker, 0, at_ms, origin=AppendOrigin.COORDINATOR)
    produce(log, 1_795_269_189_857, ("f", "3"))
    fourth = clean(log, 1_795_269_190_700, third.end_offset)
    assert fourth.end_offset == 20
    h2 = (15, 15, 1, 70, 2127993010)
    transactions = [
        (16, 16, 1, 70, 2859130435),
        (17, 17, 1, 78, 3364624363),
        (18, 18, 0, 61, 480434673),
        (19, 19, 1, 78, 822976312),
    ]
    assert shape(log, 0) == [d, b, e, a, f2, h2, *transactions]
    assert shape(log, 1) == [(20, 20, 1, 70, 52937688)]
    assert log.aborted_transactions(0, 21) == [(0, 18, 19, 20)]

    names = files.list_directory(log.path)
    assert f"{0:020d}.txnindex" in names
    assert f"{20:020d}.snapshot" in names
    assert f"{16:020d}.txnindex.deleted" in names
    assert storage.delete_expired(1_795_269_190_700 + 2000) > 10
    left = [name for name in files.list_directory(log.path) if name[0] == "0"]
    assert left == [
        f"{0:020d}.index",
        f"{0:020d}.log",
        f"{0:020d}.timeindex",
        f"{0:020d}.txnindex",
        f"{20:020d}.index",
        f"{20:020d}.log",
        f"{20:020d}.snapshot",
        f"{20:020d}.timeindex",
    ]


SMALL_COMPACT = LogConfig(
    segment_bytes=400,
    segment_index_bytes=240,
    index_interval_bytes=50,
    cleanup_policy=("compact",),
    delete_retention_ms=1000,
)
keys = st.sampled_from("abcde")


@given(
    st.lists(
        st.lists(st.tuples(keys, st.none() | st.text("xy", max_size=20)), min_size=1, max_size=5),
        min_size=1,
        max_size=30,
    ),
    st.lists(st.integers(0, 2000), min_size=1, max_size=3),
)
def test_the_newest_value_of_every_key_survives(
    produced: list[list[tuple[str, str | None]]], waits_ms: list[int]
) -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL_COMPACT, new_storage(files))
    now_ms = NOW_MS
    cleaner_offset: int | None = None
    newest: dict[str, str | None] = {}
    for number, pairs in enumerate(produced):
        produce(log, NOW_MS, *pairs)
        newest.update(pairs)
        if number % 10 == 9 or number == len(produced) - 1:
            now_ms += waits_ms[number % len(waits_ms)]
            cleaner_offset = clean(log, now_ms, cleaner_offset).end_offset
    for current in (log, reload(files, SMALL_COMPACT, is_clean=False)):
        records = read_all(current)
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        last_values = {(record.key or b"").decode(): record.value for record in records}
        expected = {k: None if v is None else v.encode() for k, v in newest.items()}
        assert {k: v for k, v in last_values.items() if v is not None} == {
            k: v for k, v in expected.items() if v is not None
        }
        assert all(expected[key] is None for key in last_values if last_values[key] is None)
        assert current.log_end_offset == sum(map(len, produced))
        base_of_active = current.segments.active.base_offset
        below = [record.key for record in records if record.offset < base_of_active]
        assert len(below) == len(set(below)), "below the active segment each key is there once"


def filled(files: MemoryFileSystem | None = None, count: int = 30) -> Log:
    log = new_log(SMALL_COMPACT, new_storage(files))
    for number in range(count):
        produce(log, NOW_MS + number, (f"k{number % 3}", f"{number}" * 20))
    log.update_high_watermark(count)
    return log


class TestEligibility:
    def test_the_ratio_of_dirty_bytes(self) -> None:
        log = filled()
        dirty = dirty_range(log, None, NOW_MS)
        assert (dirty.first_dirty_offset, dirty.clean_bytes) == (0, 0)
        assert dirty.end_offset == log.segments.active.base_offset
        assert is_due(log, dirty)
        base = log.segments.base_offsets[-2]
        late = dirty_range(log, base, NOW_MS)
        assert 0 < late.dirty_ratio < 0.5
        assert not is_due(log, late)

    def test_a_log_without_a_dirty_part_is_not_due(self) -> None:
        log = filled()
        assert not is_due(log, dirty_range(log, log.segments.active.base_offset, NOW_MS))
        assert not is_due(new_log(), dirty_range(new_log(), None, NOW_MS))

    def test_open_transactions_and_the_high_watermark_stop_it(self) -> None:
        log = filled()
        log.update_high_watermark(7)
        assert log.segments.base_offsets[:3] == [0, 4, 8]
        assert dirty_range(log, None, NOW_MS).end_offset == 4, "the segment with the offset stays"
        log.update_high_watermark(8)
        assert dirty_range(log, None, NOW_MS).end_offset == 8

    def test_young_records_stop_it(self) -> None:
        log = new_log(LogConfig(segment_bytes=300, min_compaction_lag_ms=100))
        for number in range(30):
            append(log, "x" * 50, at_ms=NOW_MS + number)
        log.update_high_watermark(30)
        end = dirty_range(log, None, NOW_MS + 110).end_offset
        assert 0 < end <= 11
        assert end in log.segments.base_offsets

    def test_an_overdue_record_makes_it_due(self) -> None:
        config = LogConfig(
            segment_bytes=300, max_compaction_lag_ms=1000, min_cleanable_dirty_ratio=1.0
        )
        log = new_log(config)
        for _ in range(10):
            append(log, "x" * 50)
        log.update_high_watermark(10)
        assert not is_due(log, dirty_range(log, None, NOW_MS + 1000))
        assert is_due(log, dirty_range(log, None, NOW_MS + 1001))

    def test_a_checkpoint_outside_the_log_is_ignored(self) -> None:
        log = filled()
        assert dirty_range(log, 1000, NOW_MS).first_dirty_offset == 0
        log.increment_log_start_offset(5)
        assert dirty_range(log, 2, NOW_MS).first_dirty_offset == 5


class TestOtherThread:
    def test_appends_during_a_pass_stay(self) -> None:
        log = filled()
        plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
        cleaned = Cleaning(log.handles.file_system, plan, NOW_MS).run()
        produce(log, NOW_MS, ("k0", "during"))
        assert put_in_place(cleaned, NOW_MS)
        assert values(log)[-1] == (30, "during")
        assert cleaned.stats.written_bytes < cleaned.stats.read_bytes

    def test_a_truncation_during_a_pass_wins(self) -> None:
        files = MemoryFileSystem()
        log = filled(files)
        plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
        cleaned = Cleaning(files, plan, NOW_MS).run()
        log.truncate_to(4)
        before = values(log)
        assert not put_in_place(cleaned, NOW_MS)
        assert values(log) == before

    def test_a_regrown_log_is_not_mistaken_for_the_cleaned_log(self) -> None:
        files = MemoryFileSystem()
        log = filled(files)
        plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
        cleaned = Cleaning(files, plan, NOW_MS).run()
        last = plan.sources[-1]
        log.truncate_to(last.end_offset - 1)
        for number in range(last.end_offset - 1, 30):
            produce(log, NOW_MS + number, (f"k{number % 3}", "z" * len(f"{number}" * 20)))
        assert last.segment in list(log.segments)
        assert last.segment.size_bytes == last.size_bytes
        before = values(log)
        assert not put_in_place(cleaned, NOW_MS)
        assert values(log) == before

    def test_a_full_map_ends_the_pass_early(self) -> None:
        log = new_log(SMALL_COMPACT)
        for number in range(30):
            produce(log, NOW_MS, (f"k{number}", "v" * 20))
        log.update_high_watermark(30)
        plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
        cleaned = Cleaning(
            log.handles.file_system, plan, NOW_MS, CleaningSettings(map_bytes=450)
        ).run()
        assert 0 < cleaned.end_offset < log.segments.active.base_offset
        assert put_in_place(cleaned, NOW_MS)
        assert len(values(log)) == 30


def test_a_stop_at_any_point_of_the_exchange_loses_nothing() -> None:
    """The exchange is cut after every number of renames; a load finishes or undoes it."""
    renames = 0
    while True:
        files = MemoryFileSystem()
        log = filled(files)
        newest = {record.key: record.value for record in read_all(log)}
        plan = plan_cleaning(log, dirty_range(log, None, NOW_MS))
        cleaned = Cleaning(files, plan, NOW_MS).run()
        stop = _StopAfter(files, renames)
        try:
            put_in_place(cleaned, NOW_MS)
            is_complete = True
        except InterruptedError:
            is_complete = False
        stop.lift()
        loaded = reload(files, SMALL_COMPACT, is_clean=False, recovery_point=30)
        assert {record.key: record.value for record in read_all(loaded)} == newest
        assert loaded.log_end_offset == 30
        leftovers = (".cleaned", ".swap", ".deleted")
        assert not [n for n in files.list_directory(loaded.path) if n.endswith(leftovers)]
        if is_complete:
            break
        renames += 1
    assert renames > 10


class _StopAfter:
    """Lets a number of renames pass and stops the next."""

    def __init__(self, files: MemoryFileSystem, renames: int) -> None:
        self._left = renames
        self._rename = files.rename
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(files, "rename", self._counted)

    def _counted(self, source: str, target: str) -> None:
        if self._left == 0:
            raise InterruptedError
        self._left -= 1
        self._rename(source, target)

    def lift(self) -> None:
        self._patch.undo()


def test_a_marker_goes_after_its_records_and_its_horizon() -> None:
    log = new_log(SMALL_COMPACT)
    produce(log, NOW_MS, ("k", "old"), producer_id=5, base_sequence=0)
    end_transaction(log, 5, is_commit=True)
    produce(log, NOW_MS, ("other", "x"), producer_id=5, base_sequence=1)
    end_transaction(log, 5, is_commit=True)
    produce(log, NOW_MS, ("k", "new"))
    log.roll(NOW_MS)
    produce(log, NOW_MS, ("active", "y"))
    clean(log, NOW_MS)
    markers = [h for _, h in batches(log.read(0, 9999, 6).records) if h.is_control]
    assert [h.base_offset for h in markers] == [1, 3]
    assert [h.delete_horizon_ms for h in markers] == [None, None]
    clean(log, NOW_MS)
    markers = [h for _, h in batches(log.read(0, 9999, 6).records) if h.is_control]
    assert [h.delete_horizon_ms for h in markers] == [NOW_MS + 1000, None]
    clean(log, NOW_MS + 999)
    assert len([h for _, h in batches(log.read(0, 9999, 6).records) if h.is_control]) == 2
    clean(log, NOW_MS + 1000)
    markers = [h for _, h in batches(log.read(0, 9999, 6).records) if h.is_control]
    assert [h.base_offset for h in markers] == [3]


class TestCleaner:
    def prepared(self, files: MemoryFileSystem) -> tuple[DirectoryStore, Cleaner]:
        files.make_directories("/data")
        directory = DirectoryStore(files, "/data")
        directory.load(lambda topic: SMALL_COMPACT, NOW_MS)
        for topic, count in (("few", 12), ("many", 40)):
            topic_partition = TopicPartition(topic, 0)
            log = directory.create(topic_partition, topic.encode() * 4, SMALL_COMPACT, NOW_MS)
            for number in range(count):
                produce(log, NOW_MS, (f"k{number % 3}", f"{number}" * 20))
            log.update_high_watermark(count)
        return directory, Cleaner(directory)

    def test_the_dirtiest_log_first_and_each_once_at_a_time(self) -> None:
        directory, cleaner = self.prepared(MemoryFileSystem())
        first = cleaner.next_pass(NOW_MS)
        second = cleaner.next_pass(NOW_MS)
        assert first is not None
        assert second is not None
        assert cleaner.next_pass(NOW_MS) is None
        for cleaning in (first, second):
            assert cleaner.finish(cleaning.run(), NOW_MS)
        assert cleaner.next_pass(NOW_MS) is None, "everything is clean"
        checkpoint = read_offset_checkpoint(
            directory.storage.file_system, "/data/cleaner-offset-checkpoint"
        )
        assert checkpoint == {
            topic_partition: log.segments.active.base_offset
            for topic_partition, log in directory.logs.items()
        }

    @pytest.mark.parametrize("event", ["deleted", "stray", "truncated", "emptied"])
    @pytest.mark.parametrize("is_begun", [False, True], ids=["before the copy", "after the copy"])
    def test_a_log_that_changes_aborts_its_pass(self, event: str, is_begun: bool) -> None:
        files = MemoryFileSystem()
        directory, cleaner = self.prepared(files)
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        log = cleaning.plan.log
        cleaned = cleaning.run() if is_begun else None
        match event:
            case "deleted":
                directory.delete_later(log, b"u" * 16, NOW_MS)
            case "stray":
                directory.mark_stray(log, b"u" * 16)
            case "truncated":
                log.truncate_to(4)
            case "emptied":
                log.truncate_fully_and_start_at(50)
        if cleaned is None:
            with pytest.raises(CleaningAborted):
                cleaning.run()
            cleaner.cancel(cleaning.plan)
        else:
            assert not cleaner.finish(cleaned, NOW_MS)
        assert directory.cleaner_offset(log.topic_partition) is None
        left = files.list_directory(log.path) + files.list_directory("/data")
        if event in ("truncated", "emptied"):
            assert not [name for name in left if "cleaned" in name]
        assert directory.delete_expired(NOW_MS + 10**6) == (1 if event == "deleted" else 0)

    def test_a_deletion_takes_files_from_under_a_pass_without_harm(self) -> None:
        """The log is deleted while the pass is between two batches."""
        files = MemoryFileSystem()
        directory, cleaner = self.prepared(files)
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        log = cleaning.plan.log
        opened = files.open
        count = 0

        def open_and_delete(path: str, *, create: bool = False, writable: bool = True) -> File:
            nonlocal count
            count += 1
            if count == 3:
                directory.delete_later(log, b"u" * 16, NOW_MS)
                directory.delete_expired(NOW_MS + 10**6)
            return opened(path, create=create, writable=writable)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(files, "open", open_and_delete)
            with pytest.raises(CleaningAborted):
                cleaning.run()
        cleaner.cancel(cleaning.plan)
        assert not log.is_being_cleaned

    def test_retention_waits_for_the_pass(self) -> None:
        files = MemoryFileSystem()
        directory, cleaner = self.prepared(files)
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        log = cleaning.plan.log
        log.increment_log_start_offset(10)
        assert directory.apply_retention(NOW_MS) == 0
        cleaning.run()
        cleaner.cancel(cleaning.plan)
        assert directory.apply_retention(NOW_MS) > 0

    def test_a_damaged_log_does_not_keep_the_others_from_being_compacted(self) -> None:
        files = MemoryFileSystem()
        _, cleaner = self.prepared(files)
        damaged = cleaner.next_pass(NOW_MS)
        assert damaged is not None
        files.open(damaged.plan.sources[0].segment.path).pwrite(b"garbage", 70)
        with pytest.raises(UncleanableLog, match=damaged.plan.path):
            damaged.run()
        cleaner.give_up_failed(damaged, ValueError("damaged"), NOW_MS)
        other = cleaner.next_pass(NOW_MS)
        assert other is not None
        assert other.plan.path != damaged.plan.path
        assert cleaner.finish(other.run(), NOW_MS)
        assert cleaner.next_pass(NOW_MS) is None

    def test_a_failed_log_waits_longer_each_time_and_a_finished_pass_ends_that(self) -> None:
        _, cleaner = self.prepared(MemoryFileSystem())
        other = cleaner.next_pass(NOW_MS)
        assert other is not None
        now_ms, waits = NOW_MS, []
        for _ in range(9):
            cleaning = cleaner.next_pass(now_ms)
            assert cleaning is not None
            cleaner.give_up_failed(cleaning, LookupError("a mistake"), now_ms)
            assert cleaner.counts.uncleanable == 1
            assert cleaner.counts.uncleanable_bytes == cleaning.plan.dirty.dirty_bytes
            began_ms = now_ms
            while cleaner.next_pass(now_ms) is None:
                now_ms += FIRST_RETRY_MS
            waits.append((now_ms - began_ms) // FIRST_RETRY_MS)
            cleaning.plan.log.end_cleaning()
        assert waits == [1, 2, 4, 8, 16, 32, 60, 60, 60]
        cleaning = cleaner.next_pass(now_ms)
        assert cleaning is not None
        assert cleaner.finish(cleaning.run(), now_ms)
        counts = cleaner.counts
        assert (counts.uncleanable, counts.uncleanable_bytes, counts.failed_passes) == (0, 0, 9)

    def test_a_failed_log_is_tried_again_with_other_settings(self) -> None:
        _, cleaner = self.prepared(MemoryFileSystem())
        for _ in range(2):
            cleaning = cleaner.next_pass(NOW_MS)
            assert cleaning is not None
            cleaner.give_up_failed(cleaning, MemoryError("a key map"), NOW_MS)
        assert cleaner.next_pass(NOW_MS) is None
        assert cleaner.next_pass(NOW_MS, CleaningSettings(map_bytes=1024 * 1024)) is not None

    def test_a_truncated_log_whose_pass_failed_does_not_wait(self) -> None:
        _, cleaner = self.prepared(MemoryFileSystem())
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        log = cleaning.plan.log
        log.truncate_to(log.segments.active.base_offset)
        cleaner.give_up_failed(cleaning, LookupError("a batch that is gone"), NOW_MS)
        again = cleaner.next_pass(NOW_MS)
        assert again is not None
        assert again.plan.log is log

    def test_a_deleted_log_is_no_failure_any_more(self) -> None:
        directory, cleaner = self.prepared(MemoryFileSystem())
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        cleaner.give_up_failed(cleaning, LookupError("a mistake"), NOW_MS)
        directory.delete_later(cleaning.plan.log, bytes(16), NOW_MS)
        cleaner.next_pass(NOW_MS)
        assert cleaner.counts.uncleanable == 0

    def test_a_log_that_cannot_be_examined_leaves_the_others_and_the_disk_alone(self) -> None:
        files = MemoryFileSystem()
        directory, cleaner = self.prepared(files)
        damaged = directory.logs[TopicPartition("many", 0)]
        first = damaged.segments.first
        first.roll_timestamp = None  # as after a start
        files.open(first.path).pwrite(b"\x09", 16)
        other = cleaner.next_pass(NOW_MS)
        assert other is not None
        assert other.plan.path != damaged.path
        assert cleaner.counts.uncleanable == 1

    def test_a_pass_keeps_the_settings_that_it_began_with(self) -> None:
        _, cleaner = self.prepared(MemoryFileSystem())
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        log = cleaning.plan.log
        log.config = LogConfig(cleanup_policy=("delete",))
        assert cleaner.finish(cleaning.run(), NOW_MS)
        for _ in range(2):
            following = cleaner.next_pass(NOW_MS)
            if following is None:
                break
            assert following.plan.log is not log
            cleaner.finish(following.run(), NOW_MS)

    def test_a_failed_pass_leaves_nothing_behind(self) -> None:
        files = MemoryFileSystem()
        _, cleaner = self.prepared(files)
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        files.faults.append(Fault(".log.cleaned", "pwrite"))
        with pytest.raises(OSError, match="injected"):
            cleaning.run()
        files.faults.clear()
        cleaner.cancel(cleaning.plan)
        assert not [n for n in files.list_directory(cleaning.plan.path) if "cleaned" in n]
        assert cleaner.next_pass(NOW_MS) is not None


@pytest.mark.parametrize("is_cut", [False, True])
def test_batches_behind_one_that_does_not_end_are_not_taken_for_removed(is_cut: bool) -> None:
    log = new_log(COMPACT)
    for key in "abc":
        produce(log, T0, (key, "1"))
    log.roll(T0)
    first = next(iter(log.segments))
    file = log.handles.get(first.path)
    second = first.size_bytes // 3
    if is_cut:
        file.truncate(second)
    else:
        # The checksum does not cover the length of a batch.
        file.pwrite((2**30).to_bytes(4, "big"), second + 8)
    with pytest.raises(UncleanableLog, match=f"at byte {second}"):
        clean(log, T0)


def test_a_tombstone_after_a_cleaned_aborted_transaction_of_its_producer_deletes_its_key() -> None:
    log = new_log(COMPACT)
    produce(log, T0, ("k", "old"))
    produce(log, T0, ("x", "aborted"), producer_id=5, base_sequence=0)
    end_transaction(log, 5, is_commit=False)
    log.roll(T0)
    end_offset = clean(log, T0).end_offset
    produce(log, T0, ("k", None), producer_id=5, base_sequence=1)
    end_transaction(log, 5, is_commit=True)
    log.roll(T0)
    clean(log, T0, end_offset)
    assert [r.value for r in read_all(log) if r.key == b"k"] == [None]


def test_few_descriptors_are_used() -> None:
    files = MemoryFileSystem()
    files.make_directories("/data")
    storage = LogStorage(files, "/data", open_files=4)
    log = new_log(SMALL_COMPACT, storage)
    for number in range(100):
        append(log, f"{number}" * 10)
    clean(log, NOW_MS)
    assert len(storage.handles) <= 4
    assert len(values(log)) < 20


def test_batches_stay_compressed() -> None:
    log = new_log(SMALL)
    for number in range(20):
        log.append_as_leader(batch(*"abcd", key=b"%d" % (number % 2), codec=3), 0, NOW_MS)
    clean(log, NOW_MS)
    codecs = {header.codec for _, header in batches(log.read(0, 9999, 80).records)}
    assert codecs <= {0, 3}
    assert [offset for offset, _ in values(log)] == sorted({o for o, _ in values(log)})
