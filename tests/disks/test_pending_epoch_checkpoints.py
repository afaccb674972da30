"""Leader epochs of idle logs reach their files later; those of records before the records."""

from log_builders import NOW_MS, append, new_storage

from spindle.common.ids import TopicPartition
from spindle.disks.directory_store import DirectoryStore
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.testing.filesystem import MemoryFileSystem

ROOT = "/data"
CONFIG = LogConfig()


def opened(files: MemoryFileSystem) -> DirectoryStore:
    directory = DirectoryStore(new_storage(files).file_system, ROOT)
    directory.load(lambda _: CONFIG, NOW_MS)
    return directory


def logs_of(directory: DirectoryStore, count: int) -> list[Log]:
    """Make logs with a record of epoch 1 each."""
    logs = []
    for number in range(count):
        log = directory.create(TopicPartition("t", number), b"t" * 16, CONFIG, NOW_MS)
        append(log, "a", leader_epoch=1)
        logs.append(log)
    return logs


def epochs_in_file(files: MemoryFileSystem, number: int) -> bytes:
    return files.read_bytes(f"{ROOT}/t-{number}/leader-epoch-checkpoint")


def test_a_broker_that_leads_many_idle_partitions_writes_no_file() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    logs = logs_of(directory, 30)
    before = len(files.operations)
    directory.new_epochs.begin([(log, 4) for log in logs])
    assert len(files.operations) == before
    assert all(log.epochs.latest == 4 for log in logs)


def test_the_files_are_written_a_few_at_a_time() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    logs = logs_of(directory, 25)
    directory.new_epochs.begin([(log, 4) for log in logs])
    stored = []
    while not directory.new_epochs.is_empty:
        directory.new_epochs.write_some()
        stored.append(sum(log.epochs.is_stored for log in logs))
    assert stored == [10, 20, 25]
    assert epochs_in_file(files, 24) == b"0\n2\n1 0\n4 1\n"


def test_an_append_brings_its_epoch_to_the_device_and_leaves_nothing_to_store() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    (log,) = logs_of(directory, 1)
    directory.new_epochs.begin([(log, 4)])
    append(log, "b", leader_epoch=4)
    assert epochs_in_file(files, 0) == b"0\n2\n1 0\n4 1\n"
    before = len(files.operations)
    directory.new_epochs.store_all()
    assert len(files.operations) == before


def test_a_log_that_was_deleted_meanwhile_is_passed_over() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    gone, other = logs_of(directory, 2)
    directory.new_epochs.begin([(gone, 4), (other, 4)])
    gone.mark_deleted("t-0.0123456789abcdef-delete")
    files.remove_tree(f"{ROOT}/t-0.0123456789abcdef-delete")
    directory.new_epochs.store_all()
    assert epochs_in_file(files, 1) == b"0\n2\n1 0\n4 1\n"


def test_a_clean_stop_leaves_complete_files() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    directory.new_epochs.begin([(log, 4) for log in logs_of(directory, 12)])
    directory.close(1)
    assert {epochs_in_file(files, number) for number in range(12)} == {b"0\n2\n1 0\n4 1\n"}


def test_a_crash_loses_only_epochs_without_records() -> None:
    files = MemoryFileSystem()
    directory = opened(files)
    idle, busy = logs_of(directory, 2)
    directory.new_epochs.begin([(idle, 4), (busy, 4)])
    append(busy, "b", leader_epoch=4)
    again = opened(files)
    assert again.logs[idle.topic_partition].epochs.entries == [(1, 0)]
    assert again.logs[busy.topic_partition].epochs.entries == [(1, 0), (4, 1)]
