"""Offset checkpoint files in the root of a log directory: one offset per partition.

A half-written or malformed file takes the whole directory offline, so files appear only complete.
Only the checkpoint of compaction is written anew instead. An empty file, as a fresh directory has
it, holds no entries.
"""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.ports import FileSystem

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_VERSION: Final = "0"


def checkpoint_content(lines: list[str]) -> bytes:
    """Return the bytes of a checkpoint file: version, count of entries, entries."""
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def checkpoint_lines(path: str, content: bytes) -> list[str]:
    """Return the entries of a checkpoint file.

    Raises:
        CorruptLog: another version, or another count than the file says.
    """
    try:
        lines = content.decode().split("\n")
        if lines == [""]:
            return []
        if lines[0].strip() != _VERSION:
            raise CorruptLog(path, 0, f"checkpoint version {lines[0]!r}, expected {_VERSION}")
        if len(lines) < 2 or not lines[1]:
            return []
        count = int(lines[1])
    except ValueError as error:
        raise CorruptLog(path, 0, f"not a checkpoint file: {content[:80]!r}") from error
    entries = [line for line in lines[2:] if line]
    if len(entries) != count:
        raise CorruptLog(path, 0, f"{len(entries)} entries, the file says {count}")
    return entries


def read_offset_checkpoint(file_system: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Return the offsets by partition; none if the file is missing or empty.

    Raises:
        CorruptLog: the file is malformed.
    """
    if not file_system.exists(path):
        return {}
    offsets: dict[TopicPartition, int] = {}
    for line in checkpoint_lines(path, file_system.read_bytes(path)):
        fields = line.split()
        try:
            topic, partition, offset = fields
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        except ValueError as error:
            raise CorruptLog(path, 0, f"malformed line {line!r}") from error
    return offsets


def write_offset_checkpoint(
    file_system: FileSystem, path: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Replace the file with these offsets."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    file_system.write_atomically(path, checkpoint_content(lines))
