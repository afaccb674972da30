"""Loading after a clean stop, a kill, a power failure, and with damaged or half-finished files."""

from dataclasses import replace
from struct import pack

import pytest
from log_builders import (
    NOW_MS,
    ROOT,
    SMALL,
    TOPIC_ID,
    append,
    batch,
    end_transaction,
    new_log,
    new_storage,
    reload,
    search,
    values,
)

from spindle.common.errors import CorruptLog
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.log.gaps import accept_gaps, set_aside_after_gap
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.log.log_values import Gap
from spindle.protocol.records.batch import HEADER_BYTES, batches, read_header
from spindle.testing.filesystem import Fault, MemoryFileSystem
from verification.fuzz.hostile_records import forge

PATH = f"{ROOT}/orders-0"
ONE_SEGMENT = LogConfig(segment_index_bytes=240, index_interval_bytes=100)


def filled(files: MemoryFileSystem, count: int, config: LogConfig = SMALL) -> Log:
    log = new_log(config, new_storage(files))
    for number in range(count):
        append(log, f"value {number} " + "x" * 60, at_ms=NOW_MS + number)
    return log


def sizes(files: MemoryFileSystem) -> dict[str, int]:
    return {name: files.size(f"{PATH}/{name}") for name in files.list_directory(PATH)}


def test_a_clean_stop_and_load_changes_no_file() -> None:
    files = MemoryFileSystem()
    log = filled(files, 30)
    expected = values(log)
    log.flush()
    log.close()
    before = sizes(files)
    loaded = reload(files, is_clean=True)
    assert (loaded.log_end_offset, loaded.recovery_point) == (30, 30)
    assert loaded.topic_id == TOPIC_ID
    assert sizes(files) == before
    assert values(loaded) == expected
    writes = {"pwrite", "truncate", "append", "write_atomically", "rename", "remove"}
    loaded_operations = files.operations[-40:]
    assert not [name for name, _ in loaded_operations if name in writes]


def test_a_closed_log_has_trimmed_indexes_with_a_final_time_entry() -> None:
    files = MemoryFileSystem()
    log = filled(files, 3, ONE_SEGMENT)
    log.close()
    file_sizes = sizes(files)
    assert file_sizes["00000000000000000000.index"] == 16
    assert file_sizes["00000000000000000000.timeindex"] == 24
    assert file_sizes["00000000000000000003.snapshot"] == 10
    loaded = reload(files, ONE_SEGMENT, is_clean=True)
    assert loaded.segments.active.max_timestamp == NOW_MS + 2
    assert search(loaded, None) == (NOW_MS + 2, 2, 0)


def test_an_index_grows_to_full_size_again_with_its_next_entry() -> None:
    files = MemoryFileSystem()
    log = filled(files, 3, ONE_SEGMENT)
    log.close()
    loaded = reload(files, ONE_SEGMENT, is_clean=True)
    for _ in range(3):
        append(loaded, "x" * 100)
    assert sizes(files)["00000000000000000000.index"] == 240
    assert [offset for offset, _ in values(loaded)] == list(range(6))


def test_after_a_kill_everything_written_is_there() -> None:
    files = MemoryFileSystem()
    log = filled(files, 30)
    expected = values(log)
    loaded = reload(files, is_clean=False)
    assert (loaded.log_end_offset, loaded.recovery_point) == (30, 0)
    assert values(loaded) == expected
    assert loaded.epochs.entries == [(0, 0)]
    assert search(loaded, NOW_MS + 17) == (NOW_MS + 17, 17, 0)


def test_indexes_built_by_recovery_equal_those_of_appending() -> None:
    by_append, by_recovery = MemoryFileSystem(), MemoryFileSystem()
    filled(by_append, 30).close()
    filled(by_recovery, 30)
    reload(by_recovery, is_clean=False).close()
    names = [name for name in by_append.list_directory(PATH) if "index" in name]
    assert len(names) >= 6
    for name in names:
        path = f"{PATH}/{name}"
        assert by_append.read_bytes(path) == by_recovery.read_bytes(path), name


