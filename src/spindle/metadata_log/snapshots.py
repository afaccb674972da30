"""Snapshot files of the metadata log: names, content, writing and reading (KIP-630, KIP-853).

A snapshot `(end offset, epoch)` replaces everything before its end offset. Its file is a series
of batches with offsets of their own: a control batch with the header (and, from kraft.version 1 on,
the version and the voters), the data, a control batch with the footer. It is written under a name
in `.part` and renamed when it is complete and synced: a file under its final name is always whole.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import Bytes, File, FileSystem
from spindle.metadata.features import check_feature_level
from spindle.metadata_log.committed import CommittedBatch, decode_batch, metadata_values
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.protocol.messages.raft_records import (
    KRaftVersionRecord,
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    VotersRecord,
)
from spindle.protocol.records.batch import BatchHeader, batches, check_crc
from spindle.protocol.records.builder import build_batch_of_values
from spindle.protocol.records.control import build_control_batch
from spindle.raft import kraft_records
from spindle.raft.kraft_records import (
    ControlRecord,
    kraft_version_of,
    read_control_records,
    voter_set_of,
)
from spindle.raft.voters import FIRST_KRAFT_VERSION, RECONFIGURABLE_KRAFT_VERSION, VoterSet

SUFFIX: Final = ".checkpoint"
PART_SUFFIX: Final = ".checkpoint.part"
DELETED_SUFFIX: Final = ".checkpoint.deleted"
MAX_RECORDS_PER_BATCH: Final = 1024
_OFFSET_DIGITS: Final = 20
_EPOCH_DIGITS: Final = 10


def snapshot_file_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of a complete snapshot: end offset and epoch."""
    return f"{_stem(snapshot_id)}{SUFFIX}"


def part_file_name(snapshot_id: OffsetAndEpoch, token: str) -> str:
    """Return the name while the file grows; `token` distinguishes attempts."""
    return f"{_stem(snapshot_id)}-{token}{PART_SUFFIX}"


