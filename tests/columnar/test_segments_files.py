"""The small files and indexes of log directories, valid and damaged."""

import fcntl
import struct
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from log_directory_files import TOPIC_ID

from spindle.columnar.directory_files import (
    current_replica,
    is_in_use,
    read_leader_epochs,
    read_topic_id,
)
from spindle.columnar.index_files import (
    read_offset_index,
    read_time_index,
    read_transaction_index,
)
from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.log.formats.transaction_index import AbortedTransaction

HEX = "0123456789abcdef" * 2
LOCK_HOLDER = """
import fcntl, sys
file = open(sys.argv[1], "w")
fcntl.lockf(file, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("topic-0", TopicPartition("topic", 0)),
        ("a.b-c_d-12", TopicPartition("a.b-c_d", 12)),
        ("__cluster_metadata-0", TopicPartition("__cluster_metadata", 0)),
        (f"topic-0.{HEX}-future", None),
        (f"topic-0.{HEX}-delete", None),
        (f"topic-0.{HEX}-stray", None),
        ("remote-log-index-cache", None),
        ("topic", None),
        ("-1", None),
    ],
)
def test_names_of_replica_directories(name: str, expected: TopicPartition | None) -> None:
    assert current_replica(name) == expected


def test_the_topic_id_is_read_from_partition_metadata(tmp_path: Path) -> None:
    assert read_topic_id(tmp_path / "gone") is None
    (tmp_path / "partition.metadata").write_text("version: 0\ntopic_id: AQIDBAUGBwgJCgsMDQ4PEA")
    assert read_topic_id(tmp_path) == TOPIC_ID
    (tmp_path / "partition.metadata").write_text("version: 0\n")
    with pytest.raises(CorruptLog, match="partition metadata"):
        read_topic_id(tmp_path)


def test_leader_epochs_are_read_from_their_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n4 120\n")
    assert read_leader_epochs(tmp_path) == ((0, 0), (4, 120))
    assert read_leader_epochs(tmp_path / "gone") == ()
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n0 x\n")
    with pytest.raises(CorruptLog, match="malformed line '0 x'"):
        read_leader_epochs(tmp_path)


def test_a_directory_is_in_use_while_another_process_holds_its_lock(tmp_path: Path) -> None:
    assert not is_in_use(tmp_path)
    lock = tmp_path / ".lock"
    lock.touch()
    assert not is_in_use(tmp_path)
    holder = subprocess.Popen(
        [sys.executable, "-c", LOCK_HOLDER, str(lock)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"locked\n"
        assert is_in_use(tmp_path)
        with lock.open("w") as file, pytest.raises(OSError, match="unavailable"):
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        holder.communicate(b"")
    assert not is_in_use(tmp_path)


def test_offset_index_without_its_unused_tail(tmp_path: Path) -> None:
    index = tmp_path / "x.index"
    index.write_bytes(struct.pack(">iiii", 9, 5000, 19, 9500) + bytes(800))
    offsets, positions = read_offset_index(index, 100_000)
    assert (offsets.tolist(), positions.tolist()) == ([9, 19], [5000, 9500])
    index.write_bytes(bytes(800))
    assert read_offset_index(index, 100_000)[0].tolist() == []


def test_the_unused_part_of_an_active_index_is_not_read(tmp_path: Path) -> None:
    index = tmp_path / "x.index"
    entries = [word for entry in range(1, 20_001) for word in (entry, 4096 * entry)]
    index.write_bytes(struct.pack(f">{len(entries)}i", *entries))
    with index.open("r+b") as file:
        file.truncate(64 * 1024 * 1024)
    tracemalloc.start()
    try:
        offsets, positions = read_offset_index(index, 1 << 30)
        _, max_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (offsets[-1], positions[-1], len(offsets)) == (20_000, 4096 * 20_000, 20_000)
    assert max_bytes < 4 * 1024 * 1024


def test_offset_index_entries_that_do_not_ascend_or_lie_outside_are_ignored(tmp_path: Path) -> None:
    index = tmp_path / "x.index"
    index.write_bytes(struct.pack(">iiiiii", 9, 5000, 7, 9500, 40, 20_000))
    assert read_offset_index(index, 100_000)[0].tolist() == [9]
    index.write_bytes(struct.pack(">iiii", 9, 5000, 19, 9500))
    assert read_offset_index(index, 9_000)[0].tolist() == [9]
    assert read_offset_index(tmp_path / "none.index", 9_000)[0].tolist() == []


def test_a_time_index_is_read_up_to_its_empty_rest(tmp_path: Path) -> None:
    index = tmp_path / "x.timeindex"
    index.write_bytes(struct.pack(">qiqi", 1000, 4, 2000, 9) + bytes(120))
    timestamps, offsets = read_time_index(index)
    assert (timestamps.tolist(), offsets.tolist()) == ([1000, 2000], [4, 9])
    index.write_bytes(bytes(120))
    assert read_time_index(index)[0].tolist() == []


def test_transaction_index_with_a_torn_entry(tmp_path: Path) -> None:
    index = tmp_path / "x.txnindex"
    index.write_bytes(struct.pack(">hqqqq", 0, 7, 3, 9, 10) + bytes(20))
    assert read_transaction_index(index) == [AbortedTransaction(7, 3, 9, 10)]
    assert read_transaction_index(tmp_path / "none") == []