def test_a_power_failure_leaves_what_was_flushed() -> None:
    files = MemoryFileSystem()
    log = filled(files, 20)
    log.flush()
    for _ in range(5):
        append(log, "lost")
    files.crash()
    loaded = reload(files, is_clean=False, recovery_point=20)
    assert loaded.log_end_offset == 20
    assert len(values(loaded)) == 20


def test_a_torn_tail_is_cut_at_every_byte() -> None:
    """Any part of the unsynced bytes may survive; recovery keeps exactly the whole batches."""
    size = len(batch("value 0 " + "x" * 60))
    for torn in range(0, 2 * size + 1, 1):
        files = MemoryFileSystem()
        log = filled(files, 2, ONE_SEGMENT)
        log.flush()
        for number in (2, 3):
            append(log, f"value {number} " + "x" * 60, at_ms=NOW_MS + number)

        def surviving_bytes(path: str, unsynced_bytes: int, torn: int = torn) -> int:
            return torn if path.endswith(".log") else 0

        files.crash(surviving_bytes)
        loaded = reload(files, ONE_SEGMENT, is_clean=False, recovery_point=2)
        whole = 2 + torn // size
        assert loaded.log_end_offset == whole, f"{torn} bytes survived"
        assert [offset for offset, _ in values(loaded)] == list(range(whole))
        assert loaded.size_bytes == whole * size == files.size(f"{PATH}/{0:020d}.log")
        assert append(loaded, "next") == whole


@pytest.mark.parametrize("position", range(0, 131, 13))
def test_a_damaged_batch_ends_the_log(position: int) -> None:
    files = MemoryFileSystem()
    log = filled(files, 4, ONE_SEGMENT)
    size = log.size_bytes // 4
    file = files.open(f"{PATH}/{0:020d}.log")
    byte = file.pread(1, 2 * size + position)
    file.pwrite(bytes([byte[0] ^ 0xFF]), 2 * size + position)
    loaded = reload(files, ONE_SEGMENT, is_clean=False)
    # Only the leader epoch (bytes 12 to 15) is neither checked nor part of the order.
    assert loaded.log_end_offset == (4 if 12 <= position < 16 else 2)


@pytest.mark.parametrize("is_index_missing", [False, True])
def test_segments_after_a_damaged_one_stay(
    is_index_missing: bool, caplog: pytest.LogCaptureFixture
) -> None:
    files = MemoryFileSystem()
    log = filled(files, 30)
    bases = log.segments.base_offsets
    path = f"{PATH}/{bases[1]:020d}.log"
    file = files.open(path)
    file.pwrite(b"\xff" * 8, file.size() - 8)
    if is_index_missing:
        files.remove(path.replace(".log", ".index"))
    # Everything but the damaged batch was flushed, and the damage is below the recovery point.
    loaded = reload(files, is_clean=False, recovery_point=30 if is_index_missing else 0)
    assert loaded.segments.base_offsets == bases
    lost = bases[2] - 1
    assert [offset for offset, _ in values(loaded)] == [n for n in range(30) if n != lost]
    assert loaded.unverified_gaps == ((lost, bases[2]),)
    assert append(loaded, "next") == 30
    # The log of the node names the bytes that are gone, and the records.
    said = [record.getMessage() for record in caplog.records]
    assert said[0].startswith(f"{path} is cut from ")
    assert f"{bases[2]:020d}.log has no records from offset {lost} to {lost}: " in said[1]


