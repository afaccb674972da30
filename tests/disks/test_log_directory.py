"""A log directory: loading, checkpoints, deletion, flushes and the clean-shutdown file."""

from collections.abc import Callable

import pytest
from log_builders import NOW_MS, append, new_storage, search, values

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.disks import directory_store
from spindle.disks.directory_store import DirectoryStore
from spindle.log.errors import DuplicateLogDirectories, LogDeleted, UnexpectedDirectory
from spindle.log.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from spindle.log.formats.clean_shutdown import read_clean_shutdown
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.testing.filesystem import Fault, MemoryFileSystem

ROOT = "/data"
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b.c-d", 0)
IDS = {"a": b"a" * 16, "b.c-d": b"b" * 16}
UNIQUE = bytes(range(16))
DAY_MS = 86_400_000
CONFIG = LogConfig(segment_bytes=500, retention_ms=1000, file_delete_delay_ms=100)


def config_of(_: str) -> LogConfig:
    return CONFIG


def opened(files: MemoryFileSystem | None = None) -> DirectoryStore:
    storage = new_storage(files)
    directory = DirectoryStore(storage.file_system, ROOT)
    directory.load(config_of, NOW_MS)
    directory.settle_missing(directory.missing_at_start)  # as after the first metadata
    return directory


def create(directory: DirectoryStore, *partitions: TopicPartition, count: int = 3) -> None:
    for topic_partition in partitions:
        log = directory.create(topic_partition, IDS[topic_partition.topic], CONFIG, NOW_MS)
        for _ in range(count):
            append(log, "x" * 100)


def offsets(files: MemoryFileSystem, name: str) -> dict[TopicPartition, int]:
    return read_offset_checkpoint(files, f"{ROOT}/{name}")


def test_a_fresh_directory_gets_empty_checkpoints() -> None:
    files = MemoryFileSystem()
    files.make_directories(ROOT)
    loaded(files)
    assert files.list_directory(ROOT) == [
        "cleaner-offset-checkpoint",
        "log-start-offset-checkpoint",
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
    ]
    assert all(files.size(f"{ROOT}/{name}") == 0 for name in files.list_directory(ROOT))


def test_logs_with_records_that_are_missing_are_known_until_they_are_created() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, A1)
    create(directory, B0, count=0)
    directory.close(1)
    for where in (A0, B0):
        files.remove_tree(f"{ROOT}/{where.topic}-{where.partition}")
    for _ in range(2):  # the evidence outlives a start and its checkpoints
        again = opened(files)
        assert again.missing_at_start == {A0}
        again.checkpoint_recovery_points()
        again.checkpoint_high_watermarks()
    create(again, A0)
    assert again.missing_at_start == set()
    again.checkpoint_recovery_points()
    assert offsets(files, "recovery-point-offset-checkpoint")[A0] == 0


def loaded(files: MemoryFileSystem) -> DirectoryStore:
    """Return a directory before it is known which replicas it needs."""
    directory = DirectoryStore(files, ROOT)
    directory.load(config_of, NOW_MS)
    return directory


@pytest.mark.parametrize("lost", ["recovery-point-offset", "replication-offset"])
@pytest.mark.parametrize("content", [None, b"0\n5\n", b""])
def test_without_a_checkpoint_of_all_logs_any_log_may_be_missing(
    lost: str, content: bytes | None
) -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, B0, count=0)
    directory.close(1)
    assert not loaded(files).may_lack(A1, IDS["a"])
    path = f"{ROOT}/{lost}-checkpoint"
    files.remove(path)
    if content is not None:
        files.write_atomically(path, content)
    for _ in range(2):  # a start that ends before it knows the metadata settles nothing
        again = loaded(files)
        assert again.may_lack(A1, IDS["a"])
        again.close(1)
    again = loaded(files)
    again.settle_missing({A1})
    assert again.may_lack(A1, IDS["a"])
    assert not again.may_lack(B0, IDS["b.c-d"]), "a later topic"
    again.close(1)
    again = loaded(files)
    assert again.may_lack(A1, IDS["a"]), "the next start has to know it as well"
    create(again, A1)
    again.settle_missing(())
    again.close(1)
    assert not loaded(files).may_lack(A1, IDS["a"])


