"""The metadata log on the disk: what a start finds, retention, fetched snapshots."""

from functools import partial

import pytest
from quorum_node import batch, static_voters, voter

from spindle.common.errors import CorruptLog, UnsupportedMetadata
from spindle.common.ids import OffsetAndEpoch
from spindle.log.log_config import LogConfig
from spindle.log.storage import LogStorage
from spindle.metadata_log.metadata_log import MetadataLog, RetentionSettings, UnfitSnapshot
from spindle.metadata_log.partition_log import DIRECTORY_NAME, PartitionLog, metadata_log_config
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.protocol.metadata_frame import frame
from spindle.protocol.records.batch import batches
from spindle.protocol.records.control import build_control_batch
from spindle.raft import kraft_records
from spindle.raft.ready import ElectionState
from spindle.raft.voters import VoterSet
from spindle.testing.filesystem import Fault, MemoryFileSystem

CONFIG = LogConfig(
    segment_bytes=250, segment_index_bytes=120, index_interval_bytes=100, retention_ms=-1
)
DIRECTORY = f"/disk/{DIRECTORY_NAME}"
EMPTY = SnapshotInfo(0, 0, None)
NO_LIMITS = RetentionSettings(-1, -1)


def disk() -> MemoryFileSystem:
    files = MemoryFileSystem()
    files.make_directories(DIRECTORY)
    files.sync_directory("/")
    files.sync_directory("/disk")
    return files


def opened(
    files: MemoryFileSystem, retention: RetentionSettings = NO_LIMITS
) -> tuple[MetadataLog, PartitionLog]:
    storage = PartitionLog.open(LogStorage(files, "/disk"), CONFIG, now_ms=0)
    return MetadataLog(files, DIRECTORY, storage, retention), storage


def snapshot(
    offset: int, epoch: int, info: SnapshotInfo = EMPTY
) -> tuple[OffsetAndEpoch, list[bytes]]:
    return OffsetAndEpoch(offset, epoch), list(encode_snapshot([], info, epoch=epoch, now_ms=0))


def filled(files: MemoryFileSystem, *, end_offset: int = 12) -> MetadataLog:
    """Make a log with one record per batch: offsets 0-4 of epoch 1, then epoch 3."""
    log, _ = opened(files)
    log.load(VoterSet())
    for offset in range(end_offset):
        log.append(batch(offset, 1 if offset < 5 else 3), 0)
    log.flush()
    return log


def test_a_fresh_directory_is_an_empty_log() -> None:
    files = disk()
    log, _ = opened(files)
    stored = log.load(static_voters(1))
    assert stored.election is None
    assert (stored.log.start_offset, stored.log.end_offset, stored.log.last_epoch) == (0, 0, 0)
    assert stored.history.voters == static_voters(1)
    names = files.list_directory(DIRECTORY)
    assert names == [
        "00000000000000000000.index",
        "00000000000000000000.log",
        "00000000000000000000.timeindex",
        "leader-epoch-checkpoint",
        "partition.metadata",
    ]
    assert files.read_bytes(f"{DIRECTORY}/partition.metadata") == (
        b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    )


def test_a_start_finds_offsets_epochs_and_votes() -> None:
    files = disk()
    filled(files).write_election_state(ElectionState(3, 1, None, (1,)), 0)
    log, _ = opened(files)
    stored = log.load(VoterSet())
    assert stored.election == ElectionState(3, 1, None, (1,))
    assert stored.log.end == OffsetAndEpoch(12, 3)
    assert stored.log.flushed_offset == 12
    assert stored.log.epochs.entries == [(1, 0), (3, 5)]


