"""Names of partition directories and of the files in them (KIP-113 for `-future` and `-delete`)."""

from enum import Enum
from re import ASCII
from re import compile as pattern
from typing import Final, NamedTuple

from spindle.common.ids import METADATA_TOPIC, TopicPartition
from spindle.common.uuids import Uuid

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
STRAY_SUFFIX: Final = ".stray"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
LOST_AND_FOUND: Final = "lost+found"
"""A directory at the root of every ext4 file system, where operators mount log directories."""
PASSED_OVER: Final = (REMOTE_INDEX_CACHE, LOST_AND_FOUND)
"""Subdirectories of a log directory that belong to no partition and are ignored."""

MAX_NAME_BYTES: Final = 255
_OFFSET_DIGITS: Final = 20
_DECORATED = pattern(r"(\S+)-(\S+)\.(\S+)-(delete|future|stray)")
_INTEGER = pattern(r"[+-]?\d+", ASCII)


class LogKind(Enum):
    """The kind of a log, by the name of its partition directory."""

    CURRENT = ""
    FUTURE = "future"
    DELETED = "delete"
    STRAY = "stray"


class PartitionDirectoryName(NamedTuple):
    """A parsed name. The topic of a deleted or stray one may have been cut to fit.

    `unique` is the part between dot and suffix, empty for a current log.
    """

    topic_partition: TopicPartition
    kind: LogKind
    unique: str


def current_directory(topic_partition: TopicPartition) -> str:
    """Return the directory name of a log in use: topic and partition."""
    return f"{topic_partition.topic}-{topic_partition.partition}"


def future_directory(topic_partition: TopicPartition, unique: Uuid) -> str:
    """Return the directory name of a future log, which will replace the current log.

    Raises:
        ValueError: the name has more than 255 characters.
    """
    name = f"{current_directory(topic_partition)}.{unique.hex()}-future"
    if len(name) > MAX_NAME_BYTES:
        raise ValueError(
            f"the directory name {name} has {len(name)} characters, the limit is {MAX_NAME_BYTES}"
        )
    return name


def deleted_directory(topic_partition: TopicPartition, unique: Uuid) -> str:
    """Return the directory name of a log that is scheduled for deletion."""
    return _cut_to_fit(topic_partition, f".{unique.hex()}-delete")


def replaced_directory(topic_partition: TopicPartition, future_name: str) -> str:
    """Return the directory name of a deleted log that this future log has replaced.

    Both have the same unique part.
    """
    unique = parse_directory_name(future_name).unique
    return _cut_to_fit(topic_partition, f".{unique}-delete")


def stray_directory(topic_partition: TopicPartition, unique: Uuid) -> str:
    """Return the directory name of a stray log, which belongs to no replica of this broker."""
    return _cut_to_fit(topic_partition, f".{unique.hex()}-stray")


def _cut_to_fit(topic_partition: TopicPartition, suffix: str) -> str:
    end = f"-{topic_partition.partition}{suffix}"
    return topic_partition.topic[: MAX_NAME_BYTES - len(end)] + end


def parse_directory_name(name: str) -> PartitionDirectoryName:
    """Return the partition and the purpose of a directory.

    Raises:
        ValueError: this is not a name of a partition directory.
    """
    kind = LogKind.CURRENT
    plain = name
    unique = ""
    suffix = name.rpartition("-")[2]
    if suffix in ("delete", "future", "stray"):
        if _DECORATED.fullmatch(name) is None:
            raise _no_partition_directory(name)
        kind = LogKind(suffix)
        plain, _, end = name.rpartition(".")
        unique = end.rpartition("-")[0]
    topic, dash, number = plain.rpartition("-")
    if not topic or not dash or _INTEGER.fullmatch(number) is None:
        raise _no_partition_directory(name)
    return PartitionDirectoryName(TopicPartition(topic, int(number)), kind, unique)


def _no_partition_directory(name: str) -> ValueError:
    return ValueError(
        f"{name} is not a directory of a topic partition; the log directory may hold only names of "
        "the form topic-partition or topic-partition.uniqueId-delete, -future or -stray"
    )


def is_metadata_directory(name: str) -> bool:
    """Return True for a directory of the metadata log."""
    return name.startswith(f"{METADATA_TOPIC}-")


def offset_name(offset: int, suffix: str = "") -> str:
    """Return the file name of an offset: twenty digits and a suffix."""
    return f"{offset:0{_OFFSET_DIGITS}d}{suffix}"


def parse_offset_name(name: str, suffix: str) -> int | None:
    """Return the offset in a file name with that suffix; None for any other name."""
    digits = name[: -len(suffix)]
    if name.endswith(suffix) and digits.isascii() and digits.isdigit():
        return int(digits)
    return None