class TestGaps:
    """A power failure may take the end of one segment and leave the next."""

    def with_gap(self, files: MemoryFileSystem, config: LogConfig) -> list[int]:
        bases = filled(files, 30, config).segments.base_offsets
        path = f"{PATH}/{bases[1]:020d}.log"
        last = [position for position, _ in batches(files.read_bytes(path))][-1]
        files.open(path).truncate(last)
        return bases

    @pytest.mark.parametrize("policy", ["delete", "compact"])
    @pytest.mark.parametrize("is_clean", [False, True])
    def test_segments_after_a_gap_stay_and_the_gap_is_unverified(
        self, policy: str, is_clean: bool
    ) -> None:
        files = MemoryFileSystem()
        config = replace(SMALL, cleanup_policy=(policy,))
        bases = self.with_gap(files, config)
        loaded = reload(files, config, is_clean=is_clean)
        assert loaded.segments.base_offsets == bases
        assert loaded.log_end_offset == 30
        assert loaded.unverified_gaps == (Gap(bases[2] - 1, bases[2]),)
        # The next start looks at it again, even if the whole log is flushed meanwhile.
        loaded.flush()
        assert (loaded.recovery_point, loaded.recovery_point_to_store) == (30, bases[2] - 1)

    @pytest.mark.parametrize(("recovery_point", "clean_offset"), [(20, 0), (0, 20)])
    def test_a_gap_below_what_was_flushed_is_right(
        self, recovery_point: int, clean_offset: int
    ) -> None:
        files = MemoryFileSystem()
        bases = self.with_gap(files, SMALL)
        loaded = reload(
            files, is_clean=False, recovery_point=recovery_point, clean_offset=clean_offset
        )
        assert loaded.segments.base_offsets == bases
        assert loaded.unverified_gaps == ()

    def test_a_batch_that_is_lost_in_a_gap_is_no_duplicate(self) -> None:
        files = MemoryFileSystem()
        log = new_log(SMALL, new_storage(files))
        for number in range(30):
            append(log, "x" * 60, producer_id=1, sequence=number)
        bases = log.segments.base_offsets
        for base in bases[2:]:
            # Power failed: the data is lost, the producer snapshots that the rolls wrote are not.
            files.open(f"{PATH}/{base:020d}.log").truncate(0)
        files.open(f"{PATH}/{bases[1]:020d}.log").truncate(0)
        loaded = reload(files, is_clean=False)
        lost = batch("x" * 60, producer_id=1, sequence=bases[1])
        assert not loaded.append_as_leader(lost, 0, NOW_MS).is_duplicate

    @pytest.mark.parametrize(
        ("is_clean", "recovery_point", "end_offset"),
        [(False, 0, 29), (False, 30, 30), (True, 0, 30)],
    )
    def test_an_empty_end_behind_a_gap_goes_only_if_its_records_may_be_lost(
        self, is_clean: bool, recovery_point: int, end_offset: int
    ) -> None:
        # After a clean stop without a checkpoint, compaction may have made the gap. Records below
        # the recovery point were on the device, so their offsets must not be given again.
        files = MemoryFileSystem()
        log = filled(files, 30)
        path = log.segments.active.path
        log.roll(NOW_MS)
        last = [position for position, _ in batches(files.read_bytes(path))][-1]
        files.open(path).pwrite(b"\xff" * 8, files.size(path) - 8)
        if recovery_point:
            files.remove(path.replace(".log", ".index"))
        else:
            files.open(path).truncate(last)
        loaded = reload(files, is_clean=is_clean, recovery_point=recovery_point)
        assert loaded.log_end_offset == end_offset

    def test_truncations_and_the_log_start_end_the_question(self) -> None:
        for change in ("truncate", "start over", "lead", "log start", "confirm", "replace"):
            files = MemoryFileSystem()
            bases = self.with_gap(files, SMALL)
            loaded = reload(files, is_clean=False)
            loaded.update_high_watermark(30)
            assert loaded.unverified_gaps
            if change == "truncate":
                loaded.truncate_to(bases[2] - 1)
            elif change == "start over":
                loaded.truncate_fully_and_start_at(3)
            elif change == "lead":
                accept_gaps(loaded)
            elif change == "log start":
                loaded.increment_log_start_offset(bases[2])
            elif change == "confirm":
                loaded.confirm_gaps_below(bases[2])
            else:
                whole = new_log()
                for _ in range(30):
                    append(whole, "x")
                loaded.adopt_state(whole.state_for_copy())
            assert loaded.unverified_gaps == (), change

    def test_a_log_that_must_not_have_gaps_ends_at_the_first_and_sets_later_segments_aside(
        self,
    ) -> None:
        files = MemoryFileSystem()
        bases = self.with_gap(files, SMALL)
        content = files.read_bytes(f"{PATH}/{bases[3]:020d}.log")
        loaded = reload(files, is_clean=False)
        set_aside_after_gap(loaded)
        assert loaded.segments.base_offsets == bases[:2]
        assert loaded.log_end_offset == bases[2] - 1
        assert append(loaded, "next") == bases[2] - 1
        loaded = reload(files, is_clean=False)
        assert loaded.log_end_offset == bases[2]
        assert files.read_bytes(f"{PATH}/{bases[3]:020d}.log.stray") == content


