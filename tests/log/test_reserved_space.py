"""Space that is reserved ahead of a segment: bounded, unseen by readers, always given back."""

import errno
import os
from pathlib import Path

import pytest
from log_builders import NOW_MS, ROOT, TOPIC_ID, append, batch, new_storage, reload, values

from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.disks.directory_store import DirectoryStore
from spindle.log.loading import create_log, load_log
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.testing.filesystem import Fault, MemoryFileSystem

STEP = 8000
CONFIG = LogConfig(segment_bytes=100_000, segment_index_bytes=240)
PLENTY = 10_000_000


def disk(free_bytes: int = PLENTY) -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.reservation_bytes = STEP
    files.free_bytes[ROOT] = free_bytes
    return files


def log_of(storage: LogStorage, partition: int = 0, config: LogConfig = CONFIG) -> Log:
    topic_partition = TopicPartition("orders", partition)
    return create_log(storage, str(topic_partition), topic_partition, TOPIC_ID, config, NOW_MS)


def reservations(files: MemoryFileSystem) -> list[str]:
    return [path for operation, path in files.operations if operation == "reserve"]


def reserved_bytes(files: MemoryFileSystem, free_before: int, *logs: Log) -> int:
    """Return what the disk has less than before, beside what was appended."""
    return free_before - files.free_bytes[ROOT] - sum(log.size_bytes for log in logs)


def fill(log: Log, size_bytes: int) -> None:
    while log.size_bytes < size_bytes:
        append(log, "x" * 400)