def test_power_failure_keeps_what_was_flushed() -> None:
    files = disk()
    log = filled(files)
    log.append(batch(12, 3), 0)
    files.crash(lambda path, unsynced: unsynced // 2)
    again, _ = opened(files)
    stored = again.load(VoterSet())
    assert stored.log.end == OffsetAndEpoch(12, 3)


def test_recovered_records_are_flushed_before_they_are_acknowledged() -> None:
    """A process is killed between append and flush; power fails after the restart."""
    files = disk()
    log = filled(files)
    for offset in range(12, 20):
        log.append(batch(offset, 4), 0)
    restarted, _ = opened(files)
    stored = restarted.load(VoterSet())
    assert (stored.log.end, stored.log.flushed_offset) == (OffsetAndEpoch(20, 4), 20)
    files.crash()
    again, _ = opened(files)
    assert again.load(VoterSet()).log.end == OffsetAndEpoch(20, 4)


@pytest.mark.parametrize("offset", [3, 8])
def test_a_truncation_that_a_kill_interrupted_stays_after_a_power_failure(offset: int) -> None:
    files = disk()
    log = filled(files)
    files.faults.append(Fault(DIRECTORY, "sync"))
    with pytest.raises(OSError, match="injected"):
        log.truncate_to(offset)
    files.faults.clear()
    restarted, _ = opened(files)
    end = restarted.load(VoterSet()).log.end
    assert end.offset == offset
    files.crash()
    again, _ = opened(files)
    assert again.load(VoterSet()).log.end == end


def test_a_snapshot_that_was_renamed_before_a_kill_is_safe_before_the_log_is_removed() -> None:
    files = disk()
    log = filled(files)
    files.faults.append(Fault(DIRECTORY, "sync_directory"))
    with pytest.raises(OSError, match="injected"):
        log.write_snapshot(*snapshot(40, 5), "t")
    files.faults.clear()
    restarted, _ = opened(files)
    files.operations.clear()
    restarted.load(VoterSet())
    operations = [operation for operation, _ in files.operations]
    assert operations.index("sync_directory") < operations.index("remove")
    files.crash()
    again, _ = opened(files)
    stored = again.load(VoterSet())
    assert (stored.log.snapshots, stored.log.end.offset) == ([OffsetAndEpoch(40, 5)], 40)


def kept_bytes(most: int, path: str, unsynced: int) -> int:
    """Return how many unsynced bytes of a file outlive a crash."""
    return min(most, unsynced)


def test_every_moment_of_the_first_start_may_be_the_last() -> None:
    for kept in (0, 1, 20, 1000):
        files = disk()
        log, _ = opened(files)
        log.load(VoterSet())
        files.sync_directory(DIRECTORY)
        files.crash(partial(kept_bytes, kept))
        again, _ = opened(files)
        assert again.load(VoterSet()).log.end_offset == 0


def test_the_voters_are_those_of_the_newest_record() -> None:
    files = disk()
    log, _ = opened(files)
    log.load(VoterSet())
    identity, content = snapshot(0, 0, SnapshotInfo(0, 1, VoterSet([voter(1)])))
    log.write_snapshot(identity, content, "t")
    log.append(batch(0, 1), 0)
    records = [kraft_records.voters(VoterSet([voter(1), voter(2)]))]
    log.append(build_control_batch(records, 0, base_offset=1, leader_epoch=1), 0)
    log.flush()
    again, _ = opened(files)
    history = again.load(VoterSet()).history
    assert history.kraft_version == 1
    assert history.voters_before(1).ids == [1]
    assert (history.voters.ids, history.voters_offset) == ([1, 2], 1)


def test_a_start_removes_what_was_left_unfinished() -> None:
    files = disk()
    filled(files)
    for name in ("x.checkpoint.part", "x.checkpoint.deleted"):
        files.write_atomically(f"{DIRECTORY}/{name}", b"")
    log, _ = opened(files)
    log.load(VoterSet())
    names = files.list_directory(DIRECTORY)
    assert not [name for name in names if name.startswith("x.")]


def test_a_snapshot_beyond_the_log_takes_its_place() -> None:
    files = disk()
    log = filled(files)
    log.write_snapshot(*snapshot(40, 5), "t")
    again, _ = opened(files)
    stored = again.load(VoterSet())
    assert (stored.log.start_offset, stored.log.end) == (40, OffsetAndEpoch(40, 5))


def test_a_damaged_snapshot_does_not_take_the_place_of_the_log() -> None:
    files = disk()
    log = filled(files)
    snapshot_id, content = snapshot(40, 5)
    log.write_snapshot(snapshot_id, content, "t")
    file = files.open(f"{DIRECTORY}/{snapshot_file_name(snapshot_id)}")
    file.truncate(file.size() - 1)
    again, _ = opened(files)
    with pytest.raises(CorruptLog, match=snapshot_file_name(snapshot_id)):
        again.load(VoterSet())
    files.remove(f"{DIRECTORY}/{snapshot_file_name(snapshot_id)}")
    again, _ = opened(files)
    assert again.load(VoterSet()).log.end == OffsetAndEpoch(12, 3)


def test_the_log_ends_before_missing_records_and_what_follows_them_is_kept_aside(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A voter with a gap could be elected and lead without committed records."""
    files = disk()
    log = filled(files)
    log.close()
    names = [name for name in files.list_directory(DIRECTORY) if name.endswith(".log")]
    assert len(names) > 3
    first, second, third, *_ = names
    path = f"{DIRECTORY}/{first}"
    size = [position for position, _ in batches(files.read_bytes(path))][-1]
    files.open(path).truncate(size)
    kept = files.read_bytes(f"{DIRECTORY}/{third}")
    again, _ = opened(files)
    stored = again.load(VoterSet())
    end = int(second.removesuffix(".log")) - 1
    assert stored.log.end_offset == end
    assert f"{DIRECTORY} has no records from offset {end} to {end}, so it ends there" in caplog.text
    again.append(batch(end, 3), 0)
    again.flush()
    again, _ = opened(files)
    assert again.load(VoterSet()).log.end_offset == end + 1
    assert files.read_bytes(f"{DIRECTORY}/{third}.stray") == kept


def test_a_snapshot_of_a_later_epoch_takes_the_place_of_the_log() -> None:
    files = disk()
    log = filled(files)
    log.write_snapshot(*snapshot(8, 5), "t")
    again, _ = opened(files)
    assert again.load(VoterSet()).log.end == OffsetAndEpoch(8, 5)


def test_a_snapshot_within_the_log_leaves_it_alone() -> None:
    files = disk()
    log = filled(files)
    log.write_snapshot(*snapshot(8, 3), "t")
    again, _ = opened(files)
    stored = again.load(VoterSet())
    assert stored.log.end == OffsetAndEpoch(12, 3)
    assert stored.log.snapshots == [OffsetAndEpoch(8, 3)]


# ---------------------------------------------------------------- retention


def with_snapshots(retention: RetentionSettings) -> tuple[MemoryFileSystem, MetadataLog]:
    files = disk()
    filled(files)
    log, _ = opened(files, retention)
    log.load(VoterSet())
    for offset, time_ms in ((4, 100), (8, 200), (11, 300)):
        info = SnapshotInfo(time_ms, 0, None)
        log.write_snapshot(*snapshot(offset, 1 if offset < 5 else 3, info), "t")
    return files, log


def test_without_limits_everything_stays() -> None:
    _, log = with_snapshots(NO_LIMITS)
    assert not log.clean(12, 10**12)
    assert len(log.snapshot_ids) == 3


def test_old_snapshots_go_with_the_log_before_the_next_one() -> None:
    files, log = with_snapshots(RetentionSettings(-1, 1000))
    assert not log.clean(12, 1100)
    assert log.clean(12, 1250)
    assert log.snapshot_ids == (OffsetAndEpoch(11, 3),)
    assert log.start_offset == 11
    assert "00000000000000000000.log" not in files.list_directory(DIRECTORY)
    deleted = snapshot_file_name(OffsetAndEpoch(4, 1)) + ".deleted"
    assert deleted in files.list_directory(DIRECTORY)
    log.clean(12, 1250 + 60_000)
    assert not [name for name in files.list_directory(DIRECTORY) if name.endswith(".deleted")]


def test_size_counts_log_and_snapshots_and_the_newest_snapshot_stays() -> None:
    _, log = with_snapshots(RetentionSettings(1, -1))
    assert log.clean(12, 0)
    assert log.snapshot_ids == (OffsetAndEpoch(11, 3),)
    assert not log.clean(12, 0)


def test_nothing_is_cleaned_that_may_be_needed_for_what_is_not_committed() -> None:
    _, log = with_snapshots(RetentionSettings(1, -1))
    assert log.clean(8, 0)
    assert log.snapshot_ids == (OffsetAndEpoch(8, 3), OffsetAndEpoch(11, 3))
    assert log.start_offset == 8


def test_a_start_drops_snapshots_from_before_the_log() -> None:
    files, log = with_snapshots(RetentionSettings(1, -1))
    stray, content = snapshot(2, 1)
    log.clean(12, 0)
    log.write_snapshot(stray, content, "t")
    log.close()
    again, _ = opened(files)
    assert again.load(VoterSet()).log.snapshots == [OffsetAndEpoch(11, 3)]


# ---------------------------------------------------------------- fetched snapshots


def test_a_fetched_snapshot_replaces_log_and_older_snapshots() -> None:
    files, log = with_snapshots(NO_LIMITS)
    info = SnapshotInfo(0, 1, VoterSet([voter(1), voter(2)]))
    identity, content = snapshot(50, 6, info)
    data = b"".join(content)
    log.write_fetched_chunk(identity, 0, data[:100])
    log.write_fetched_chunk(identity, 0, data[:60])
    log.write_fetched_chunk(identity, 60, data[60:])
    assert log.install_snapshot(identity) == info
    assert (log.start_offset, log.end_offset, log.snapshot_ids) == (50, 50, (identity,))
    files.crash()
    again, _ = opened(files)
    stored = again.load(VoterSet())
    assert stored.log.end == identity
    assert stored.history.voters == info.voters


@pytest.mark.parametrize("damage", ["flipped", "cut", "longer"])
def test_a_damaged_snapshot_of_another_node_leaves_the_log_as_it_is(damage: str) -> None:
    files, log = with_snapshots(NO_LIMITS)
    before = (log.start_offset, log.end_offset, log.snapshot_ids)
    identity, content = snapshot(50, 6, SnapshotInfo(0, 0, None))
    data = bytearray(b"".join(content))
    if damage == "flipped":
        data[-5] ^= 1
    elif damage == "cut":
        del data[-1:]
    else:
        data += b"x"
    log.write_fetched_chunk(identity, 0, bytes(data))
    with pytest.raises(UnfitSnapshot, match=r"00050-0000000006.*checkpoint"):
        log.install_snapshot(identity)
    assert (log.start_offset, log.end_offset, log.snapshot_ids) == before
    assert not [name for name in files.list_directory(log.directory) if name.endswith(".part")]


@pytest.mark.parametrize(
    ("name", "level", "kraft_version"),
    [
        ("metadata.version", 34, 0),
        ("share.version", 3, 1),
        ("new.version", 1, 1),
        ("metadata.version", 33, 2),
    ],
)
def test_a_snapshot_of_a_newer_release_leaves_the_log_as_it_is(
    name: str, level: int, kraft_version: int
) -> None:
    files, log = with_snapshots(NO_LIMITS)
    before = (log.start_offset, log.end_offset, log.snapshot_ids)
    values = [frame(FeatureLevelRecord(name=name, feature_level=level), 0)]
    info = SnapshotInfo(0, kraft_version, VoterSet([voter(1)]))
    data = b"".join(encode_snapshot(values, info, epoch=6, now_ms=0))
    identity = OffsetAndEpoch(50, 6)
    log.write_fetched_chunk(identity, 0, data)
    with pytest.raises(UnsupportedMetadata, match=r"is n(ew|ot)|does not know it"):
        log.install_snapshot(identity)
    assert (log.start_offset, log.end_offset, log.snapshot_ids) == before
    assert not [name for name in files.list_directory(log.directory) if name.endswith(".part")]


def test_chunks_follow_each_other() -> None:
    _, log = with_snapshots(NO_LIMITS)
    identity = OffsetAndEpoch(50, 6)
    with pytest.raises(CorruptLog, match="does not fit"):
        log.write_fetched_chunk(identity, 5, b"x")
    log.write_fetched_chunk(identity, 0, b"abc")
    with pytest.raises(CorruptLog, match="does not fit"):
        log.write_fetched_chunk(identity, 4, b"x")
    with pytest.raises(CorruptLog, match="was not being fetched"):
        log.install_snapshot(OffsetAndEpoch(51, 6))
    log.close()


def test_slices_of_a_snapshot() -> None:
    _, log = with_snapshots(NO_LIMITS)
    identity = OffsetAndEpoch(8, 3)
    whole = log.read_snapshot_bytes(identity)
    assert log.read_snapshot_slice(identity, 10, 20) == (whole[10:30], len(whole))
    assert log.read_snapshot_slice(identity, len(whole), 20) == (b"", len(whole))


def test_the_settings_of_the_log() -> None:
    config = metadata_log_config(segment_bytes=5000, segment_ms=7, file_delete_delay_ms=9)
    assert (config.segment_bytes, config.segment_ms, config.file_delete_delay_ms) == (5000, 7, 9)
    assert (config.retention_ms, config.retention_bytes) == (-1, -1)