def deleted_file_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the name of a snapshot that waits for its deletion."""
    return f"{_stem(snapshot_id)}{DELETED_SUFFIX}"


def parse_snapshot_file_name(name: str) -> OffsetAndEpoch | None:
    """Return the id of a complete snapshot; None for any other file."""
    stem, suffix = name[: -len(SUFFIX)], name[-len(SUFFIX) :]
    if suffix != SUFFIX or len(stem) != _OFFSET_DIGITS + 1 + _EPOCH_DIGITS:
        return None
    offset, dash, epoch = stem[:_OFFSET_DIGITS], stem[_OFFSET_DIGITS], stem[_OFFSET_DIGITS + 1 :]
    if dash != "-" or not (offset.isdecimal() and epoch.isdecimal()):
        return None
    return OffsetAndEpoch(int(offset), int(epoch))


def _stem(snapshot_id: OffsetAndEpoch) -> str:
    return f"{snapshot_id.offset:0{_OFFSET_DIGITS}d}-{snapshot_id.epoch:0{_EPOCH_DIGITS}d}"


class SnapshotInfo(NamedTuple):
    """The header of a snapshot; `voters` is None under kraft.version 0."""

    last_contained_timestamp_ms: int
    kraft_version: int
    voters: VoterSet | None


def encode_snapshot(
    values: Iterable[bytes],
    info: SnapshotInfo,
    *,
    epoch: int,
    now_ms: int,
) -> Iterator[bytes]:
    """Yield the batches of a snapshot; `values` are framed metadata records."""
    records: list[ControlRecord] = [kraft_records.snapshot_header(info.last_contained_timestamp_ms)]
    if info.kraft_version >= RECONFIGURABLE_KRAFT_VERSION:
        records.append(kraft_records.kraft_version(info.kraft_version))
        records.append(kraft_records.voters(info.voters or VoterSet()))
    offset = len(records)
    yield build_control_batch(records, now_ms, leader_epoch=epoch)
    for group in _groups(values):
        yield build_batch_of_values(group, now_ms, offset, epoch)
        offset += len(group)
    yield build_control_batch(
        [kraft_records.snapshot_footer()], now_ms, base_offset=offset, leader_epoch=epoch
    )


def _groups(values: Iterable[bytes]) -> Iterator[list[bytes]]:
    group: list[bytes] = []
    for value in values:
        group.append(value)
        if len(group) == MAX_RECORDS_PER_BATCH:
            yield group
            group = []
    if group:
        yield group


class SnapshotPart:
    """A snapshot file that is not complete yet."""

    def __init__(
        self, file_system: FileSystem, directory: str, snapshot_id: OffsetAndEpoch, token: str
    ) -> None:
        self.snapshot_id = snapshot_id
        self._file_system = file_system
        self._directory = directory
        self._path = f"{directory}/{part_file_name(snapshot_id, token)}"
        self._file: File = file_system.open(self._path, create=True)

    @property
    def size_bytes(self) -> int:
        return self._file.size()

    def check(self) -> None:
        """Read and check the whole file, and the feature levels, which its first batch has.

        Raises:
            CorruptLog: it is not a whole snapshot.
            UnsupportedMetadata: this release may misread it.
        """
        data = self._file.pread(self.size_bytes, 0)
        has_levels = False
        for position, header in check_snapshot(data, self._path):
            if not header.is_control and not has_levels:
                has_levels = True
                _check_levels(data, position, header, self._path)

    def append(self, parts: Sequence[Bytes]) -> None:
        self._file.append(parts)

    def sync(self) -> None:
        self._file.sync()

    def complete(self) -> None:
        """Sync the file and give it its name, read-only. A snapshot of that name stays as it is."""
        self._file.sync()
        self._file.close()
        self._file_system.make_read_only(self._path)
        target = f"{self._directory}/{snapshot_file_name(self.snapshot_id)}"
        if self._file_system.exists(target):
            self._file_system.remove(self._path)
        else:
            self._file_system.rename(self._path, target)
        self._file_system.sync_directory(self._directory)

    def abort(self) -> None:
        self._file.close()
        self._file_system.remove(self._path)


def _check_levels(data: Bytes, position: int, header: BatchHeader, path: str) -> None:
    try:
        batch = decode_batch(data, position, header)
    except CorruptRecords as error:
        raise CorruptLog(path, position, str(error)) from None
    for record in batch.records:
        if isinstance(record, FeatureLevelRecord):
            check_feature_level(record.name, record.feature_level)


def write_part(
    file_system: FileSystem,
    directory: str,
    snapshot_id: OffsetAndEpoch,
    batches_of_snapshot: Iterable[bytes],
    token: str,
) -> SnapshotPart:
    """Write the content of a snapshot; return the file, which has all of it but not its name."""
    part = SnapshotPart(file_system, directory, snapshot_id, token)
    try:
        for batch in batches_of_snapshot:
            part.append([batch])
        part.sync()
    except BaseException:
        part.abort()
        raise
    return part


def write_snapshot(
    file_system: FileSystem,
    directory: str,
    snapshot_id: OffsetAndEpoch,
    batches_of_snapshot: Iterable[bytes],
    token: str,
) -> None:
    """Write a whole snapshot; do nothing if it exists already."""
    if not file_system.exists(f"{directory}/{snapshot_file_name(snapshot_id)}"):
        write_part(file_system, directory, snapshot_id, batches_of_snapshot, token).complete()


def read_snapshot_info(data: Bytes, path: str) -> SnapshotInfo:
    """Return the head of a snapshot; `data` is its beginning, at least the whole first batch.

    Raises:
        CorruptLog: the file does not begin with a snapshot header.
        UnsupportedMetadata: its kraft.version is not known.
    """
    kraft_version = FIRST_KRAFT_VERSION
    timestamp_ms: int | None = None
    voter_set: VoterSet | None = None
    try:
        for position, header in batches(data):
            if not header.is_control:
                break
            check_crc(data, position, header)
            for _, message in read_control_records(data, position, header):
                if isinstance(message, SnapshotHeaderRecord):
                    timestamp_ms = message.last_contained_log_timestamp
                elif isinstance(message, KRaftVersionRecord):
                    kraft_version = kraft_version_of(message)
                elif isinstance(message, VotersRecord):
                    voter_set = voter_set_of(message)
            break
    except CorruptRecords as error:
        raise CorruptLog(path, 0, str(error)) from None
    if timestamp_ms is None:
        raise CorruptLog(path, 0, "the first batch has no snapshot header")
    return SnapshotInfo(timestamp_ms, kraft_version, voter_set)


class SnapshotBatch(NamedTuple):
    """A batch of a snapshot, whose records are not decoded yet.

    Attributes:
        position: of the batch in the file.
        values: framed metadata records; none in the batches of header and footer.
    """

    position: int
    append_time_ms: int
    values: list[bytes]


def read_snapshot_values(data: Bytes, path: str) -> Iterator[SnapshotBatch]:
    """Yield all batches of a snapshot, checked except for their values.

    Raises:
        CorruptLog: header or footer is missing, or a batch does not hold together.
    """
    for position, header in check_snapshot(data, path):
        try:
            values = [] if header.is_control else metadata_values(data, position, header)
        except CorruptRecords as error:
            raise CorruptLog(path, position, str(error)) from None
        yield SnapshotBatch(position, header.max_timestamp, values)


def read_snapshot(data: Bytes, path: str) -> Iterator[CommittedBatch]:
    """Yield all batches of a snapshot, checked; those of header and footer have no records.

    Raises:
        CorruptLog: header or footer is missing, or a batch does not hold together.
        UnsupportedMetadata: a newer release has written it.
    """
    for position, header in check_snapshot(data, path):
        try:
            yield decode_batch(data, position, header)
        except CorruptRecords as error:
            raise CorruptLog(path, position, str(error)) from None


def check_snapshot(data: Bytes, path: str) -> Iterator[tuple[int, BatchHeader]]:
    """Yield (position, header) of each batch of a snapshot, checked except for its records.

    Raises:
        CorruptLog: header or footer is missing, or a batch does not hold together.
    """
    position = end = 0
    has_footer = False
    read_snapshot_info(data, path)
    try:
        for position, header in batches(data):
            check_crc(data, position, header)
            end = position + header.size_bytes
            if header.is_control:
                has_footer = any(
                    isinstance(message, SnapshotFooterRecord)
                    for _, message in read_control_records(data, position, header)
                )
            yield position, header
    except CorruptRecords as error:
        raise CorruptLog(path, position, str(error)) from None
    if not has_footer or end != len(data):
        raise CorruptLog(path, end, "the snapshot does not end with its footer")