def test_a_segment_gets_space_ahead_once_it_has_shown_volume() -> None:
    files = disk()
    log = log_of(new_storage(files))
    fill(log, STEP // 8 - 500)
    free_before = files.free_bytes[ROOT] + log.size_bytes
    assert reservations(files) == []
    fill(log, STEP // 2)
    assert len(reservations(files)) == 1
    assert 0 < reserved_bytes(files, free_before, log) <= STEP
    fill(log, 5 * STEP)
    assert len(reservations(files)) <= 6
    assert 0 < reserved_bytes(files, free_before, log) <= STEP
    assert files.size(log.segments.active.path) == log.size_bytes


def test_many_small_partitions_reserve_nothing() -> None:
    files = disk()
    storage = new_storage(files)
    for partition in range(50):
        append(log_of(storage, partition), "one record")
    assert reservations(files) == []


def test_only_some_files_of_a_directory_have_reserved_space() -> None:
    files = disk()
    storage = new_storage(files)
    logs = [log_of(storage, partition) for partition in range(30)]
    for log in logs:
        fill(log, STEP // 2)
    assert len(storage.handles.reserved) == len(reservations(files)) == 16
    fill(logs[0], 3 * STEP)
    assert len(storage.handles.reserved) == 16


@pytest.mark.parametrize("ending", ["roll", "close", "truncate", "rename", "recover"])
def test_the_space_is_given_back(ending: str) -> None:
    files = disk()
    storage = new_storage(files)
    free_before = files.free_bytes[ROOT]
    log = log_of(storage)
    fill(log, 3 * STEP)
    small_files = 1000  # topic id, epochs, index entries, snapshots
    assert reserved_bytes(files, free_before, log) > STEP // 4
    if ending == "roll":
        log.roll(NOW_MS)
    elif ending == "close":
        log.close()
    elif ending == "rename":
        log.rename("orders-0.0123456789abcdef0123456789abcdef-future")
    elif ending == "truncate":
        appended_bytes = log.size_bytes
        log.truncate_to(3)
        free_before -= appended_bytes - log.size_bytes  # the simulated disk keeps it
    else:
        metrics = values(log)
        log = reload(files, CONFIG, is_clean=False)
        assert values(log) == metrics
    index_bytes = 2 * CONFIG.segment_index_bytes
    assert reserved_bytes(files, free_before, log) <= small_files + index_bytes


def test_no_space_is_reserved_beyond_the_size_of_a_segment() -> None:
    files = disk()
    log = log_of(new_storage(files), config=LogConfig(segment_bytes=STEP // 2))
    free_before = files.free_bytes[ROOT]
    fill(log, STEP // 2 - 500)
    assert len(reservations(files)) == 1
    assert reserved_bytes(files, free_before, log) <= STEP // 2 - log.size_bytes + 1000
    append(log, "x" * 20_000)
    append(log, "x" * 20_000)
    assert len(reservations(files)) == 1


def appended_until_full(step_bytes: int) -> int:
    files = disk(60_000)
    files.reservation_bytes = step_bytes
    storage = new_storage(files)
    busy, other = log_of(storage, 0), log_of(storage, 1)
    fill(busy, 10_000)

    def fill_both() -> None:
        while True:
            append(other, "x" * 400)
            append(other, "x" * 400)
            append(busy, "x" * 400)

    with pytest.raises(OSError, match="append") as raised:
        fill_both()
    assert raised.value.errno == errno.ENOSPC
    return busy.size_bytes + other.size_bytes


def test_a_disk_is_full_no_earlier_than_without_reserved_space() -> None:
    never = 10**9
    assert appended_until_full(STEP) == appended_until_full(never)


def test_a_disk_that_is_nearly_full_has_no_reserved_space(monkeypatch: pytest.MonkeyPatch) -> None:
    files = disk()
    storage = new_storage(files)
    log = log_of(storage)
    fill(log, 2 * STEP)
    assert len(storage.handles.reserved) == 1
    monkeypatch.setattr(files, "capacity", lambda path: (PLENTY, 127 * STEP))
    fill(log, 4 * STEP)
    assert len(storage.handles.reserved) == 0
    count = len(reservations(files))
    fill(log, 6 * STEP)
    assert len(reservations(files)) == count


def test_a_file_system_that_cannot_reserve_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    files = disk()
    asked: list[int] = []

    def refuse(file: object, size_bytes: int, position: int) -> bool:
        asked.append(size_bytes)
        return False

    monkeypatch.setattr("spindle.testing.filesystem.MemoryFile.reserve", refuse)
    storage = new_storage(files)
    for partition in range(3):
        fill(log_of(storage, partition), 4 * STEP)
    assert len(asked) == 1


def test_a_dead_disk_fails_when_space_is_reserved() -> None:
    files = disk()
    log = log_of(new_storage(files))
    files.faults.append(Fault(ROOT, "reserve"))
    with pytest.raises(OSError, match="reserve"):
        fill(log, 2 * STEP)


def test_a_log_that_is_renamed_or_deleted_is_left_alone() -> None:
    files = disk()
    storage = new_storage(files)
    log, gone = log_of(storage, 0), log_of(storage, 1)
    for one in (log, gone):
        fill(one, 2 * STEP)
    log.rename("orders-0.moved")
    gone.delete()
    assert not storage.handles.reserved.give_back()
    fill(log, 5 * STEP)
    assert len(storage.handles.reserved) == 1
    log.close()
    assert len(storage.handles.reserved) == 0


def test_space_that_is_not_used_any_more_is_given_back_by_the_second_retention() -> None:
    files = disk()
    files.make_directories(ROOT)
    store = DirectoryStore(files, ROOT)
    logs = [
        store.create(TopicPartition("orders", number), TOPIC_ID, CONFIG, NOW_MS)
        for number in (0, 1)
    ]
    for log in logs:
        fill(log, STEP)
    store.apply_retention(NOW_MS)
    fill(logs[0], 3 * STEP)
    assert len(store.storage.handles.reserved) == 2
    store.apply_retention(NOW_MS)
    assert len(store.storage.handles.reserved) == 1
    store.apply_retention(NOW_MS)
    assert len(store.storage.handles.reserved) == 0


def blocks_bytes(path: str) -> int:
    return os.stat(path).st_blocks * 512


def test_on_a_real_disk_the_space_is_behind_the_end_of_the_file(tmp_path: Path) -> None:
    files = OsFileSystem()
    with (tmp_path / "probe").open("wb") as probe:
        file = files.open(probe.name)
        if not file.reserve(4096, 0):
            pytest.skip("the file system of the test cannot reserve space")
        file.close()
    storage = LogStorage(files, str(tmp_path))
    config = LogConfig()
    log = log_of(storage, config=config)
    path = log.segments.active.path
    data = batch("x" * 1_000_000)
    for _ in range(3):
        log.append_as_leader(data, 0, NOW_MS)
    size = os.path.getsize(path)
    assert size == log.size_bytes
    assert blocks_bytes(path) > size + 4_000_000
    storage.handles.close()
    # A broker that was killed leaves it; the next start gives it back.
    killed = load_log(
        LogStorage(files, str(tmp_path)),
        "orders-0",
        log.topic_partition,
        config,
        NOW_MS,
        is_clean=False,
    )
    assert killed.size_bytes == os.path.getsize(path) == size
    assert blocks_bytes(path) < size + 100_000
    killed.append_as_leader(data, 0, NOW_MS)
    assert blocks_bytes(path) > size + 4_000_000
    killed.close()
    assert blocks_bytes(path) < os.path.getsize(path) + 100_000