def test_segments_below_the_recovery_point_are_not_read() -> None:
    files = MemoryFileSystem()
    log = filled(files, 30)
    bases = log.segments.base_offsets
    log.flush()
    before = len(files.operations)
    reload(files, is_clean=False, recovery_point=bases[-1] + 1)
    read = {path for name, path in files.operations[before:] if name == "pread"}
    assert f"{PATH}/{bases[-1]:020d}.log" in read
    assert f"{PATH}/{bases[0]:020d}.log" not in read


@pytest.mark.parametrize("rest", [b"\0" * 5, b"\0" * 200, b"\xff" * 200])
def test_bytes_after_the_last_batch_are_cut_even_after_a_clean_stop(rest: bytes) -> None:
    files = MemoryFileSystem()
    filled(files, 3, ONE_SEGMENT).close()
    path = f"{PATH}/{0:020d}.log"
    size = files.size(path)
    files.open(path).pwrite(rest, size)
    loaded = reload(files, ONE_SEGMENT, is_clean=True)
    assert (loaded.log_end_offset, files.size(path)) == (3, size)
    assert append(loaded, "next") == 3
    assert len(values(loaded)) == 4


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "untrimmed", "odd size"])
def test_a_bad_index_is_rebuilt_even_after_a_clean_stop(suffix: str, damage: str) -> None:
    files = MemoryFileSystem()
    filled(files, 30).close()
    path = f"{PATH}/{0:020d}{suffix}"
    good = files.read_bytes(path)
    if damage == "missing":
        files.remove(path)
    elif damage == "untrimmed":
        files.open(path).truncate(240)
    else:
        files.open(path).truncate(len(good) - 1)
    loaded = reload(files, is_clean=True)
    assert files.read_bytes(path) == good
    assert len(values(loaded)) == 30


@pytest.mark.parametrize("position", [-7, 0, 10**6])
def test_an_index_that_ends_beside_its_segment_is_rebuilt(position: int) -> None:
    files = MemoryFileSystem()
    filled(files, 30).close()
    path = f"{PATH}/{0:020d}.index"
    good = files.read_bytes(path)
    files.open(path).pwrite(pack(">ii", 12, position), len(good) - 8)
    loaded = reload(files, is_clean=True)
    assert files.read_bytes(path) == good
    assert len(values(loaded)) == 30


@pytest.mark.parametrize("position", [-7, 1, 61, 10**6])
def test_an_index_that_turns_out_to_be_wrong_is_rebuilt(
    position: int, caplog: pytest.LogCaptureFixture
) -> None:
    """A reader gets the records that it asks for, and none is passed over."""
    files = MemoryFileSystem()
    filled(files, 30, ONE_SEGMENT).close()
    path = f"{PATH}/{0:020d}.index"
    good = files.read_bytes(path)
    assert len(good) > 40
    for entry in range(0, len(good) - 8, 8):
        files.open(path).pwrite(pack(">i", position), entry + 4)
    loaded = reload(files, ONE_SEGMENT, is_clean=True)
    (only_batch,) = [header for _, header in batches(loaded.read(10, 1, 30).records)]
    assert only_batch.base_offset <= 10 <= only_batch.last_offset
    assert "0.index does not fit its segment: rebuilt from it" in caplog.text
    assert files.read_bytes(path) == good
    assert append(loaded, "next") == 30


