"""A compaction pass that is stopped after any operation on a file loses nothing, whatever stopped
it: the end of the process, a power failure, or the disk.
"""

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from log_builders import (
    NOW_MS,
    ROOT,
    TOPIC_ID,
    TOPIC_PARTITION,
    end_transaction,
    read_all,
    verified,
)

from spindle.common.ports import File
from spindle.disks.cleaner import Cleaner
from spindle.disks.directory_store import DirectoryStore
from spindle.log.cleaning.cleaning import CleaningResult
from spindle.log.errors import CleaningAborted
from spindle.log.formats.checkpoints import (
    CLEANER_OFFSETS,
    RECOVERY_POINTS,
    read_offset_checkpoint,
)
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.producers.verification import NO_TRANSACTION
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.testing.filesystem import MemoryFileSystem

CHECKPOINTS = (RECOVERY_POINTS, CLEANER_OFFSETS)
CONFIG = LogConfig(
    segment_bytes=600,
    segment_index_bytes=240,
    index_interval_bytes=50,
    cleanup_policy=("compact",),
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0,
)
_CHANGES = ("create", "pwrite", "truncate", "sync", "rename", "remove", "sync_directory", "write")


class Stop(BaseException):
    """The process ends here."""


class Counted(MemoryFileSystem):
    """Counts the operations that change something; `error` is raised before one of them."""

    def __init__(self) -> None:
        super().__init__()
        self.left: int | None = None
        self.error: BaseException = Stop()

    def check(self, operation: str, path: str) -> None:
        super().check(operation, path)
        if self.left is not None and operation.startswith(_CHANGES):
            if self.left == 0:
                raise self.error
            self.left -= 1


def filled(files: MemoryFileSystem) -> tuple[Log, Cleaner, DirectoryStore]:
    files.make_directories(ROOT)
    files.sync_directory("/")
    directory = DirectoryStore(files, ROOT)
    directory.load(lambda topic: CONFIG, NOW_MS)
    log = directory.create(TOPIC_PARTITION, TOPIC_ID, CONFIG, NOW_MS)
    for number in range(24):
        some = [SimpleRecord(b"k%d" % (number % 5), b"%d" % number * 9, NOW_MS)]
        is_transactional = number % 3 == 0
        producer: dict[str, Any] = {}
        if is_transactional:
            producer = {
                "producer_id": 9,
                "producer_epoch": 0,
                "base_sequence": number // 3,
                "is_transactional": True,
            }
        data = build_batch(some, **producer)
        terms = verified(log, data) if is_transactional else NO_TRANSACTION
        log.append_as_leader(data, 0, NOW_MS, terms=terms)
        if is_transactional:
            end_transaction(log, 9, is_commit=number % 2 == 0)
    log.roll(NOW_MS)
    log.append_as_leader(build_batch([SimpleRecord(b"last", b"x", NOW_MS)]), 0, NOW_MS)
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    return log, Cleaner(directory), directory


def newest(log: Log) -> dict[bytes | None, tuple[int, bytes | None]]:
    """The newest committed record of each key."""
    aborted = {
        (a.producer_id, offset)
        for a in log.aborted_transactions(0, log.log_end_offset)
        for offset in range(a.first_offset, a.last_offset)
    }
    return {
        record.key: (record.offset, record.value)
        for record in read_all(log)
        if (9, record.offset) not in aborted and record.value is not None
    }


def run_pass(cleaner: Cleaner) -> None:
    cleaning = cleaner.next_pass(NOW_MS)
    assert cleaning is not None
    assert cleaner.finish(cleaning.run(), NOW_MS)


def check_loaded(files: MemoryFileSystem, expected: Log, known: dict[Any, Any]) -> Log:
    """Load the directory as a broker does: with its checkpoints, and before it knows the topics."""
    directory = DirectoryStore(files, ROOT)
    (loaded,) = directory.load(lambda topic: LogConfig(), NOW_MS).current
    assert newest(loaded) == known
    assert loaded.log_end_offset == expected.log_end_offset
    names = files.list_directory(loaded.path)
    assert not [n for n in names if n.endswith((".cleaned", ".swap", ".deleted"))]
    read_all(loaded)
    return loaded


def keep_checkpoints(files: MemoryFileSystem) -> None:
    """Let the checkpoints be."""


def remove_checkpoints(files: MemoryFileSystem) -> None:
    for name in CHECKPOINTS:
        files.remove(f"{ROOT}/{name}")


def empty_checkpoints(files: MemoryFileSystem) -> None:
    for name in CHECKPOINTS:
        files.write_atomically(f"{ROOT}/{name}", b"0\n0\n")


def tear_checkpoints(files: MemoryFileSystem) -> None:
    for name in CHECKPOINTS:
        path = f"{ROOT}/{name}"
        files.write_atomically(path, files.read_bytes(path)[:-4] + b"\0\0")


