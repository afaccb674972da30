"""The metadata image from the files of a metadata log: snapshots and segments (KIP-630).

The files are only read, and a node may run on them. Records that it has not committed yet are
shown as well.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from spindle.common.errors import CorruptLog, CorruptRecords, ProtocolViolation, UnsupportedMetadata
from spindle.common.ids import METADATA_PARTITION, OffsetAndEpoch
from spindle.metadata.image import MetadataImage
from spindle.metadata_log.committed import CommittedBatch, decode_batch
from spindle.metadata_log.snapshots import (
    parse_snapshot_file_name,
    read_snapshot_values,
    snapshot_file_name,
)
from spindle.protocol.records.batch import batches, check_crc
from spindle.publication.loader import MetadataLoader

_SEGMENT: Final = ".log"
_SNAPSHOT: Final = ".checkpoint"


def read_image(path: Path) -> MetadataImage:
    """Return the image at the end of a file or folder.

    Args:
        path: a snapshot; a segment, which is read after the earlier files of its folder; the folder
            of the metadata log, or its log directory.

    Raises:
        CorruptLog: a file does not hold together, or its records do not fit each other.
        UnsupportedMetadata: a newer release has written a record or level.
        OSError: a file cannot be read.
        ValueError: the path is none of these.
    """
    if path.is_dir():
        inner = path / str(METADATA_PARTITION)
        return _read_folder(inner if inner.is_dir() else path, None)
    if path.suffix == _SNAPSHOT:
        return _read_snapshot(path)
    if path.suffix == _SEGMENT and path.stem.isdecimal():
        return _read_folder(path.parent, int(path.stem))
    if not path.exists():
        raise FileNotFoundError(2, os.strerror(2), str(path))
    raise ValueError(f"{path} is not a snapshot, segment or folder of a metadata log")


def _read_snapshot(path: Path) -> MetadataImage:
    """Read a snapshot of any name; the name of a bootstrap snapshot holds no offset."""
    snapshot_id = parse_snapshot_file_name(path.name) or OffsetAndEpoch(0, 0)
    loader = MetadataLoader()
    _load_snapshot(loader, snapshot_id, path)
    return loader.image


def _read_folder(folder: Path, last_segment: int | None) -> MetadataImage:
    """Read everything up to the end of a segment, or to the end of the log."""
    names = os.listdir(folder)
    snapshots = [name for name in map(parse_snapshot_file_name, names) if name is not None]
    segments = sorted(
        int(name.removesuffix(_SEGMENT))
        for name in names
        if name.endswith(_SEGMENT) and name.removesuffix(_SEGMENT).isdecimal()
    )
    if last_segment is not None:
        later = [base for base in segments if base > last_segment]
        segments = [base for base in segments if base <= last_segment]
        snapshots = [snapshot for snapshot in snapshots if not later or snapshot.offset <= later[0]]
    if not segments and not snapshots:
        raise ValueError(f"{folder} holds no metadata log")
    loader = MetadataLoader()
    start = 0
    if snapshots:
        newest = max(snapshots)
        _load_snapshot(loader, newest, folder / snapshot_file_name(newest))
        start = newest.offset
    for base in segments:
        path = folder / f"{base:020d}{_SEGMENT}"
        committed_batches = [batch for batch in _batches(path) if batch.last_offset >= start]
        if committed_batches and committed_batches[0].base_offset > start:
            raise CorruptLog(str(path), 0, f"what is before it ends at offset {start}")
        start = committed_batches[-1].last_offset + 1 if committed_batches else start
        try:
            loader.load_batches(committed_batches)
        except UnsupportedMetadata:
            raise
        except ProtocolViolation as error:
            raise CorruptLog(str(path), 0, str(error)) from None
    return loader.image


def _load_snapshot(loader: MetadataLoader, found: OffsetAndEpoch, path: Path) -> None:
    try:
        loader.load_snapshot(found, read_snapshot_values(path.read_bytes(), str(path)))
    except UnsupportedMetadata:
        raise
    except (CorruptRecords, ProtocolViolation) as error:
        raise CorruptLog(str(path), 0, str(error)) from None


def _batches(path: Path) -> Iterator[CommittedBatch]:
    """Return the complete batches of a segment; the batch that a node is writing is left out."""
    data = path.read_bytes()
    position = 0
    try:
        for position, header in batches(data):
            check_crc(data, position, header)
            yield decode_batch(data, position, header)
    except CorruptRecords as error:
        raise CorruptLog(str(path), position, str(error)) from None