def test_the_entries_of_a_missing_log_that_no_replica_needs_are_dropped() -> None:
    files = MemoryFileSystem()
    opened(files)
    write_offset_checkpoint(files, f"{ROOT}/replication-offset-checkpoint", {A0: 3, A1: 0})
    directory = opened(files)
    assert directory.missing_at_start == {A0}
    directory.settle_missing(())
    directory.checkpoint_high_watermarks()
    assert offsets(files, "replication-offset-checkpoint") == {}


def test_a_new_partition_has_kafkas_files() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    log = directory.create(A0, IDS["a"], LogConfig(), NOW_MS)
    directory.new_epochs.begin([(log, 0)])
    directory.new_epochs.store_all()
    sizes = {name: files.size(f"{ROOT}/a-0/{name}") for name in files.list_directory(f"{ROOT}/a-0")}
    assert sizes == {
        "00000000000000000000.index": 10485760,
        "00000000000000000000.log": 0,
        "00000000000000000000.timeindex": 10485756,
        "leader-epoch-checkpoint": 8,
        "partition.metadata": 43,
    }
    assert files.read_bytes(f"{ROOT}/a-0/leader-epoch-checkpoint") == b"0\n1\n0 0\n"
    assert files.read_bytes(f"{ROOT}/a-0/partition.metadata") == (
        b"version: 0\ntopic_id: YWFhYWFhYWFhYWFhYWFhYQ"
    )


def test_a_clean_stop_is_marked_and_loaded_without_recovery() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, A1, B0)
    directory.logs[A0].update_high_watermark(2)
    directory.close(broker_epoch=11)
    assert files.read_bytes(f"{ROOT}/.kafka_cleanshutdown") == b'{"version":0,"brokerEpoch":11}'
    assert offsets(files, "recovery-point-offset-checkpoint") == {A0: 3, A1: 3, B0: 3}
    assert offsets(files, "replication-offset-checkpoint") == {A0: 2, A1: 0, B0: 0}
    assert offsets(files, "log-start-offset-checkpoint") == {}
    files.crash()
    again = DirectoryStore(files, ROOT)
    seen: list[tuple[int, int]] = []
    loaded = again.load(config_of, NOW_MS, lambda *progress: seen.append(progress))
    assert (loaded.was_clean, loaded.log_count, loaded.deletion_count) == (True, 3, 0)
    assert seen == [(1, 3), (2, 3), (3, 3)]
    assert [again.logs[tp].log_end_offset for tp in (A0, A1, B0)] == [3, 3, 3]
    assert again.logs[A0].high_watermark == 2
    assert again.logs[B0].topic_id == IDS["b.c-d"]
    assert read_clean_shutdown(files, ROOT) is None, "loading removes the clean-shutdown file first"


def test_a_power_failure_does_not_bring_the_clean_mark_back() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0)
    directory.close(broker_epoch=11)
    DirectoryStore(files, ROOT).load(config_of, NOW_MS)
    files.crash()
    assert not DirectoryStore(files, ROOT).load(config_of, NOW_MS).was_clean


def test_after_a_kill_it_is_not_clean() -> None:
    files = MemoryFileSystem()
    create(opened(files), A0)
    again = DirectoryStore(files, ROOT)
    assert not again.load(config_of, NOW_MS).was_clean
    assert again.logs[A0].log_end_offset == 3


def test_log_starts_are_remembered_only_inside_a_segment() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, A1, count=20)
    for log in directory.logs.values():
        log.update_high_watermark(20)
    directory.logs[A0].increment_log_start_offset(1)
    second = directory.logs[A1].segments.base_offsets[1]
    directory.logs[A1].increment_log_start_offset(second)
    directory.logs[A1].delete_old_segments(NOW_MS)
    directory.checkpoint_log_starts()
    assert offsets(files, "log-start-offset-checkpoint") == {A0: 1}
    again = DirectoryStore(files, ROOT)
    again.load(config_of, NOW_MS)
    assert [again.logs[tp].log_start_offset for tp in (A0, A1)] == [1, second]


def test_the_mark_is_withheld_when_loading_did_not_finish() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0)
    directory.close(5)
    files.write_atomically(f"{ROOT}/a-0/leader-epoch-checkpoint", b"junk")
    again = DirectoryStore(files, ROOT)
    with pytest.raises(CorruptLog):
        again.load(config_of, NOW_MS)
    again.close(6)
    assert read_clean_shutdown(files, ROOT) is None


