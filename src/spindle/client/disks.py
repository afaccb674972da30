"""The log directories of a broker: from DescribeDisks of Spindle, or from DescribeLogDirs."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from spindle.client.errors import raise_for
from spindle.client.log_dirs import LogDirView
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, is_reserved_directory_id
from spindle.disks.device_health import DeviceHealth
from spindle.protocol.messages.describe_disks import DescribeDisksResponse
from spindle.protocol.sentinels import NO_BROKER_EPOCH

_NO_LIMIT: Final = 2**63 - 1


@dataclass(frozen=True, slots=True)
class CordonView:
    """A cordon. `until_ms` is in ms since the epoch, None without an end."""

    cause: str
    reason: str | None = None
    owner: str | None = None
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OperationsView:
    """The operations of one kind since the start of the broker.

    Attributes:
        buckets: operations by time; `disks.io_counts` defines the buckets.
    """

    size_bytes: int
    total_ns: int
    errors: int
    buckets: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class DiskWork:
    """The activity of a directory, which only brokers of Spindle report.

    Attributes:
        operations: reads, writes and syncs.
        busy_ns: the time that the I/O thread has spent in jobs since the start of the broker.
        hang_ms: the time for which the disk has not responded.
    """

    queue_length: int
    busy_ns: int
    hang_ms: int
    operations: tuple[OperationsView, OperationsView, OperationsView]


@dataclass(frozen=True, slots=True)
class DiskView:
    """A log directory. Sizes are in bytes, -1 if they are unknown.

    Attributes:
        directory_id: None if the broker does not report it.
        failure: the reason why the directory is offline; None while it is online.
        failed_at_ms: when it failed, in ms since the epoch.
        size_bytes: of all replicas, future ones included.
        deleted_bytes: of deleted replicas and segments whose files are not removed yet; None if the
            broker does not report them.
        stray_count, stray_bytes: logs (`-stray`) that the metadata does not place here, and that
            nothing removes.
        health: of the block device, as the node itself sees it; None if it is unknown.
    """

    path: str
    directory_id: Uuid | None
    failure: str | None
    failed_at_ms: int | None
    total_bytes: int
    usable_bytes: int
    size_bytes: int
    partition_count: int
    future_partition_count: int
    leader_count: int
    cordons: tuple[CordonView, ...]
    work: DiskWork | None
    deleted_bytes: int | None = None
    stray_count: int = 0
    stray_bytes: int = 0
    health: DeviceHealth | None = None

    @property
    def used_bytes(self) -> int:
        """The used bytes of the file system, -1 if they are unknown."""
        if self.total_bytes < 0 or self.usable_bytes < 0:
            return -1
        return self.total_bytes - self.usable_bytes


@dataclass(frozen=True, slots=True)
class MoveView:
    """A replica that moves between two directories of its broker.

    Attributes:
        state: a `MoveState` of `replicas.moves.move`; None if the broker does not report it.
        size_bytes: the size of the current replica.
        lag: the records that the copy lacks.
    """

    partition: TopicPartition
    source: str
    target: str
    state: str | None
    size_bytes: int
    remaining_bytes: int
    lag: int


@dataclass(frozen=True, slots=True)
class RebuildView:
    """A replica that is copied again from its leader, or was.

    Attributes:
        path: its directory.
        state: of `replicas.rebuilds`.
        former_bytes: the size of the log before.
        lag: the committed records that it lacks; -1 if unknown.
        failure: the reason of a failed rebuild; None otherwise.
    """

    partition: TopicPartition
    path: str
    state: str
    former_bytes: int
    copied_bytes: int
    lag: int
    failure: str | None

    @property
    def is_under_way(self) -> bool:
        return self.state not in ("done", "failed")


@dataclass(frozen=True, slots=True)
class DamageView:
    """A replica whose records cannot be read.

    Attributes:
        broker_id: the broker with the replica: the one that answers, or a leader that sent it bad
            records.
        finding: file, byte and error.
    """

    partition: TopicPartition
    broker_id: int
    finding: str


@dataclass(frozen=True, slots=True)
class BrokerDisks:
    """The directories of one broker.

    Attributes:
        steady_ms: a clock for the time between two answers of the broker.
        rebuilds: the running ones, and the last that ended.
        damages: the replicas whose records cannot be read, as far as the broker has read them.
        broker_epoch: the counters start again at 0 when it changes.
        move_limit_bytes_per_second: the throttle of moves; None if there is none, or it is
            unknown.
    """

    steady_ms: int
    broker_epoch: int
    move_limit_bytes_per_second: int | None
    disks: tuple[DiskView, ...]
    moves: tuple[MoveView, ...]
    rebuilds: tuple[RebuildView, ...] = ()
    damages: tuple[DamageView, ...] = ()


def disks_of_spindle(answer: DescribeDisksResponse) -> BrokerDisks:
    """Return the directories in an answer of a Spindle broker, by path.

    Raises:
        ApiError: the broker refused.
    """
    raise_for(answer.error_code, "DescribeDisks")
    limit = answer.move_limit_bytes_per_second
    return BrokerDisks(
        answer.steady_ms,
        answer.broker_epoch,
        None if limit == _NO_LIMIT else limit,
        tuple(_disk(disk) for disk in sorted(answer.disks, key=lambda disk: disk.path)),
        tuple(
            MoveView(
                TopicPartition(move.topic, move.partition_index),
                move.source,
                move.target,
                move.state,
                move.size_bytes,
                move.remaining_bytes,
                move.lag,
            )
            for move in answer.moves
        ),
        tuple(
            RebuildView(
                TopicPartition(rebuild.topic, rebuild.partition_index),
                rebuild.path,
                rebuild.state,
                rebuild.former_bytes,
                rebuild.copied_bytes,
                rebuild.lag,
                rebuild.failure,
            )
            for rebuild in answer.rebuilds
        ),
        tuple(
            DamageView(
                TopicPartition(damage.topic, damage.partition_index),
                damage.broker_id,
                damage.finding,
            )
            for damage in answer.damages
        ),
    )


def _disk(disk: DescribeDisksResponse.Disk) -> DiskView:
    by_kind = {
        operation.kind: OperationsView(
            operation.size_bytes,
            operation.total_ns,
            operation.errors,
            {bucket.index: bucket.count for bucket in operation.buckets},
        )
        for operation in disk.operations
    }
    none = OperationsView(0, 0, 0, {})
    reads, writes, syncs = (by_kind.get(kind, none) for kind in range(3))
    directory_id = disk.directory_id
    return DiskView(
        path=disk.path,
        directory_id=None if is_reserved_directory_id(directory_id) else directory_id,
        failure=disk.failure,
        failed_at_ms=disk.failed_at_ms if disk.failed_at_ms > 0 else None,
        total_bytes=disk.total_bytes,
        usable_bytes=disk.usable_bytes,
        size_bytes=disk.size_bytes,
        partition_count=disk.partition_count,
        future_partition_count=disk.future_partition_count,
        leader_count=disk.leader_count,
        cordons=tuple(
            CordonView(
                cordon.cause,
                cordon.reason,
                cordon.owner,
                cordon.until_ms if cordon.until_ms >= 0 else None,
            )
            for cordon in disk.cordons
        ),
        work=DiskWork(disk.queue_length, disk.busy_ns, disk.hang_ms, (reads, writes, syncs)),
        deleted_bytes=disk.deleted_bytes if disk.deleted_bytes >= 0 else None,
        stray_count=disk.stray_count,
        stray_bytes=disk.stray_bytes,
        health=_health(disk),
    )


def _health(disk: DescribeDisksResponse.Disk) -> DeviceHealth | None:
    if disk.device is None:
        return None
    return DeviceHealth(
        disk.device,
        disk.device_errors if disk.device_errors >= 0 else None,
        bool(disk.smart_status) if disk.smart_status >= 0 else None,
        disk.media_errors if disk.media_errors >= 0 else None,
    )


def disks_of_log_dirs(
    views: Sequence[LogDirView], led: Collection[TopicPartition], steady_ms: int
) -> BrokerDisks:
    """Return the directories of a broker that has no DescribeDisks.

    Args:
        led: the partitions that the broker leads.
        steady_ms: the time of the answer, by a clock of the caller.
    """
    return BrokerDisks(
        steady_ms,
        NO_BROKER_EPOCH,
        None,
        tuple(_disk_of_log_dir(view, led) for view in views),
        tuple(_moves_of_log_dirs(views)),
    )


def _disk_of_log_dir(view: LogDirView, led: Collection[TopicPartition]) -> DiskView:
    current = [where for where, replica in view.replicas.items() if not replica.is_future]
    is_online = view.error is ErrorCode.NONE
    return DiskView(
        path=view.path,
        directory_id=None,
        failure=None if is_online else view.error.name,
        failed_at_ms=None,
        total_bytes=view.total_bytes,
        usable_bytes=view.usable_bytes,
        size_bytes=sum(replica.size_bytes for replica in view.replicas.values()),
        partition_count=len(current),
        future_partition_count=len(view.replicas) - len(current),
        leader_count=sum(where in led for where in current),
        cordons=(CordonView("configuration"),) if view.is_cordoned else (),
        work=None,
    )


def _moves_of_log_dirs(views: Sequence[LogDirView]) -> list[MoveView]:
    current = {
        where: (view.path, replica)
        for view in views
        for where, replica in view.replicas.items()
        if not replica.is_future
    }
    moves = []
    for view in views:
        for where, future in view.replicas.items():
            if not future.is_future or where not in current:
                continue
            source, replica = current[where]
            moves.append(
                MoveView(
                    where,
                    source,
                    view.path,
                    None,
                    replica.size_bytes,
                    max(replica.size_bytes - future.size_bytes, 0),
                    future.offset_lag,
                )
            )
    return moves
