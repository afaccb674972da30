"""DescribeDisks, one of Spindle's own APIs: log directories with their moves and rebuilds."""

from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.common.uuids import ZERO_UUID
from spindle.disks.cordons import Cordon
from spindle.disks.device_health import DeviceHealth
from spindle.disks.io_counts import DirectoryIo, OperationCounts
from spindle.disks.log_directory import LogDirectory
from spindle.protocol.messages.describe_disks import DescribeDisksRequest, DescribeDisksResponse
from spindle.protocol.sentinels import NO_BROKER_EPOCH
from spindle.replicas.directory_counts import DirectoryCounts
from spindle.replicas.moves.move import Move
from spindle.replicas.rebuilds import Rebuild
from spindle.serving.context import RequestContext
from spindle.serving.cooperative import cooperatively
from spindle.serving.permissions import CLUSTER_DENIED, may_use_cluster
from spindle.serving.services import BrokerServices

Disk = DescribeDisksResponse.Disk
_UNKNOWN_SPACE: Final = (-1, -1)


async def describe_disks(
    services: BrokerServices, context: RequestContext, request: DescribeDisksRequest
) -> DescribeDisksResponse:
    """Describe every configured directory. A disk that hangs does not delay the answer."""
    if not may_use_cluster(services, context, Operation.DESCRIBE):
        return DescribeDisksResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=CLUSTER_DENIED
        )
    replicas = services.replicas
    counts = DirectoryCounts()
    async for partition in cooperatively(replicas):
        counts.add(partition)
    damages = list(replicas.damaged())
    counts.add_futures(replicas.moves)
    capacities = await services.capacities(replicas.directories)
    health = services.device_health([directory.path for directory in replicas.directories])
    own = services.metadata.image.cluster.brokers.get(services.node_id)
    return DescribeDisksResponse(
        broker_epoch=own.epoch if own is not None else NO_BROKER_EPOCH,
        steady_ms=services.steady_ms(),
        move_limit_bytes_per_second=services.move_throttle.limit_bytes_per_s,
        disks=[
            _disk(
                services,
                directory,
                counts,
                capacities.get(directory.path, _UNKNOWN_SPACE),
                health.get(directory.path),
            )
            for directory in replicas.directories
        ],
        moves=[_move(move) for move in replicas.moves],
        rebuilds=[_rebuild(services, rebuild) for rebuild in replicas.rebuilds],
        damages=[
            DescribeDisksResponse.Damage(
                topic=damage.topic_partition.topic,
                partition_index=damage.topic_partition.partition,
                broker_id=damage.broker_id,
                finding=damage.finding,
            )
            for damage in damages
        ],
    )


def _disk(
    services: BrokerServices,
    directory: LogDirectory,
    counts: DirectoryCounts,
    capacity: tuple[int, int],
    health: DeviceHealth | None,
) -> Disk:
    executor = directory.executor
    failure, load = executor.failure, executor.load()
    total_bytes, usable_bytes = capacity
    disk = Disk(
        path=directory.path,
        directory_id=directory.directory_id or ZERO_UUID,
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        size_bytes=counts.size_bytes[directory],
        partition_count=counts.partitions[directory],
        future_partition_count=counts.futures[directory],
        leader_count=counts.leaders[directory],
        queue_length=load.queue_length,
        busy_ns=load.busy_ns,
        hang_ms=load.hang_ms,
        operations=_operations(executor.io),
    )
    if failure is not None:
        disk.failure = failure.reason
        disk.failed_at_ms = failure.at_ms
    else:
        disk.deleted_bytes = directory.store.storage.deleted_bytes
        disk.stray_count = len(directory.store.stray_logs)
        disk.stray_bytes = directory.store.stray_bytes()
    if health is not None:
        disk.device = health.device
        disk.device_errors = _count(health.errors)
        disk.smart_status = _count(health.smart_passed)
        disk.media_errors = _count(health.media_errors)
    disk.cordons = [_cordon(cordon) for cordon in services.replicas.directory_cordons(directory)]
    return disk


def _count(value: int | None) -> int:
    return -1 if value is None else int(value)


def _cordon(cordon: Cordon) -> Disk.Cordon:
    row = Disk.Cordon(cause=cordon.cause, reason=cordon.reason, owner=cordon.owner)
    if cordon.until_ms is not None:
        row.until_ms = cordon.until_ms
    return row


def _operations(io: DirectoryIo) -> list[Disk.Operations]:
    return [
        Disk.Operations(
            kind=kind,
            size_bytes=counts.size_bytes,
            total_ns=counts.total_ns,
            errors=counts.errors,
            buckets=_buckets(counts),
        )
        for kind, counts in enumerate((io.reads, io.writes, io.syncs))
    ]


def _buckets(counts: OperationCounts) -> list[Disk.Operations.Bucket]:
    return [
        Disk.Operations.Bucket(index=index, count=count)
        for index, count in enumerate(counts.buckets)
        if count
    ]


def _move(move: Move) -> DescribeDisksResponse.Move:
    where = move.partition.topic_partition
    return DescribeDisksResponse.Move(
        topic=where.topic,
        partition_index=where.partition,
        source=move.source.path,
        target=move.target.path,
        state=move.course.state.value,
        size_bytes=move.current.size_bytes,
        remaining_bytes=move.remaining_bytes,
        lag=move.lag,
    )


def _rebuild(services: BrokerServices, rebuild: Rebuild) -> DescribeDisksResponse.Rebuild:
    partition = rebuild.partition
    return DescribeDisksResponse.Rebuild(
        topic=partition.topic_partition.topic,
        partition_index=partition.topic_partition.partition,
        path=partition.directory.path,
        state=rebuild.state.value,
        former_bytes=rebuild.size_bytes,
        copied_bytes=rebuild.copied_bytes,
        lag=services.replicas.lag(partition) if rebuild.is_under_way else -1,
        failure=rebuild.failure or None,
    )
