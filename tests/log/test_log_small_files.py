"""Offset checkpoints and partition metadata."""

import pytest

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.log.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from spindle.log.formats.partition_metadata import read_partition_metadata, write_partition_metadata
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


class TestPartitionMetadata:
    @pytest.mark.parametrize("is_durable", [True, False])
    def test_is_read_back(self, is_durable: bool) -> None:
        files = MemoryFileSystem()
        files.make_directories("/log")
        write_partition_metadata(files, "/log", b"t" * 16, is_durable=is_durable)
        assert read_partition_metadata(files, "/log") == b"t" * 16

    def test_missing_or_empty(self) -> None:
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
