"""Offset checkpoint files in the root of a log directory: one offset per partition.

Files are replaced atomically. An empty file, as in a fresh directory, holds no entries. Three of
the four files only save work: a start without them reads more, with the same result. A malformed
one of these is replaced by an empty file. (Kafka takes the directory offline.) Without the file of
log starts, records that were deleted would return, so a malformed one does take the directory
offline.

The files are also evidence: a log that existed when they were written has an entry. An empty file
was never written, or was renewed, so it shows nothing about logs that are missing.
"""

import logging
from collections.abc import Mapping
from typing import Final

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.ports import FileSystem

RECOVERY_POINTS: Final = "recovery-point-offset-checkpoint"
LOG_STARTS: Final = "log-start-offset-checkpoint"
HIGH_WATERMARKS: Final = "replication-offset-checkpoint"
CLEANER_OFFSETS: Final = "cleaner-offset-checkpoint"
LOSSLESS: Final = {
    RECOVERY_POINTS: "all logs are recovered from their starts",
    HIGH_WATERMARKS: "high watermarks begin at the log starts",
    CLEANER_OFFSETS: "compaction begins at the log starts",
}
"""Checkpoints whose entries may be absent, and the consequence for a start."""
LISTING_ALL_LOGS: Final = (RECOVERY_POINTS, HIGH_WATERMARKS)
"""Checkpoints with an entry for each log of the directory."""
OFFSET_CHECKPOINTS: Final = (RECOVERY_POINTS, LOG_STARTS, HIGH_WATERMARKS, CLEANER_OFFSETS)

_VERSION: Final = "0"

logger = logging.getLogger(__name__)


def checkpoint_content(lines: list[str]) -> bytes:
    """Return the bytes of a checkpoint file: version, count of entries, entries."""
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()


def checkpoint_lines(path: str, content: bytes) -> list[str]:
    """Return the entries of a checkpoint file.

    Raises:
        CorruptLog: an unknown version, or another count of entries than the file states.
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


def read_or_renew(file_system: FileSystem, path: str) -> dict[TopicPartition, int]:
    """Return the offsets by partition; replace a malformed file if it is one of `LOSSLESS`.

    Raises:
        CorruptLog: the file is malformed, and not one of `LOSSLESS`.
    """
    try:
        return read_offset_checkpoint(file_system, path)
    except CorruptLog as error:
        effect = LOSSLESS.get(path.rpartition("/")[2])
        if effect is None:
            raise
        logger.warning("%s; it is written again, and %s", error, effect)
        file_system.write_atomically(path, b"")
        return {}


def write_offset_checkpoint(
    file_system: FileSystem, path: str, offsets: Mapping[TopicPartition, int]
) -> None:
    """Replace the file with these offsets."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    file_system.write_atomically(path, checkpoint_content(lines))