def test_an_index_without_a_segment_is_removed() -> None:
    files = MemoryFileSystem()
    filled(files, 3).close()
    for suffix in (".index", ".timeindex", ".txnindex"):
        files.open(f"{PATH}/{77:020d}{suffix}", create=True)
    loaded = reload(files, is_clean=True)
    assert loaded.segments.base_offsets == [0]
    assert not [name for name in files.list_directory(PATH) if "77." in name]


def test_deleted_and_temporary_files_go() -> None:
    files = MemoryFileSystem()
    filled(files, 3).close()
    for name in ("00000000000000000000.log.deleted", "leader-epoch-checkpoint.tmp"):
        files.open(f"{PATH}/{name}", create=True)
    reload(files, is_clean=True)
    names = files.list_directory(PATH)
    assert not [name for name in names if name.endswith((".deleted", ".tmp"))]


class TestInterruptedCompaction:
    def compacted(self, files: MemoryFileSystem, suffix: str) -> list[int]:
        """Make a log of several segments, and a segment that replaces its first two."""
        log = filled(files, 30)
        log.close()
        bases = log.segments.base_offsets
        data = files.read_bytes(f"{PATH}/{bases[0]:020d}.log")
        last = files.read_bytes(f"{PATH}/{bases[1]:020d}.log")
        kept = data[: read_header(data).size_bytes] + last[[at for at, _ in batches(last)][-1] :]
        content = {".log": kept, ".index": b"", ".timeindex": b""}
        for kind, written in content.items():
            files.open(f"{PATH}/{bases[0]:020d}{kind}{suffix}", create=True).pwrite(written, 0)
        return bases

    def test_a_swap_is_completed(self) -> None:
        files = MemoryFileSystem()
        bases = self.compacted(files, ".swap")
        loaded = reload(files, is_clean=False)
        assert loaded.segments.base_offsets == [bases[0], *bases[2:]]
        assert [offset for offset, _ in values(loaded)] == [
            0,
            bases[2] - 1,
            *range(bases[2], 30),
        ]
        assert not [name for name in files.list_directory(PATH) if name.endswith(".swap")]

    def test_cleaned_files_without_a_swap_are_dropped(self) -> None:
        files = MemoryFileSystem()
        bases = self.compacted(files, ".cleaned")
        loaded = reload(files, is_clean=False)
        assert loaded.segments.base_offsets == bases
        assert len(values(loaded)) == 30
        assert not [name for name in files.list_directory(PATH) if name.endswith(".cleaned")]

    def test_swaps_of_a_group_that_was_not_complete_are_dropped(self) -> None:
        files = MemoryFileSystem()
        bases = self.compacted(files, ".swap")
        files.open(f"{PATH}/{0:020d}.log.cleaned", create=True)
        loaded = reload(files, is_clean=False)
        assert loaded.segments.base_offsets == bases
        assert len(values(loaded)) == 30


def test_a_log_that_ends_before_its_start_is_emptied_there() -> None:
    files = MemoryFileSystem()
    filled(files, 30)
    loaded = reload(files, is_clean=False, log_start_offset=50)
    assert (loaded.log_start_offset, loaded.log_end_offset) == (50, 50)
    assert loaded.segments.base_offsets == [50]
    assert append(loaded, "a") == 50


def test_the_checkpointed_log_start_is_kept() -> None:
    files = MemoryFileSystem()
    filled(files, 30).close()
    loaded = reload(files, is_clean=True, log_start_offset=11)
    assert (loaded.log_start_offset, loaded.high_watermark) == (11, 11)
    assert values(loaded)[0][0] == 11
    assert loaded.epochs.entries == [(0, 11)]


