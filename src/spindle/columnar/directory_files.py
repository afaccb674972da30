"""Read the small files of a log directory with the parsers of the log package.

A running broker replaces and removes them at any time, so a missing file is not an error. This
module also finds out whether a process holds the directory's lock.
"""

import fcntl
import os
import struct
from pathlib import Path
from typing import Final

from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid
from spindle.log.formats.epoch_checkpoint import decode_epoch_checkpoint
from spindle.log.formats.names import (
    LEADER_EPOCH_CHECKPOINT,
    LogKind,
    parse_directory_name,
)
from spindle.log.formats.partition_metadata import read_partition_metadata

LOCK_FILE: Final = ".lock"
FILE_SYSTEM: Final = OsFileSystem()
_FLOCK: Final = struct.Struct("hhqqi4x")


def current_replica(name: str) -> TopicPartition | None:
    """Return the partition that a directory name stands for, None if it is no current replica."""
    try:
        parsed = parse_directory_name(name)
    except ValueError:
        return None
    return parsed.topic_partition if parsed.kind is LogKind.CURRENT else None


def read_topic_id(replica: Path) -> Uuid | None:
    """Return the topic id of a replica's directory, None if it is unknown or there is no directory.

    Raises:
        CorruptLog: `partition.metadata` is malformed.
    """
    try:
        return read_partition_metadata(FILE_SYSTEM, str(replica))
    except FileNotFoundError:
        return None


def read_leader_epochs(replica: Path) -> tuple[tuple[int, int], ...]:
    """Return (epoch, start offset) pairs of a partition, ascending; none if there is no file.

    Raises:
        CorruptLog: the checkpoint is malformed.
    """
    path = replica / LEADER_EPOCH_CHECKPOINT
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return ()
    return tuple(decode_epoch_checkpoint(str(path), content))


def is_in_use(directory: Path) -> bool:
    """Return True while another process holds the directory's lock, as a running broker does.

    The lock is tested, not taken: holding it even for a moment could make a broker's start fail.
    """
    try:
        descriptor = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, query)
    finally:
        os.close(descriptor)
    kind: int = _FLOCK.unpack(answer)[0]
    return kind != fcntl.F_UNLCK
