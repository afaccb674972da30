"""The small text files of a log directory, parsed as their writers and readers in Kafka do it.

`meta.properties`, `partition.metadata` (KIP-516), the offset checkpoints of a directory and the
leader epoch checkpoint of a partition (KIP-101); also whether a process holds the directory's lock.
"""

import fcntl
import os
import re
import struct
from pathlib import Path
from typing import NamedTuple

from spindle.common.errors import CorruptLog
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, parse_uuid

REPLICATION_CHECKPOINT = "replication-offset-checkpoint"
LOG_START_CHECKPOINT = "log-start-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT = "recovery-point-offset-checkpoint"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
LOCK_FILE = ".lock"
LEADER_EPOCH_CHECKPOINT = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"
META_PROPERTIES = "meta.properties"

_SUFFIX = re.compile(r"\.[^.]+-(future|delete|stray)$")
_FLOCK = struct.Struct("hhqqi4x")


class DirectoryIdentity(NamedTuple):
    """What `meta.properties` says; None for what is not there (version 0 files)."""

    cluster_id: str | None
    node_id: int | None
    directory_id: str | None


def read_identity(directory: Path) -> DirectoryIdentity:
    """The identity of a log directory.

    Raises:
        FileNotFoundError: the directory has no `meta.properties`: it is no formatted log directory.
        CorruptLog: the node id is no number.
    """
    path = directory / META_PROPERTIES
    properties: dict[str, str] = {}
    for line in path.read_text("utf-8").splitlines():
        text = line.strip()
        if text and text[0] not in "#!":
            name, _, value = re.sub(r"\s*[=:]\s*", "=", text, count=1).partition("=")
            properties[name] = value.replace("\\", "")
    node_id = properties.get("node.id", properties.get("broker.id"))
    if node_id is not None and not re.fullmatch(r"-?\d+", node_id):
        raise CorruptLog(str(path), 0, f"node id {node_id!r} is no number")
    return DirectoryIdentity(
        properties.get("cluster.id"),
        None if node_id is None else int(node_id),
        properties.get("directory.id"),
    )


def parse_replica_name(name: str) -> TopicPartition | None:
    """The partition of a replica's directory name; None for future, deleted, stray and others."""
    if _SUFFIX.search(name):
        return None
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not partition.isdecimal():
        return None
    return TopicPartition(topic, int(partition))


def read_topic_id(replica: Path) -> Uuid | None:
    """The topic id in `partition.metadata`; None where the file is missing (logs of old brokers).

    Raises:
        CorruptLog: the file is not in its format.
    """
    path = replica / PARTITION_METADATA
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return None
    fields = dict(_split_pair(line) for line in text.splitlines())
    try:
        return parse_uuid(fields["topic_id"])
    except (KeyError, ValueError) as error:
        raise CorruptLog(str(path), 0, f"no topic id: {text!r}") from error


def read_offset_checkpoint(directory: Path, name: str) -> dict[TopicPartition, int]:
    """An offset checkpoint of a log directory; empty where the file is missing or empty.

    Raises:
        CorruptLog: wrong version, count or line.
    """
    path = directory / name
    entries: dict[TopicPartition, int] = {}
    for fields in _read_checkpoint(path, 3):
        entries[TopicPartition(fields[0], int(fields[1]))] = int(fields[2])
    return entries


def read_leader_epochs(replica: Path) -> tuple[tuple[int, int], ...]:
    """(epoch, start offset) pairs of a partition in ascending order.

    Raises:
        CorruptLog: wrong version, count or line.
    """
    rows = _read_checkpoint(replica / LEADER_EPOCH_CHECKPOINT, 2)
    return tuple((int(epoch), int(start)) for epoch, start in rows)


def is_in_use(directory: Path) -> bool:
    """True while a process holds the directory's lock, as a running broker does.

    The lock is asked for, not taken: taking it even for a moment could fail a broker's start.
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


def _split_pair(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name.strip(), value.strip()


def _read_checkpoint(path: Path, width: int) -> list[list[str]]:
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return []
    if len(lines) < 2:
        return []
    if lines[0] != "0":
        raise CorruptLog(str(path), 0, f"checkpoint version {lines[0]!r}, want 0")
    rows = [line.split() for line in lines[2:] if line]
    if lines[1] != str(len(rows)):
        raise CorruptLog(str(path), 0, f"{len(rows)} entries, the count says {lines[1]!r}")
    for row in rows:
        if len(row) != width or not all(_is_number(field) for field in row[width - 2 :]):
            raise CorruptLog(str(path), 0, f"malformed entry {' '.join(row)!r}")
    return rows


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdecimal()