def test_an_empty_directory_becomes_an_empty_log() -> None:
    files = MemoryFileSystem()
    files.make_directories(PATH)
    loaded = reload(files, is_clean=False)
    assert (loaded.log_end_offset, loaded.topic_id) == (0, None)
    assert append(loaded, "a") == 0


def test_epochs_beyond_the_log_are_cut() -> None:
    files = MemoryFileSystem()
    log = filled(files, 3)
    log.assign_epoch_start(4, 3)
    loaded = reload(files, is_clean=False)
    assert loaded.epochs.entries == [(0, 0)]


def test_epochs_that_the_file_lacks_are_found_in_the_batches() -> None:
    files = MemoryFileSystem()
    log = filled(files, 2)
    append(log, "a", leader_epoch=3)
    files.write_atomically(f"{PATH}/leader-epoch-checkpoint", b"0\n1\n0 0\n")
    assert reload(files, is_clean=False).epochs.entries == [(0, 0), (3, 2)]


@pytest.mark.parametrize("kept", [0.0, 0.5, 0.9, 1.0])
def test_epochs_survive_a_power_failure_during_an_election(kept: float) -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    for epoch in (1, 2, 3):
        append(log, *["x" * 60] * 6, leader_epoch=epoch)
        append(log, "x" * 600, leader_epoch=epoch)
    flush = log.begin_flush()
    # The flush, beside the directory's thread, brings the new name of the file to the device.
    log.assign_epoch_start(9, log.log_end_offset)
    flush.run()
    log.complete_flush(flush)
    files.crash(lambda _, unsynced_bytes: int(unsynced_bytes * kept))
    loaded = reload(files, is_clean=False, recovery_point=log.recovery_point)
    assert loaded.log_end_offset == 21
    assert loaded.epochs.entries == [(1, 0), (2, 7), (3, 14)]