def test_a_malformed_checkpoint_of_log_starts_is_reported() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0)
    files.write_atomically(f"{ROOT}/log-start-offset-checkpoint", b"0\n1\na zero 5\n")
    with pytest.raises(CorruptLog, match="malformed line 'a zero 5'"):
        DirectoryStore(files, ROOT).load(config_of, NOW_MS)


@pytest.mark.parametrize(
    "content", [b"0\n2\na 0 5\n", b"\xff\xfe\x00", b"0\n1\na zero 5\n", b"7\n0\n"]
)
@pytest.mark.parametrize("name", ["recovery-point", "replication"])
def test_a_malformed_checkpoint_is_replaced_if_no_record_depends_on_it(
    name: str, content: bytes
) -> None:
    files = MemoryFileSystem()
    create(opened(files), A0)
    files.write_atomically(f"{ROOT}/{name}-offset-checkpoint", content)
    (log,) = DirectoryStore(files, ROOT).load(config_of, NOW_MS).current
    assert (log.log_end_offset, log.recovery_point, log.high_watermark) == (3, 0, 0)
    assert files.read_bytes(f"{ROOT}/{name}-offset-checkpoint") == b""


@pytest.mark.parametrize(
    "content", [b"0\n2\na 0 5\n", b"\xff\xfe\x00", b"0\n1\na zero 5\n", b"7\n0\n"]
)
def test_a_malformed_checkpoint_of_compaction_is_written_again(content: bytes) -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0)
    directory.set_cleaner_offset(A0, 5)
    files.write_atomically(f"{ROOT}/cleaner-offset-checkpoint", content)
    again = DirectoryStore(files, ROOT)
    assert [log.topic_partition for log in again.load(config_of, NOW_MS).current] == [A0]
    assert again.cleaner_offset(A0) is None
    assert files.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == b""


def test_a_new_log_does_not_inherit_how_far_an_earlier_one_was_clean_at_the_start() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0)
    directory.set_cleaner_offset(A0, 5)
    again = DirectoryStore(files, ROOT)
    again.load(config_of, NOW_MS)
    again.delete_later(again.logs[A0], bytes(16), NOW_MS)
    create(again, A0)
    assert files.read_bytes(f"{ROOT}/cleaner-offset-checkpoint") == b"0\n0\n"


def test_only_known_directories_may_lie_in_a_log_directory() -> None:
    files = MemoryFileSystem()
    opened(files)
    files.make_directories(f"{ROOT}/__cluster_metadata-0")
    files.make_directories(f"{ROOT}/remote-log-index-cache")
    files.open(f"{ROOT}/meta.properties", create=True)
    files.make_directories(f"{ROOT}/lost+found")
    assert DirectoryStore(files, ROOT).load(config_of, NOW_MS).log_count == 0
    files.make_directories(f"{ROOT}/photos")
    with pytest.raises(UnexpectedDirectory, match="/data/photos"):
        DirectoryStore(files, ROOT).load(config_of, NOW_MS)


