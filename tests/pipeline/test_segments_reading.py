"""Plans and reads of log directories, without Spark."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from log_directory_files import (
    OTHER_ID,
    ReplicaWriter,
    corrupt_byte,
    format_directory,
    marker,
    simple_records,
    size_of_first_batch,
    write_checkpoint,
)

from spindle.common.errors import ConfigError, CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.pipeline.errors import DataLoss, LogChanged
from spindle.pipeline.segments.failover import read_settings
from spindle.pipeline.segments.options import parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions
from spindle.pipeline.segments.pushdown import PushedFilters
from spindle.pipeline.segments.ranges import SegmentRange, plan_tasks, resolve_ranges
from spindle.pipeline.segments.reader import read_ranges
from spindle.protocol.records.builder import SimpleRecord

T0 = TopicPartition("topic", 0)
T1 = TopicPartition("topic", 1)
LOCK_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


class Directories:
    """Two log directories with a partition of three segments in each."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.first = format_directory(root / "d1")
        self.second = format_directory(root / "d2")
        self.t0 = self._filled(self.first, T0)
        self.t1 = self._filled(self.second, T1)

    def _filled(self, directory: Path, partition: TopicPartition) -> ReplicaWriter:
        writer = ReplicaWriter(directory, partition)
        for first in (0, 400, 800):
            if first:
                writer.roll()
            writer.append_records(simple_records(400, first=first), codec=first // 400)
        (directory / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":5}')
        return writer

    def plan(
        self, filters: PushedFilters | None = None, **options: object
    ) -> list[tuple[SegmentRange, ...]]:
        settings = self.options(**options)
        parsed = parse_segment_options(settings)
        partitions = readable_partitions(parsed)
        return plan_tasks(parsed, resolve_ranges(parsed, partitions, filters or PushedFilters()))

    def options(self, **options: object) -> dict[str, str]:
        given = {"logDirs": f"{self.root}/d*", "subscribe": "topic"}
        return {**given, **{name: str(value) for name, value in options.items()}}

    def read(self, tasks: list[tuple[SegmentRange, ...]], **options: object) -> list[Any]:
        settings = read_settings(parse_segment_options(self.options(**options)))
        rows: list[Any] = []
        for task in tasks:
            for batch in read_ranges(task, settings):
                columns = (batch.column(name).to_pylist() for name in ("partition", "offset"))
                rows += zip(*columns, strict=True)
        return rows


@pytest.fixture
def directories(tmp_path: Path) -> Directories:
    return Directories(tmp_path)


ALL_ROWS = [(partition, offset) for partition in (0, 1) for offset in range(1200)]


def test_a_small_read_is_one_task(directories: Directories) -> None:
    tasks = directories.plan()
    assert len(tasks) == 1
    assert directories.read(tasks) == ALL_ROWS


@pytest.mark.parametrize("task_bytes", [1, 1000, 5000, 30_000])
def test_tasks_of_any_size_give_every_row_once(directories: Directories, task_bytes: int) -> None:
    tasks = directories.plan(taskBytes=task_bytes)
    assert len(tasks) > 2
    assert directories.read(tasks) == ALL_ROWS


def test_tasks_have_about_the_size_asked_for(directories: Directories) -> None:
    tasks = directories.plan(taskBytes=8000)
    assert all(piece.size_bytes < 16_000 for task in tasks for piece in task)
    tasks = directories.plan(minPartitions=4)
    assert 4 <= len(tasks) <= 8


def test_no_task_has_more_records_than_allowed(directories: Directories) -> None:
    tasks = directories.plan(maxRecordsPerPartition=333)
    sizes = [piece.end_offset - piece.start_offset for task in tasks for piece in task]
    assert max(sizes) <= 333
    assert [len(task) for task in tasks] == [1] * len(tasks)
    assert directories.read(tasks) == ALL_ROWS


def test_a_read_is_limited_by_given_offsets(directories: Directories) -> None:
    tasks = directories.plan(
        startingOffsets='{"topic":{"0":395,"1":-2}}', endingOffsets='{"topic":{"0":405,"1":3}}'
    )
    expected = [(0, offset) for offset in range(395, 405)] + [(1, 0), (1, 1), (1, 2)]
    assert directories.read(tasks) == expected
    with pytest.raises(ValueError, match=r"must name exactly .* missing: topic-1"):
        directories.plan(startingOffsets='{"topic":{"0":395}}')
    with pytest.raises(ValueError, match="not read: topic-7"):
        directories.plan(endingOffsets='{"topic":{"0":1,"1":1,"7":1}}')


def test_a_read_is_limited_by_given_times(directories: Directories) -> None:
    tasks = directories.plan(startingTimestamp=1_000_397, endingTimestamp=1_000_402)
    expected = [(partition, offset) for partition in (0, 1) for offset in range(397, 402)]
    assert directories.read(tasks) == expected
    with pytest.raises(ValueError, match="no record with a timestamp of 9000000"):
        directories.plan(startingTimestamp=9_000_000)
    tasks = directories.plan(
        startingTimestamp=9_000_000, startingOffsetsByTimestampStrategy="latest"
    )
    assert tasks == []


def test_filters_narrow_what_is_planned(directories: Directories) -> None:
    filters = PushedFilters(
        partitions=frozenset((1,)), min_offset=100, end_offset=900, min_timestamp_ms=1_000_850
    )
    ((piece,),) = directories.plan(filters)
    assert (piece.partition, piece.start_offset, piece.end_offset) == (T1, 850, 900)
    assert piece.segment_base_offset == 800
    assert directories.plan(PushedFilters(topics=frozenset(("other",)))) == []


def test_offsets_outside_the_log_are_data_loss(directories: Directories) -> None:
    write_checkpoint(directories.first, "log-start-offset-checkpoint", {T0: 50})
    first = '{"topic":{"0":20,"1":0}}'
    with pytest.raises(DataLoss, match=r"topic-0 .*starting offset 20 .*\[50, 1200\)"):
        directories.plan(startingOffsets=first)
    tasks = directories.plan(failOnDataLoss="false", startingOffsets=first)
    assert tasks[0][0].start_offset == 50
    assert directories.plan()[0][0].start_offset == 50
    with pytest.raises(DataLoss, match="ending offset 5000"):
        directories.plan(endingOffsets='{"topic":{"0":5000,"1":10}}')


@pytest.fixture
def held_lock(directories: Directories) -> Iterator[None]:
    """Hold the lock of the first directory in another process."""
    lock = directories.first / ".lock"
    lock.touch()
    command = [sys.executable, "-c", LOCK_HOLDER, str(lock)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield
        holder.communicate(b"")


@pytest.mark.usefixtures("held_lock")
def test_a_directory_in_use_is_read_to_its_high_watermark(directories: Directories) -> None:
    ends = {piece.partition: piece.end_offset for piece in directories.plan()[0]}
    assert ends == {T1: 1200}
    write_checkpoint(directories.first, "replication-offset-checkpoint", {T0: 700})
    ends = {piece.partition: piece.end_offset for piece in directories.plan()[0]}
    assert ends == {T0: 700, T1: 1200}
    ends = {piece.partition: piece.end_offset for piece in directories.plan(end="logEnd")[0]}
    assert ends == {T0: 1200, T1: 1200}


def test_the_checkpoint_can_be_asked_for(directories: Directories) -> None:
    write_checkpoint(directories.first, "replication-offset-checkpoint", {T0: 5000, T1: 7})
    write_checkpoint(directories.second, "replication-offset-checkpoint", {T1: 9})
    ends = {piece.partition: piece.end_offset for piece in directories.plan(end="checkpoint")[0]}
    assert ends == {T0: 1200, T1: 9}


def test_future_stray_and_deleted_replicas_are_not_read(directories: Directories) -> None:
    for suffix in ("future", "stray", "delete"):
        name = f"topic-0.{'0' * 32}-{suffix}"
        (directories.t0.path.parent / name).mkdir()
    assert directories.read(directories.plan()) == ALL_ROWS


def test_one_replica_is_read_and_it_is_the_furthest(directories: Directories) -> None:
    third = format_directory(directories.root / "d3", node_id=2)
    copy = ReplicaWriter(third, T0)
    copy.append_records(simple_records(1300))
    pieces = directories.plan()[0]
    assert [(piece.partition, piece.end_offset) for piece in pieces] == [(T0, 1300), (T1, 1200)]
    assert pieces[0].path == str(copy.path)


def test_a_topic_with_two_ids_has_to_be_named(directories: Directories) -> None:
    third = format_directory(directories.root / "d3")
    ReplicaWriter(third, T0, OTHER_ID).append_records(simple_records(7))
    with pytest.raises(ValueError, match=r"several ids .*topicIds"):
        directories.plan()
    chosen = f'{{"topic":"{uuid_text(OTHER_ID)}"}}'
    ((piece,),) = directories.plan(topicIds=chosen)
    assert (piece.end_offset, piece.topic_id) == (7, OTHER_ID)
    with pytest.raises(ValueError, match="in no log directory"):
        directories.plan(topicIds=f'{{"topic":"{uuid_text(bytes(16))}"}}')


def test_a_missing_directory_or_topic_is_named(directories: Directories) -> None:
    with pytest.raises(ValueError, match=r"not in the log directories .*: nothing"):
        directories.plan(subscribe="topic,nothing")
    options = directories.options(assign='{"topic":[0,5]}')
    del options["subscribe"]
    with pytest.raises(ValueError, match="topic-5"):
        readable_partitions(parse_segment_options(options))
    with pytest.raises(ValueError, match="names no directory"):
        directories.plan(logDirs=directories.root / "x*")
    (directories.root / "d3").mkdir()
    with pytest.raises(ValueError, match=r"d3 has no meta\.properties"):
        directories.plan()
    (directories.root / "d3" / "meta.properties").write_text("version=1\ncluster.id=x\n")
    with pytest.raises(ConfigError, match=r"node\.id is missing"):
        directories.plan()
    (directories.root / "d3" / "meta.properties").unlink()
    (directories.root / "d3").rmdir()
    format_directory(directories.root / "d4", cluster_id="other")
    with pytest.raises(ValueError, match="mixes clusters"):
        directories.plan()


def test_rows_written_after_the_plan_are_not_read(directories: Directories) -> None:
    tasks = directories.plan()
    directories.t0.append_records(simple_records(50))
    directories.t0.roll()
    directories.t0.append_records(simple_records(50))
    assert directories.read(tasks) == ALL_ROWS


def test_a_replica_that_moved_is_found_in_its_new_directory(directories: Directories) -> None:
    tasks = directories.plan()
    directories.t0.path.rename(directories.second / "topic-0")
    assert directories.read(tasks) == ALL_ROWS


def test_a_replica_of_another_topic_id_does_not_stand_in(directories: Directories) -> None:
    tasks = directories.plan()
    gone = directories.root / "gone"
    directories.t0.path.rename(gone)
    ReplicaWriter(directories.second, T0, OTHER_ID).append_records(simple_records(1200))
    with pytest.raises(DataLoss, match="topic-0 does not exist any more"):
        directories.read(tasks)
    assert directories.read(tasks, failOnDataLoss="false") == ALL_ROWS[1200:]


def test_segments_that_retention_removed(directories: Directories) -> None:
    tasks = directories.plan()
    (directories.t0.path / "00000000000000000000.log").unlink()
    with pytest.raises(DataLoss, match="the log begins at 400"):
        directories.read(tasks)
    assert directories.read(tasks, failOnDataLoss="false") == ALL_ROWS[400:]


def test_segments_that_compaction_merged(directories: Directories) -> None:
    """The planned segments are deleted, and the first one holds all their batches."""
    tasks = directories.plan(taskBytes=5000)
    paths = [directories.t0.path / f"{base:020d}.log" for base in (0, 400, 800)]
    paths[0].write_bytes(b"".join(path.read_bytes() for path in paths))
    for path in paths[1:]:
        path.unlink()
    for index in directories.t0.path.glob("*index"):
        index.unlink()
    assert directories.read(tasks) == ALL_ROWS


def test_a_truncated_log_is_data_loss(directories: Directories) -> None:
    tasks = directories.plan()
    with directories.t0.segment.open("r+b") as file:
        file.truncate(3000)
    with pytest.raises(DataLoss, match=r"planned offsets \[0, 1200\), but the log ends at"):
        directories.read(tasks)


def test_a_new_leader_below_the_planned_end_is_noticed(directories: Directories) -> None:
    tasks = directories.plan()
    directories.t0.write_epochs([(0, 0), (3, 900)])
    with pytest.raises(LogChanged, match="leader epochs below offset 1200"):
        directories.read(tasks)


def test_parts_of_a_partition_with_several_epochs(directories: Directories) -> None:
    directories.t0.write_epochs([(0, 0), (3, 400), (4, 1100)])
    assert directories.read(directories.plan(taskBytes=5000)) == ALL_ROWS


def test_a_new_leader_behind_the_planned_end_is_fine(directories: Directories) -> None:
    tasks = directories.plan()
    directories.t0.write_epochs([(0, 0), (3, 1200)])
    assert directories.read(tasks) == ALL_ROWS


def test_a_corrupt_batch_names_file_and_offset(directories: Directories) -> None:
    first = directories.t0.path / "00000000000000000000.log"
    corrupt_byte(first, size_of_first_batch(first) + 100)
    with pytest.raises(CorruptLog, match=r"000\.log at byte \d+: .*offset 10: the checksum is"):
        directories.read(directories.plan())


def test_a_broken_length_before_another_segment_is_corrupt(directories: Directories) -> None:
    first = directories.t0.path / "00000000000000000000.log"
    corrupt_byte(first, size_of_first_batch(first) + 9)
    with pytest.raises(CorruptLog):
        directories.read(directories.plan())


def test_batches_larger_than_the_buffer_are_read(tmp_path: Path) -> None:
    writer = ReplicaWriter(format_directory(tmp_path / "d1"), T0)
    writer.append_records(simple_records(3))
    writer.append_records([SimpleRecord(None, bytes(3_000_000), 5)] * 2, per_batch=2)
    writer.append_records(simple_records(3))
    options = parse_segment_options({"logDirs": str(tmp_path / "d1"), "subscribe": "topic"})
    tasks = plan_tasks(
        options, resolve_ranges(options, readable_partitions(options), PushedFilters())
    )
    batches = list(read_ranges(tasks[0], read_settings(options)))
    offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
    assert offsets == list(range(8))


def test_read_committed_stops_at_the_last_stable_offset(tmp_path: Path) -> None:
    directory = format_directory(tmp_path / "d1")
    writer = ReplicaWriter(directory, T0)
    transaction = {"producer_epoch": 0, "is_transactional": True}
    writer.append_records(simple_records(2), producer_id=1, **transaction)
    writer.append(marker(1, 2, is_commit=False))
    writer.append_aborted_entry(1, 0, 2)
    writer.append_records(simple_records(2), producer_id=1, **transaction)
    writer.append(marker(1, 5, is_commit=True))
    writer.append_records(simple_records(2), producer_id=2, **transaction)
    writer.append_records(simple_records(2))

    def offsets(**extra: str) -> list[int]:
        given = {"logDirs": str(directory), "subscribe": "topic", "columns": "offset", **extra}
        options = parse_segment_options(given)
        resolved = resolve_ranges(options, readable_partitions(options), PushedFilters())
        offsets: list[int] = []
        for task in plan_tasks(options, resolved):
            for batch in read_ranges(task, read_settings(options)):
                offsets += batch.column("offset").to_pylist()
        return offsets

    assert offsets() == [0, 1, 3, 4, 6, 7, 8, 9]
    assert offsets(isolationLevel="read_committed") == [3, 4]
    assert offsets(isolationLevel="read_committed", maxRecordsPerPartition="1") == [3, 4]
    (directory / ".kafka_cleanshutdown").touch()
    segment = writer.path / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    last = data.rindex((8).to_bytes(8))  # the base offset of the last batch
    data[last - 1] ^= 1  # in the open transaction
    segment.write_bytes(data)
    with pytest.raises(CorruptLog, match=r"offset 6.*corruptBatches"):
        offsets(isolationLevel="read_committed")
    assert 8 in offsets(isolationLevel="read_uncommitted", corruptBatches="skip")