@pytest.mark.parametrize("step", ["append", "flush", "start over"])
def test_a_new_log_survives_a_power_failure_before_its_first_record(step: str) -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    files.sync_directory(ROOT)
    log.assign_epoch_start(3, 0)
    fails = Fault("partition.metadata", "write_atomically")
    if step == "start over":
        log.truncate_fully_and_start_at(7)
    else:
        files.faults.append(fails)
        with pytest.raises(OSError, match="injected"):
            append(log, "a", leader_epoch=3) if step == "append" else log.begin_flush()
        files.faults.clear()
    files.crash(lambda _, unsynced_bytes: unsynced_bytes // 2)
    assert reload(files, is_clean=False).topic_id in (None, TOPIC_ID)


@pytest.mark.parametrize(
    "content", [b"1\n0\n", b"0\n1\n0 0\n1 1\n", b"0\nx\n", b"0\n1\n0\n", b"0\n1\n0 a\n", b"\xff\n"]
)
def test_a_malformed_epoch_file_is_reported(content: bytes) -> None:
    files = MemoryFileSystem()
    filled(files, 2).close()
    files.write_atomically(f"{PATH}/leader-epoch-checkpoint", content)
    with pytest.raises(CorruptLog, match=f"{PATH}/leader-epoch-checkpoint"):
        reload(files, is_clean=True)


def test_producers_and_transactions_are_rebuilt() -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    for number in range(12):
        append(log, "x" * 60, producer_id=1, sequence=number)
    append(log, "t" * 60, producer_id=2, sequence=0, transactional=True)
    end_transaction(log, 2, is_commit=False)
    append(log, "t" * 60, producer_id=3, sequence=0, transactional=True)
    expected = [repr(entry) for entry in log.active_producers()]
    aborted = [AbortedTransaction(2, 12, 13, 14)]
    assert log.aborted_transactions(0, 15) == aborted
    for recovery_point in (0, 7, 13, 15):
        loaded = reload(files, is_clean=False, recovery_point=recovery_point)
        loaded.update_high_watermark(15)
        assert sorted(map(repr, loaded.active_producers())) == sorted(expected)
        assert loaded.last_stable_offset == 14
        assert loaded.aborted_transactions(0, 15) == aborted
        duplicate = loaded.append_as_leader(batch("x" * 60, producer_id=1, sequence=11), 0, NOW_MS)
        assert duplicate.is_duplicate


def test_a_damaged_producer_snapshot_is_replaced_by_replaying() -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    for number in range(12):
        append(log, "x" * 60, producer_id=1, sequence=number)
    log.close()
    path = f"{PATH}/{12:020d}.snapshot"
    files.open(path).pwrite(b"\xff", 20)
    loaded = reload(files, is_clean=True)
    assert [entry.last_sequence for entry in loaded.active_producers()] == [11]


def test_zeros_at_the_end_are_cut_also_without_a_producer_snapshot() -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    for number in range(12):
        append(log, "x" * 60, producer_id=1, sequence=number)
    *_, last = log.segments.base_offsets
    path = log.segments.active.path
    log.close()
    for name in files.list_directory(PATH):
        if name.endswith(".snapshot"):
            files.remove(f"{PATH}/{name}")
    size_bytes = files.size(path)
    files.open(path).pwrite(bytes(300), size_bytes)
    loaded = reload(files, is_clean=False, recovery_point=last)
    assert (loaded.log_end_offset, files.size(path)) == (12, size_bytes)
    assert [entry.last_sequence for entry in loaded.active_producers()] == [11]


def test_damage_in_an_old_segment_hides_only_producers_of_that_segment() -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    for number in range(12):
        append(log, "x" * 60, producer_id=number, sequence=0)
    _, second, *_ = log.segments.base_offsets
    path = log.segments.first.path
    log.close()
    for name in files.list_directory(PATH):
        if name.endswith(".snapshot"):
            files.remove(f"{PATH}/{name}")
    files.open(path).pwrite(bytes(HEADER_BYTES), 0)
    loaded = reload(files, is_clean=True)
    assert loaded.log_end_offset == 12
    known = [entry.producer_id for entry in loaded.active_producers()]
    assert known == list(range(second, 12))


def _with_open_transaction_behind_damage(files: MemoryFileSystem, kind: str) -> int:
    """Write a log without snapshots, damage its second batch; return its second segment's base."""
    log = new_log(SMALL, new_storage(files))
    for number in range(12):
        append(log, "x" * 60, producer_id=number, sequence=0, transactional=number == 3)
    segment, (_, second, *_) = log.segments.first, log.segments.base_offsets
    assert second > 4
    positions = [position for position, *_ in segment.scan()]
    log.close()
    for name in files.list_directory(PATH):
        if name.endswith(".snapshot"):
            files.remove(f"{PATH}/{name}")
    file = files.open(segment.path)
    match kind:
        case "no header":
            file.pwrite(bytes(HEADER_BYTES), positions[1])
        case "a length beyond the file":
            file.pwrite((1 << 20).to_bytes(4, "big"), positions[1] + 8)
        case "an offset below the batch before":
            file.pwrite(bytes(8), positions[1])
        case "an offset beyond the segment":
            file.pwrite((1 << 40).to_bytes(8, "big"), positions[1])
        case "another producer":
            file.pwrite((99).to_bytes(8, "big"), positions[1] + 43)
    return second


@pytest.mark.parametrize(
    "kind",
    [
        "no header",
        "a length beyond the file",
        "an offset below the batch before",
        "an offset beyond the segment",
        "another producer",
    ],
)
def test_the_last_stable_offset_stays_below_a_damaged_batch(kind: str) -> None:
    files = MemoryFileSystem()
    second = _with_open_transaction_behind_damage(files, kind)
    loaded = reload(files, is_clean=True)
    loaded.update_high_watermark(12)
    assert loaded.last_stable_offset == 1
    assert [entry.producer_id for entry in loaded.active_producers()] == [0, *range(second, 12)]
    append(loaded, "y")
    loaded.update_high_watermark(13)
    assert loaded.last_stable_offset == 1
    # A stop must not store the incomplete producers.
    loaded.close()
    again = reload(files, is_clean=True)
    again.update_high_watermark(13)
    assert again.last_stable_offset == 1
    again.increment_log_start_offset(second)
    assert again.last_stable_offset == 13


def test_a_truncation_below_a_damaged_batch_makes_the_producers_complete() -> None:
    files = MemoryFileSystem()
    _with_open_transaction_behind_damage(files, "another producer")
    loaded = reload(files, is_clean=True)
    loaded.truncate_to(1)
    loaded.update_high_watermark(1)
    append(loaded, "y")
    loaded.update_high_watermark(2)
    assert loaded.last_stable_offset == 2


def test_stray_producer_snapshots_go() -> None:
    files = MemoryFileSystem()
    log = filled(files, 30)
    log.close()
    bases = log.segments.base_offsets
    files.open(f"{PATH}/{bases[1] + 1:020d}.snapshot", create=True)
    reload(files, is_clean=True)
    names = [name for name in files.list_directory(PATH) if name.endswith(".snapshot")]
    assert names == [f"{offset:020d}.snapshot" for offset in (*bases[1:], 30)]


def test_no_producer_expires_before_its_settings_are_known() -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    append(log, "a", producer_id=1, sequence=0, at_ms=NOW_MS)
    append(log, "b", producer_id=2, sequence=0, at_ms=NOW_MS, transactional=True)
    log.close()
    day_ms = SMALL.producer_id_expiration_ms
    for is_clean in (True, False):
        loaded = reload(files, is_clean=is_clean, now_ms=NOW_MS + day_ms)
        assert [entry.producer_id for entry in loaded.active_producers()] == [1, 2]
    loaded.remove_expired_producers(NOW_MS + day_ms)
    assert [entry.producer_id for entry in loaded.active_producers()] == [2]


def test_a_control_batch_that_does_not_parse_is_no_torn_write() -> None:
    files = MemoryFileSystem()
    log = new_log(LogConfig(), new_storage(files))
    append(log, "first")
    position = log.size_bytes
    end_transaction(log, 7, is_commit=True)
    segment = log.segments.active
    *_, batch = segment.scan(position)
    damaged = forge(bytes(batch.data), b"\xff" * (len(batch.data) - HEADER_BYTES))
    append(log, "last")
    files.open(segment.path).pwrite(damaged, position)
    assert reload(files, is_clean=False).log_end_offset == 3


@pytest.mark.parametrize("base_offset", [2**31, 2**41, 2**62])
def test_a_batch_whose_offset_no_index_can_hold_ends_its_segment(base_offset: int) -> None:
    """The CRC does not cover the offset, so a flipped bit of the disk shows only in its value."""
    files = MemoryFileSystem()
    log = new_log(LogConfig(index_interval_bytes=1), new_storage(files))
    append(log, "first")
    position = log.size_bytes
    append(log, "damaged")
    append(log, "last")
    path = log.segments.active.path
    files.open(path).pwrite(base_offset.to_bytes(8, "big"), position)
    loaded = reload(files, is_clean=False)
    assert (loaded.log_end_offset, loaded.size_bytes) == (1, position)


@pytest.mark.parametrize("kept", [0, 1, 5, 11, 12, 22, 30, 42])
@pytest.mark.parametrize("fill", [b"", b"\0" * 8])
def test_a_torn_topic_id_counts_as_none_before_the_first_record_only(
    kept: int, fill: bytes
) -> None:
    files = MemoryFileSystem()
    log = new_log(SMALL, new_storage(files))
    path = f"{PATH}/partition.metadata"
    content = files.read_bytes(path)
    assert len(content) == 43
    torn = content[:kept] + fill
    files.write_atomically(path, torn)
    assert reload(files, is_clean=False).topic_id is None
    files.write_atomically(path, content)
    append(log, "a")
    files.write_atomically(path, torn)
    if torn:
        with pytest.raises(CorruptLog, match="not a partition metadata file"):
            reload(files, is_clean=False)