class TestDeletion:
    def test_the_directory_is_renamed_and_goes_later(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0, A1)
        directory.checkpoint_recovery_points()
        log = directory.logs[A0]
        directory.delete_later(log, UNIQUE, NOW_MS)
        name = "a-0.000102030405060708090a0b0c0d0e0f-delete"
        assert log.path == f"{ROOT}/{name}"
        assert list(directory.logs) == [A1]
        assert list(offsets(files, "recovery-point-offset-checkpoint")) == [A1]
        assert directory.delete_expired(NOW_MS + 99) == 0
        assert files.exists(f"{ROOT}/{name}")
        assert directory.delete_expired(NOW_MS + 100) == 1
        assert not files.exists(f"{ROOT}/{name}")
        create(directory, A0)

    def test_logs_of_an_earlier_run_are_removed_once_they_are_known_to_be_unneeded(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        directory.delete_later(directory.logs[A0], UNIQUE, NOW_MS)
        again = DirectoryStore(files, ROOT)
        assert again.load(config_of, NOW_MS).deletion_count == 1
        assert again.logs == {}
        assert again.delete_expired(NOW_MS + 1_000_000) == 0
        (deleted,) = again.deleted_at_start
        assert (deleted.topic_partition, deleted.topic_id) == (A0, IDS["a"])
        again.remove_deleted(deleted, NOW_MS + 100)
        assert again.delete_expired(NOW_MS + 99) == 0
        assert again.delete_expired(NOW_MS + 100) == 1
        assert again.deleted_at_start == []

    def test_a_log_that_is_kept_before_its_removal_comes_back_with_its_log_start(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        log = directory.logs[A0]
        log.update_high_watermark(3)
        log.increment_log_start_offset(2)
        directory.checkpoint_log_starts()
        log.rename("a-0.0123456789abcdef0123456789abcdef-delete")
        again = opened(files)
        (deleted,) = again.deleted_at_start
        again.remove_deleted(deleted, NOW_MS + 100)
        again.checkpoint_log_starts()
        assert again.delete_expired(NOW_MS + 99) == 0
        assert again.keep_deleted(deleted) is deleted
        assert again.delete_expired(NOW_MS + 100) == 0
        restored = again.restore(deleted, A0, CONFIG, NOW_MS)
        assert restored.log_start_offset == 2

    def test_a_former_log_has_its_log_start_if_a_kill_comes_before_the_new_log(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        log = directory.logs[A0]
        log.update_high_watermark(3)
        log.increment_log_start_offset(2)
        directory.checkpoint_log_starts()

        def killed(*_: object) -> Log:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(directory_store, "create_log", killed)
            with pytest.raises(KeyboardInterrupt):
                directory.replace_with_empty(log, UNIQUE, NOW_MS)
        again = opened(files)
        (deleted,) = again.deleted_at_start
        assert again.restore(deleted, A0, CONFIG, NOW_MS).log_start_offset == 2

    def test_the_entries_of_a_removed_log_go_with_it(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        directory.checkpoint_recovery_points()
        directory.logs[A0].rename("a-0.0123456789abcdef0123456789abcdef-delete")
        again = opened(files)
        (deleted,) = again.deleted_at_start
        again.remove_deleted(deleted, NOW_MS + 100)
        assert again.delete_expired(NOW_MS + 100) == 1
        assert again.keep_deleted(deleted) is None
        again.checkpoint_recovery_points()
        assert offsets(files, "recovery-point-offset-checkpoint") == {}

    def test_a_log_that_was_set_aside_comes_back_with_its_offsets_after_two_starts(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0, count=2)
        log = directory.logs[A0]
        log.update_high_watermark(2)
        log.increment_log_start_offset(1)
        directory.rename_to_replaced(log, f"/other/a-0.{'0' * 32}-future")
        directory.close(1)
        for _ in range(2):
            again = DirectoryStore(files, ROOT)
            again.load(config_of, NOW_MS)
            again.checkpoint_recovery_points()
            again.checkpoint_log_starts()
            again.checkpoint_high_watermarks()
        (deleted,) = again.deleted_at_start
        assert again.bytes_of_deleted(deleted) > 0
        restored = again.restore(deleted, A0, config_of("a"), NOW_MS)
        assert (restored.log_start_offset, restored.high_watermark) == (1, 2)
        assert restored.log_end_offset == 2
        assert files.list_directory(ROOT).count("a-0") == 1

    def test_a_damaged_topic_id_in_a_half_removed_directory_is_unknown(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        log = directory.logs[A0]
        directory.delete_later(log, UNIQUE, NOW_MS)
        files.write_atomically(f"{log.path}/partition.metadata", b"garbage")
        again = DirectoryStore(files, ROOT)
        again.load(config_of, NOW_MS)
        assert again.deleted_at_start[0].topic_id is None

    def test_an_operator_may_have_removed_what_a_former_run_left(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        directory.delete_later(directory.logs[A0], UNIQUE, NOW_MS)
        again = opened(files)
        (deleted,) = again.deleted_at_start
        files.remove_tree(f"{ROOT}/{deleted.name}")
        assert again.bytes_of_deleted(deleted) == 0
        again.remove_deleted(deleted, NOW_MS)
        assert again.delete_expired(NOW_MS) == 0

    def test_deleted_bytes_are_those_that_are_not_gone_yet(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        log = directory.logs[A0]
        append(log, "some bytes")
        size_bytes = log.size_bytes
        assert size_bytes > 0
        directory.delete_later(log, UNIQUE, NOW_MS)
        assert directory.storage.deleted_bytes == size_bytes
        again = DirectoryStore(files, ROOT)
        again.load(config_of, NOW_MS)
        assert again.storage.deleted_bytes == 0, "whether it is needed is not known yet"
        for deleted in list(again.deleted_at_start):
            again.remove_deleted(deleted, NOW_MS)
        assert again.storage.deleted_bytes >= size_bytes
        for store in (directory, again):
            store.delete_expired(NOW_MS + 100)
            assert store.storage.deleted_bytes == 0

    def test_work_that_comes_after_the_files_are_gone_is_refused(self) -> None:
        """A dead disk would report a missing file as well; this one is fine."""
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        log = directory.logs[A0]
        log.update_high_watermark(3)
        directory.delete_later(log, UNIQUE, NOW_MS)
        directory.delete_expired(NOW_MS + 100)
        work: list[Callable[[], object]] = [
            lambda: log.read(0, 1000, 3),
            lambda: append(log, "late"),
            lambda: log.aborted_transactions(0, 3),
            lambda: search(log, NOW_MS),
            lambda: search(log, None),
            lambda: log.assign_epoch_start(5, 3),
            lambda: log.increment_log_start_offset(1),
            lambda: log.truncate_to(1),
            lambda: log.truncate_fully_and_start_at(7),
            log.begin_flush,
        ]
        for late in work:
            with pytest.raises(LogDeleted, match="a-0 on this broker was deleted"):
                late()

    def test_no_file_of_it_stays_open(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        create(directory, A0)
        directory.delete_later(directory.logs[A0], UNIQUE, NOW_MS)
        assert len(directory.storage.handles) == 0


class TestFutureLogs:
    def test_promotion_gives_the_plain_name(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        future = directory.create(A0, IDS["a"], CONFIG, NOW_MS, future_unique=UNIQUE)
        append(future, "moved")
        assert future.path.endswith("a-0.000102030405060708090a0b0c0d0e0f-future")
        assert (list(directory.logs), list(directory.future_logs)) == ([], [A0])
        again = DirectoryStore(files, ROOT)
        again.load(config_of, NOW_MS)
        assert again.future_logs[A0].log_end_offset == 1
        log = again.promote_future(A0)
        assert (log.path, again.future_logs) == (f"{ROOT}/a-0", {})
        assert append(again.logs[A0], "next") == 1

    def test_a_current_log_in_the_same_directory_forbids_it(self) -> None:
        directory = opened()
        directory.create(A0, IDS["a"], CONFIG, NOW_MS, future_unique=UNIQUE)
        create(directory, A0)
        with pytest.raises(DuplicateLogDirectories):
            directory.promote_future(A0)

    def test_two_of_one_partition_are_refused(self) -> None:
        files = MemoryFileSystem()
        directory = opened(files)
        directory.create(A0, IDS["a"], CONFIG, NOW_MS, future_unique=UNIQUE)
        files.make_directories(f"{ROOT}/a-0.{'f' * 32}-future")
        with pytest.raises(DuplicateLogDirectories, match="a-0"):
            DirectoryStore(files, ROOT).load(config_of, NOW_MS)

    def test_a_log_is_not_created_twice(self) -> None:
        directory = opened()
        create(directory, A0)
        with pytest.raises(DuplicateLogDirectories, match="a-0 is in /data already"):
            create(directory, A0)


def test_strays_are_kept_but_not_served() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, A1)
    directory.mark_stray(directory.logs[A0], UNIQUE)
    assert (list(directory.logs), list(directory.stray_logs)) == ([A1], [A0])
    again = DirectoryStore(files, ROOT)
    assert again.load(config_of, NOW_MS).log_count == 2
    assert again.stray_logs[A0].log_end_offset == 3
    assert again.delete_expired(NOW_MS + 10**9) == 0


def test_a_stray_keeps_its_records_below_the_start_of_a_new_log_of_its_name() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, count=3)
    directory.mark_stray(directory.logs[A0], UNIQUE)
    log = directory.create(A0, b"n" * 16, CONFIG, NOW_MS)
    for _ in range(10):
        append(log, "x" * 100)
    log.update_high_watermark(10)
    log.increment_log_start_offset(9)
    directory.checkpoint_log_starts()
    again = opened(files)
    assert again.logs[A0].log_start_offset == 9
    assert len(values(again.stray_logs[A0])) == 3


@pytest.mark.parametrize("goes", ["deleted", "stray"])
def test_a_log_inherits_nothing_of_an_earlier_one_of_its_name(goes: str) -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, count=5)
    directory.logs[A0].update_high_watermark(5)
    directory.checkpoint_high_watermarks()
    if goes == "deleted":
        directory.delete_later(directory.logs[A0], UNIQUE, NOW_MS)
    else:
        directory.mark_stray(directory.logs[A0], UNIQUE)
    directory.create(A0, b"n" * 16, CONFIG, NOW_MS)
    append(directory.logs[A0], "x")
    assert opened(files).logs[A0].high_watermark == 0


def test_retention_and_flushing_reach_every_log() -> None:
    directory = opened()
    create(directory, A0, A1, count=20)
    assert {log.topic_partition for log, _ in directory.begin_flushes(NOW_MS)} == {A0, A1}
    for log in directory.all_logs():
        log.flush()
        log.update_high_watermark(20)
    assert directory.begin_flushes(NOW_MS) == []
    before = directory.size_bytes()
    assert directory.apply_retention(NOW_MS) == 0
    assert directory.apply_retention(NOW_MS + 2000) > 2
    assert directory.size_bytes() < before


def test_a_log_that_cannot_be_aged_does_not_keep_retention_from_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    directory = opened()
    create(directory, A0, A1)
    first, second = directory.all_logs()
    aged: list[Log] = []

    def age(log: Log, now_ms: int, *, only_below_start: bool = False) -> int:
        if log is first:
            raise CorruptLog(log.path, 7, "garbage")
        aged.append(log)
        return 1

    monkeypatch.setattr(Log, "delete_old_segments", age)
    assert directory.apply_retention(NOW_MS) == 1
    assert aged == [second]


def test_silent_producers_of_every_log_are_forgotten() -> None:
    directory = opened()
    create(directory, A0, A1)
    for log in directory.all_logs():
        append(log, "x", producer_id=7, sequence=0)
    assert all(log.active_producers() for log in directory.all_logs())
    directory.apply_retention(NOW_MS + 2 * DAY_MS)
    assert all(log.active_producers() for log in directory.all_logs())
    directory.forget_producers(NOW_MS + 2 * DAY_MS)
    assert not any(log.active_producers() for log in directory.all_logs())


def flushed(directory: DirectoryStore) -> list[Log]:
    return [log for log, _ in directory.begin_flushes_of_finished_segments()]


def test_finished_segments_are_found_once_after_a_roll() -> None:
    directory = opened()
    create(directory, A0, A1, count=1)
    assert flushed(directory) == []
    rolled = directory.logs[A0]
    rolled.roll(NOW_MS)
    assert flushed(directory) == [rolled]
    rolled.flush()
    rolled.roll(NOW_MS)
    assert flushed(directory) == []


def test_cleaner_offsets_are_kept() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    directory.set_cleaner_offset(A0, 20)
    assert DirectoryStore(files, ROOT).cleaner_offset(A0) is None
    again = DirectoryStore(files, ROOT)
    again.load(config_of, NOW_MS)
    assert again.cleaner_offset(A0) == 20
    again.set_cleaner_offset(A0, None)
    assert offsets(files, "cleaner-offset-checkpoint") == {}


def test_checkpoints_claim_nothing_of_an_end_that_was_cut_off() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, A1, count=10)
    for log in directory.logs.values():
        log.flush()
        log.update_high_watermark(9)
        directory.set_cleaner_offset(log.topic_partition, 8)
    directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks()
    cut = directory.logs[A0]
    cut.truncate_to(4)
    directory.note_truncated([cut])
    for name, other in (
        ("recovery-point-offset-checkpoint", 10),
        ("replication-offset-checkpoint", 9),
        ("cleaner-offset-checkpoint", 8),
    ):
        assert offsets(files, name) == {A0: 4, A1: other}


def test_records_appended_below_a_former_log_start_survive_a_kill() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, count=10)
    log = directory.logs[A0]
    log.update_high_watermark(10)
    log.increment_log_start_offset(9)
    directory.checkpoint_log_starts()
    log.truncate_to(4)
    directory.note_truncated([log])
    append(log, "acknowledged")
    assert values(opened(files).logs[A0]) == [(4, "acknowledged")]


def test_a_dead_disk_is_left_alone() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0)
    files.faults.append(Fault(ROOT))
    with pytest.raises(OSError, match="injected"):
        append(directory.logs[A0], "x")
    directory.close_without_flush()
    before = len(files.operations)
    directory.close_without_flush()
    assert (directory.logs, len(files.operations)) == ({}, before)


@pytest.mark.parametrize(
    ("content", "epoch"),
    [
        (b'{"version":0,"brokerEpoch":42}', 42),
        (b'{"version":1,"brokerEpoch":7,"more":true}', 7),
        (b"", -1),
        (b"[]", -1),
        (b'{"version":0}', -1),
        (b"\xff\xfe", -1),
    ],
)
def test_marks_of_other_runs(content: bytes, epoch: int) -> None:
    files = MemoryFileSystem()
    opened(files)
    files.write_atomically(f"{ROOT}/.kafka_cleanshutdown", content)
    assert read_clean_shutdown(files, ROOT) == epoch


@pytest.mark.parametrize("goes", ["deleted", "stray"])
def test_a_log_that_was_renamed_is_not_missing_after_a_kill(goes: str) -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, count=5)
    directory.logs[A0].flush()
    directory.logs[A0].update_high_watermark(5)
    directory.checkpoint_recovery_points()
    directory.checkpoint_high_watermarks()
    if goes == "deleted":
        directory.delete_logs([directory.logs[A0]], lambda: UNIQUE, NOW_MS)
        directory.delete_expired(NOW_MS + 10**9)
    else:
        directory.mark_stray(directory.logs[A0], UNIQUE)
        directory.checkpoint_logs_in_use()
    assert opened(files).missing_at_start == set()


LATER = b"l" * 16
"""The id of a later topic with the name of the first one."""


def with_deleted_log_of_an_earlier_topic(files: MemoryFileSystem) -> None:
    """Leave a `-delete` directory, and checkpoint entries of a later log, which has vanished."""
    directory = opened(files)
    create(directory, A0, count=2)
    directory.delete_logs([directory.logs[A0]], lambda: UNIQUE, NOW_MS)
    log = directory.create(A0, LATER, CONFIG, NOW_MS)
    for _ in range(3):
        append(log, "x")
    directory.close(1)
    files.remove_tree(f"{ROOT}/a-0")


def test_a_log_is_missing_although_that_of_an_earlier_topic_of_its_name_is_not_removed_yet() -> (
    None
):
    files = MemoryFileSystem()
    with_deleted_log_of_an_earlier_topic(files)
    again = loaded(files)
    assert again.may_lack(A0, LATER)
    again.settle_missing({A0})
    again.remove_deleted(again.deleted_at_start[0], NOW_MS)
    again.delete_expired(NOW_MS + 1)
    again.close(1)
    assert loaded(files).may_lack(A0, LATER), "the evidence outlives the -delete directory"


def test_entries_that_nobody_needs_are_dropped_beside_a_deleted_log() -> None:
    files = MemoryFileSystem()
    with_deleted_log_of_an_earlier_topic(files)
    again = loaded(files)
    again.settle_missing((), undecided={A0})
    assert again.may_lack(A0, LATER), "its replica is busy"
    again.settle_missing(())
    assert not again.may_lack(A0, LATER)
    again.close(1)
    assert not loaded(files).may_lack(A0, LATER)


def test_a_copy_of_the_same_topic_explains_entries_up_to_its_end_only() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, count=5)
    directory.rename_to_replaced(directory.logs[A0], f"/other/a-0.{'0' * 32}-future")
    directory.close(1)
    assert not loaded(files).may_lack(A0, IDS["a"])
    write_offset_checkpoint(files, f"{ROOT}/replication-offset-checkpoint", {A0: 6})
    assert loaded(files).may_lack(A0, IDS["a"])


def test_a_log_leaves_the_checkpoints_before_its_directory_is_renamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    create(directory, A0, count=5)
    directory.logs[A0].flush()
    directory.checkpoint_recovery_points()
    assert offsets(files, "recovery-point-offset-checkpoint") == {A0: 5}
    monkeypatch.setattr(files, "rename", raise_full)
    with pytest.raises(OSError, match="full"):
        directory.delete_logs([directory.logs[A0]], lambda: UNIQUE, NOW_MS)
    assert offsets(files, "recovery-point-offset-checkpoint") == {}


def raise_full(*_: object) -> None:
    raise OSError(28, "full")