@pytest.mark.parametrize("state", [keep_checkpoints, tear_checkpoints, remove_checkpoints])
@pytest.mark.parametrize("has_power", [True, False], ids=["kill", "power failure"])
def test_a_stop_after_any_change_of_a_file_loses_nothing(
    has_power: bool, state: Callable[[MemoryFileSystem], None]
) -> None:
    steps = 0
    while True:
        files = Counted()
        log, cleaner, _ = filled(files)
        known = newest(log)

        files.left, files.error = steps, Stop()
        try:
            run_pass(cleaner)
            is_complete = True
        except Stop:
            is_complete = False
        files.left = None
        if not has_power:
            files.crash()
        state(files)
        loaded = check_loaded(files, log, known)
        assert state is not keep_checkpoints or loaded.unverified_gaps == ()
        if is_complete:
            break
        steps += 1
    assert steps > 40


@pytest.mark.parametrize("seed", range(4))
def test_a_power_failure_that_keeps_any_unsynced_changes_of_names_loses_nothing(seed: int) -> None:
    random = Random(seed)
    steps, is_complete = 0, False
    while not is_complete:
        files = Counted()
        log, cleaner, _ = filled(files)
        known = newest(log)
        files.left, files.error = steps, Stop()
        try:
            run_pass(cleaner)
            is_complete = True
        except Stop:
            pass
        files.left = None
        is_ordered = random.random() < 0.5

        def surviving_renames(_: str, count: int, is_ordered: bool = is_ordered) -> Sequence[int]:
            if is_ordered:
                return range(random.randint(0, count))
            return [number for number in range(count) if random.random() < 0.5]

        files.crash(lambda _, unsynced_bytes: random.randint(0, unsynced_bytes), surviving_renames)
        check_loaded(files, log, known)
        steps += 1


@pytest.mark.parametrize(
    "state", [keep_checkpoints, empty_checkpoints, tear_checkpoints, remove_checkpoints]
)
@pytest.mark.parametrize("policy", ["compact", "delete"])
def test_the_gaps_of_a_pass_are_no_loss(
    policy: str, state: Callable[[MemoryFileSystem], None]
) -> None:
    """The policy does not matter: the topic may have been compacted before."""
    files = Counted()
    log, cleaner, _ = filled(files)
    run_pass(cleaner)
    bases = log.segments.base_offsets
    ends = [segment.end_of_batches()[0] for segment in log.segments]
    assert [end for end, base in zip(ends, bases[1:], strict=False) if end < base]
    known = newest(log)
    state(files)
    directory = DirectoryStore(files, ROOT)
    config = replace(CONFIG, cleanup_policy=(policy,))
    (loaded,) = directory.load(lambda topic: config, NOW_MS).current
    assert loaded.segments.base_offsets == bases
    assert newest(loaded) == known


def test_a_log_with_an_unverified_gap_is_not_compacted_before_somebody_decides() -> None:
    files = Counted()
    _, cleaner, _ = filled(files)
    run_pass(cleaner)
    remove_checkpoints(files)
    directory = DirectoryStore(files, ROOT)
    (loaded,) = directory.load(lambda topic: CONFIG, NOW_MS).current
    loaded.update_high_watermark(loaded.log_end_offset)
    assert loaded.unverified_gaps
    again = Cleaner(directory)
    assert again.next_pass(NOW_MS) is None
    directory.checkpoint_recovery_points()
    stored = read_offset_checkpoint(files, f"{ROOT}/{RECOVERY_POINTS}")
    assert stored[TOPIC_PARTITION] <= loaded.unverified_gaps[0].first_offset
    directory.new_epochs.begin([(loaded, 3)])  # it leads now
    assert loaded.unverified_gaps == ()
    assert again.next_pass(NOW_MS) is not None


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_an_error_of_the_disk_at_any_change_loses_nothing(error: int) -> None:
    steps = 0
    while True:
        files = Counted()
        log, cleaner, _ = filled(files)
        known = newest(log)

        files.left, files.error = steps, OSError(error, "injected")
        try:
            run_pass(cleaner)
            is_complete = True
        except OSError:
            is_complete = False
        files.left = None
        check_loaded(files, log, known)
        if is_complete:
            break
        steps += 1
    assert steps > 40


class TruncatedAt(MemoryFileSystem):
    """Truncates a log when a number of files has been opened."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.log: Log | None = None

    def open(self, path: str, *, create: bool = False, writable: bool = True) -> File:
        log = self.log
        if log is not None:
            if self.left == 0:
                self.log = None
                log.truncate_to(10)
            self.left -= 1
        return super().open(path, create=create, writable=writable)


def test_a_truncation_between_any_two_steps_of_a_pass_wins() -> None:
    steps = 0
    while True:
        files = TruncatedAt()
        log, cleaner, directory = filled(files)
        cleaning = cleaner.next_pass(NOW_MS)
        assert cleaning is not None
        files.left, files.log = steps, log
        cleaned: CleaningResult | None = None
        try:
            cleaned = cleaning.run()
        except CleaningAborted:
            cleaner.cancel(cleaning.plan)
        if files.left >= 0:
            files.log = None
            assert cleaned is not None
            assert cleaner.finish(cleaned, NOW_MS)
            break
        assert cleaned is None or not cleaner.finish(cleaned, NOW_MS)
        assert log.log_end_offset <= 10
        assert directory.cleaner_offset(TOPIC_PARTITION) is None
        assert [r.offset for r in read_all(log)] == list(range(log.log_end_offset))
        steps += 1
    assert steps > 5
