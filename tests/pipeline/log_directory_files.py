"""Log directories for tests, with segments, indexes and small files as a broker writes them."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import md5
from pathlib import Path
from typing import Any

from spindle.common.ids import TopicPartition
from spindle.common.uuids import uuid_text
from spindle.protocol.records.batch import batches, read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction

TOPIC_ID = bytes(range(1, 17))
OTHER_ID = bytes(range(101, 117))
CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
INDEX_INTERVAL_BYTES = 4096


def format_directory(path: Path, *, node_id: int = 1, cluster_id: str = CLUSTER_ID) -> Path:
    """Create an empty log directory with its identity."""
    path.mkdir(parents=True)
    text = f"#\n#Mon Jan 01\nversion=1\ncluster.id={cluster_id}\nnode.id={node_id}\n"
    directory_id = uuid_text(md5(str(path).encode()).digest())
    (path / "meta.properties").write_text(f"{text}directory.id={directory_id}\n")
    return path


def write_checkpoint(directory: Path, name: str, entries: dict[TopicPartition, int]) -> None:
    lines = [f"{tp.topic} {tp.partition} {offset}" for tp, offset in entries.items()]
    (directory / name).write_text("\n".join(["0", str(len(lines)), *lines]) + "\n")


def simple_records(count: int, *, first: int = 0, value_bytes: int = 20) -> list[SimpleRecord]:
    """Return records with timestamps 1_000_000 + index (ms) and values that name their index."""
    return [
        SimpleRecord(
            b"key-%d" % (index % 7), (b"value-%d " % index).ljust(value_bytes), 1_000_000 + index
        )
        for index in range(first, first + count)
    ]


def marker(producer_id: int, offset: int, *, is_commit: bool) -> bytes:
    """Return the control batch that ends a transaction."""
    data = build_end_transaction(EndTransactionMarker(is_commit, 0), producer_id, 0, 1_000_000)
    return struct.pack(">q", offset) + data[8:]


@dataclass
class ReplicaWriter:
    """Appends batches to a partition's directory, and keeps its indexes as a broker does."""

    directory: Path
    partition: TopicPartition
    topic_id: bytes = TOPIC_ID
    next_offset: int = 0
    _segment: Path = field(init=False)
    _base_offset: int = field(init=False)
    _indexed_at: int = field(init=False)
    _greatest_timestamp: int = field(init=False)

    def __post_init__(self) -> None:
        self.path.mkdir()
        text = f"version: 0\ntopic_id: {uuid_text(self.topic_id)}"
        (self.path / "partition.metadata").write_text(text)
        self.write_epochs([(0, self.next_offset)])
        self._begin_segment()

    @property
    def path(self) -> Path:
        return self.directory / str(self.partition)

    @property
    def segment(self) -> Path:
        """The path of the active segment's `.log` file."""
        return self._segment

    def write_epochs(self, epochs: Sequence[tuple[int, int]]) -> None:
        lines = [f"{epoch} {start}" for epoch, start in epochs]
        text = "\n".join(["0", str(len(lines)), *lines]) + "\n"
        (self.path / "leader-epoch-checkpoint").write_text(text)

    def roll(self) -> None:
        """Begin a new segment; write the last entry of the old one's time index first."""
        if self._segment.stat().st_size:
            relative = self.next_offset - 1 - self._base_offset
            self._append(".timeindex", struct.pack(">qi", self._greatest_timestamp, relative))
        self._begin_segment()

    def _begin_segment(self) -> None:
        self._base_offset = self.next_offset
        self._segment = self.path / f"{self.next_offset:020d}.log"
        self._segment.touch()
        self._indexed_at = 0
        self._greatest_timestamp = -1

    def append(self, data: bytes) -> None:
        """Append whole batches that have their offsets already."""
        position = self._segment.stat().st_size
        with self._segment.open("ab") as log:
            log.write(data)
        for at, header in batches(data):
            self.next_offset = header.next_offset
            self._greatest_timestamp = max(self._greatest_timestamp, header.max_timestamp)
            if position + at - self._indexed_at > INDEX_INTERVAL_BYTES:
                self._indexed_at = position + at
                relative = header.last_offset - self._base_offset
                self._append(".index", struct.pack(">ii", relative, position + at))
                self._append(".timeindex", struct.pack(">qi", self._greatest_timestamp, relative))

    def append_records(
        self, records: Sequence[SimpleRecord], *, per_batch: int = 10, **batch: Any
    ) -> None:
        """Append records in batches of `per_batch`."""
        for start in range(0, len(records), per_batch):
            part = records[start : start + per_batch]
            self.append(build_batch(part, base_offset=self.next_offset, **batch))

    def append_aborted_entry(self, producer_id: int, first: int, last: int) -> None:
        self._append(".txnindex", struct.pack(">hqqqq", 0, producer_id, first, last, last + 1))

    def _append(self, suffix: str, data: bytes) -> None:
        with self._segment.with_suffix(suffix).open("ab") as file:
            file.write(data)


def header_count(paths: Iterable[Path]) -> int:
    """Return the number of batches in the segments."""
    return sum(1 for path in paths for _ in batches(path.read_bytes()))


def corrupt_byte(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


def size_of_first_batch(path: Path) -> int:
    return read_header(path.read_bytes()).size_bytes
