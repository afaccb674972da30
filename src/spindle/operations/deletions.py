"""Deleted replicas whose files still use space: a plan's goal counts the space as free, but a copy
must wait for it.

A broker removes the files of a deleted replica after `log.segment.delete.delay.ms`. Brokers of
Spindle report the bytes that wait for removal. Brokers of Kafka do not: an operation knows the
replicas that it moved itself, and can only wait for other deletions.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from spindle.client.admin import configs
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import log_dirs_of
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.disks import disks_of_spindle
from spindle.client.errors import UnsupportedByPeer
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ApiError
from spindle.config.resources import ConfigResourceType
from spindle.operations.directories import DirectoryKey
from spindle.operations.events import DeletedReplicas
from spindle.planner.model import DirectoryModel
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse

DEFAULT_DELAY_MS: Final = 60_000
"""Kafka's default of the key below."""
_DELAY_KEY: Final = "log.segment.delete.delay.ms"
_MS: Final = 1000
_MARGIN_MS: Final = 2_000
"""A broker learns the end of a move after the controller, and removes files one by one."""


@dataclass(frozen=True, slots=True)
class BrokerSpace:
    """The log directories of a broker, and the space of deleted replicas in them.

    Attributes:
        deleted_bytes: by path; None if the broker does not report it.
        delay_ms: how long a deleted replica keeps its files; the default if the broker does not
            show its configuration to this user.
    """

    views: Sequence[LogDirView]
    deleted_bytes: Mapping[str, int] | None = None
    delay_ms: int = DEFAULT_DELAY_MS


def space_of(client: WireClient, broker: BrokerAddress) -> BrokerSpace:
    """Return the space of a broker; for `ask_every_broker`.

    Raises: ApiError, ClientError: the broker refused to describe its directories, or did not
        respond.
    """
    # Deletions first: files that are removed in between must not count as deleted and free.
    deleted = deleted_bytes_of(client, broker)
    delay_ms = deletion_delay_ms(client, broker.node_id)
    return BrokerSpace(log_dirs_of(client, broker), deleted, delay_ms)


def deleted_bytes_of(client: WireClient, broker: BrokerAddress) -> dict[str, int] | None:
    """Return the deleted bytes of each directory that is online; None if they are unknown.

    Raises:
        ClientError: the broker did not answer.
    """
    try:
        answer = client.ask_spindle(broker, DescribeDisksRequest(), DescribeDisksResponse)
        disks = disks_of_spindle(answer).disks
    except (UnsupportedByPeer, ApiError):
        return None
    known = {disk.path: disk.deleted_bytes for disk in disks if disk.failure is None}
    sizes = {path: size for path, size in known.items() if size is not None}
    return sizes if len(sizes) == len(known) else None


def deletion_delay_ms(client: WireClient, broker_id: int) -> int:
    """Return how long a broker keeps the files of a deleted replica.

    Raises:
        ClientError: the broker did not answer.
    """
    try:
        reported_configs = configs.describe(
            client, ConfigResourceType.BROKER, str(broker_id), (_DELAY_KEY,)
        )
    except ApiError:
        return DEFAULT_DELAY_MS
    values = [config.value for config in reported_configs if config.name == _DELAY_KEY]
    return int(values[0]) if values and values[0] else DEFAULT_DELAY_MS


@dataclass(slots=True)
class OwnDeletions:
    """The replicas that the moves of an execution have deleted.

    Attributes:
        entries: broker, path, bytes, and when the files are removed, in ms since 1970. A later run
            of the same execution reads them from its file.
    """

    entries: list[tuple[int, str, int, int]] = field(default_factory=list)

    def add(self, place: DirectoryKey, size_bytes: int, delay_ms: int) -> None:
        """Add a replica that has just left a directory."""
        removed_ms = _now_ms() + delay_ms + _MARGIN_MS
        self.entries = [*self._pending(), (*place, size_bytes, removed_ms)]

    def bytes_of(self, place: DirectoryKey) -> int:
        """Return the bytes that deleted replicas still use in a directory."""
        return sum(deletion[2] for deletion in self._pending() if deletion[:2] == place)

    def _pending(self) -> list[tuple[int, str, int, int]]:
        now_ms = _now_ms()
        return [entry for entry in self.entries if entry[3] > now_ms]


def deleted_space(
    directories: Iterable[DirectoryModel],
    own: OwnDeletions,
    now_s: Callable[[], float] = time.time,
) -> DeletedReplicas | None:
    """Return an event about deleted bytes that `spindle disks list` shows as used; None without.

    Args:
        own: the replicas that this execution moved away. A broker that has not learned the end of a
            move does not report its replica as deleted yet.
        now_s: seconds since 1970.
    """
    sizes = {directory: _deleted_bytes(directory, own) for directory in directories}
    deleting = [directory for directory, size in sizes.items() if size]
    if not deleting:
        return None
    delay_ms = max(directory.deletion_delay_ms for directory in deleting)
    return DeletedReplicas(
        directories=[str(directory) for directory in deleting],
        deleted_bytes=sum(sizes.values()),
        until_ms=int(now_s() * _MS) + delay_ms,
        delay_ms=delay_ms,
    )


def _deleted_bytes(directory: DirectoryModel, own: OwnDeletions) -> int:
    if not directory.is_online:
        return 0
    return max(directory.deleted_bytes, own.bytes_of((directory.broker_id, directory.path)))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
