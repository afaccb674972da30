"""Checkpoints, epoch history and partition metadata."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spindle.common.errors import CorruptLog
from spindle.common.ids import OffsetAndEpoch, TopicPartition
from spindle.log.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from spindle.log.formats.partition_metadata import read_partition_metadata, write_partition_metadata
from spindle.log.leader_epochs import LeaderEpochs
from spindle.testing.filesystem import MemoryFileSystem


class TestOffsetCheckpoints:
    def test_an_offset_checkpoint_has_kafkas_format(self) -> None:
        files = MemoryFileSystem()
        offsets = {TopicPartition("six", 2): 7, TopicPartition("a.b", 0): 0}
        write_offset_checkpoint(files, "/c", offsets)
        assert files.read_bytes("/c") == b"0\n2\nsix 2 7\na.b 0 0\n"
        assert read_offset_checkpoint(files, "/c") == offsets

    def test_a_missing_or_truncated_offset_checkpoint_has_no_entries(self) -> None:
        files = MemoryFileSystem()
        assert read_offset_checkpoint(files, "/missing") == {}
        for content in (b"", b"0\n", b"0", b"0\n0\n"):
            files.write_atomically("/c", content)
            assert read_offset_checkpoint(files, "/c") == {}
        write_offset_checkpoint(files, "/c", {})
        assert files.read_bytes("/c") == b"0\n0\n"

    @pytest.mark.parametrize(
        "content",
        [b"1\n0\n", b"0\n1\n", b"0\n0\na 0 1\n", b"0\n1\na 0\n", b"0\n1\na 0 1 2\n", b"x\n0\n"],
    )
    def test_malformed_ones_are_named(self, content: bytes) -> None:
        files = MemoryFileSystem()
        files.write_atomically("/c", content)
        with pytest.raises(CorruptLog, match="/c at byte 0"):
            read_offset_checkpoint(files, "/c")


def epochs_of(*entries: tuple[int, int]) -> LeaderEpochs:
    files = MemoryFileSystem()
    files.make_directories("/log")
    epochs = LeaderEpochs(files, "/log")
    for epoch, start in entries:
        epochs.assign(epoch, start)
    return epochs


class TestLeaderEpochs:
    def test_only_what_is_new_is_written(self) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        epochs = LeaderEpochs(files, "/log")
        epochs.assign(1, 0)
        epochs.make_durable()
        before = len(files.operations)
        epochs.assign(1, 10)
        epochs.make_durable()
        assert len(files.operations) == before
        epochs.assign(4, 12)
        assert not epochs.is_stored
        epochs.store()
        assert files.read_bytes("/log/leader-epoch-checkpoint") == b"0\n2\n1 0\n4 12\n"

    @pytest.mark.parametrize(
        ("epoch", "start", "expected"),
        [
            (5, 30, [(1, 0), (3, 10), (5, 30)]),
            (5, 20, [(1, 0), (3, 10), (5, 20)]),
            (5, 10, [(1, 0), (5, 10)]),
            (5, 5, [(1, 0), (5, 5)]),
            (3, 8, [(1, 0), (3, 8)]),
            (2, 30, [(1, 0), (2, 30)]),
            (0, 0, [(0, 0)]),
        ],
    )
    def test_contradicting_entries_are_dropped(
        self, epoch: int, start: int, expected: list[tuple[int, int]]
    ) -> None:
        epochs = epochs_of((1, 0), (3, 10))
        epochs.assign(epoch, start)
        assert epochs.entries == expected

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            (-1, (-1, -1)),
            (0, (5, 0)),
            (1, (5, 1)),
            (2, (12, 2)),
            (3, (12, 2)),
            (4, (20, 4)),
            (6, (99, 6)),
            (7, (-1, -1)),
        ],
    )
    def test_the_end_of_an_epoch_is_the_start_of_the_next(
        self, asked: int, expected: tuple[int, int]
    ) -> None:
        epochs = epochs_of((2, 5), (4, 12), (6, 20))
        assert epochs.log_end_offset_for(asked, 99) == OffsetAndEpoch(*expected)

    def test_end_offsets_of_an_empty_history(self) -> None:
        assert epochs_of().log_end_offset_for(0, 5) == OffsetAndEpoch(-1, -1)

    def test_the_epoch_of_an_offset(self) -> None:
        epochs = epochs_of((2, 5), (4, 12))
        assert [epochs.epoch_at(offset) for offset in (4, 5, 11, 12, 50)] == [None, 2, 2, 4, 4]

    @pytest.mark.parametrize(
        ("start", "expected"),
        [
            (3, [(2, 5), (4, 12), (6, 20)]),
            (5, [(2, 5), (4, 12), (6, 20)]),
            (7, [(2, 7), (4, 12), (6, 20)]),
            (12, [(4, 12), (6, 20)]),
            (15, [(4, 15), (6, 20)]),
            (90, [(6, 90)]),
        ],
    )
    def test_truncation_from_the_start(self, start: int, expected: list[tuple[int, int]]) -> None:
        epochs = epochs_of((2, 5), (4, 12), (6, 20))
        epochs.truncate_from_start(start)
        assert epochs.entries == expected

    @pytest.mark.parametrize(("end", "count"), [(21, 3), (20, 2), (13, 2), (12, 1), (5, 0), (0, 0)])
    def test_truncation_from_the_end(self, end: int, count: int) -> None:
        epochs = epochs_of((2, 5), (4, 12), (6, 20))
        epochs.truncate_from_end(end)
        assert epochs.entries == [(2, 5), (4, 12), (6, 20)][:count]

    @given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30)), max_size=12))
    def test_both_columns_always_ascend_and_survive_a_reload(
        self, assigned: list[tuple[int, int]]
    ) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        epochs = LeaderEpochs(files, "/log")
        for epoch, start in assigned:
            epochs.assign(epoch, start)
        for column in zip(*epochs.entries, strict=True):
            assert list(column) == sorted(set(column))
        epochs.make_durable()
        files.sync_directory("/")
        files.crash()
        again = LeaderEpochs(files, "/log")
        again.load()
        assert again.entries == epochs.entries

    @pytest.mark.parametrize("left", [b"", bytes(8), b"0\0\0\0", b"0\n1\n3\0\0\0\0"])
    def test_an_epoch_checkpoint_torn_by_a_power_failure_is_read_as_empty(
        self, left: bytes
    ) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        files.write_atomically("/log/leader-epoch-checkpoint", left)
        epochs = LeaderEpochs(files, "/log")
        epochs.load()
        assert epochs.entries == []
        epochs.assign(3, 0)
        epochs.store()
        assert files.read_bytes("/log/leader-epoch-checkpoint") == b"0\n1\n3 0\n"

    def test_impossible_entries_are_mistakes(self) -> None:
        with pytest.raises(ValueError, match="epoch -1 at offset 0"):
            epochs_of((-1, 0))


class TestPartitionMetadata:
    @pytest.mark.parametrize("is_durable", [True, False])
    def test_the_topic_id_is_read_as_written(self, is_durable: bool) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        write_partition_metadata(files, "/log", b"t" * 16, is_durable=is_durable)
        assert read_partition_metadata(files, "/log") == b"t" * 16

    def test_a_missing_or_empty_file_has_no_topic_id(self) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        assert read_partition_metadata(files, "/log") is None
        files.open("/log/partition.metadata", create=True)
        assert read_partition_metadata(files, "/log") is None

    @pytest.mark.parametrize(
        ("content", "finding"),
        [
            (b"junk", "not a partition metadata file"),
            (b"version: 0\n", "not a partition metadata file"),
            (b"version: 0\ntopic_id: short", "not a partition metadata file"),
            (b"version: x\ntopic_id: YWFhYWFhYWFhYWFhYWFhYQ", "not a partition metadata file"),
            (b"version: 1\ntopic_id: YWFhYWFhYWFhYWFhYWFhYQ", "version 1, expected 0"),
            (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "the topic id is zero"),
            (b"\xff\xff", "not a partition metadata file"),
        ],
    )
    def test_malformed_ones_are_named(self, content: bytes, finding: str) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        files.write_atomically("/log/partition.metadata", content)
        with pytest.raises(CorruptLog, match=f"/log/partition.metadata at byte 0: {finding}"):
            read_partition_metadata(files, "/log")


@pytest.mark.parametrize("content", [b"0\n1\n12 345\n", b"0\n2\n1 0\n23 45\n"])
@pytest.mark.parametrize("missing", range(1, 15))
def test_epochs_that_a_power_failure_tore_are_none(content: bytes, missing: int) -> None:
    files = MemoryFileSystem()
    files.make_directories("/log")
    files.write_atomically("/log/leader-epoch-checkpoint", content[:-missing])
    epochs = LeaderEpochs(files, "/log")
    epochs.load()
    assert epochs.entries == []
