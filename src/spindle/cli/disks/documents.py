"""The directories of brokers as JSON documents. Sizes are in bytes, null where they are unknown."""

from typing import Any, Final

from spindle.cli.disks.broker_poll import BrokerReport
from spindle.client.disks import (
    CordonView,
    DiskView,
    DiskWork,
    MoveView,
    OperationsView,
    RebuildView,
)
from spindle.common.uuids import uuid_text

_KINDS: Final = ("read", "write", "sync")
_NS_PER_S: Final = 1e9


def report_document(report: BrokerReport) -> dict[str, Any]:
    """Return the directories and moves of one broker."""
    node, disks = report.node, report.disks
    return {
        "broker": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
        "isFenced": node.is_fenced,
        "isSpindle": report.is_spindle,
        "error": report.error,
        "moveLimitBytesPerSecond": disks.move_limit_bytes_per_second if disks else None,
        "directories": [disk_document(disk) for disk in disks.disks] if disks else [],
        "moves": [move_document(move) for move in disks.moves] if disks else [],
        "rebuilds": [rebuild_document(rebuild_view) for rebuild_view in disks.rebuilds]
        if disks
        else [],
    }


def disk_document(disk: DiskView) -> dict[str, Any]:
    """Return one directory; `work` counts since the start of the broker."""
    return {
        "path": disk.path,
        "directoryId": uuid_text(disk.directory_id) if disk.directory_id is not None else None,
        "isOnline": disk.failure is None,
        "failure": disk.failure,
        "failedAtMs": disk.failed_at_ms,
        "totalBytes": _known(disk.total_bytes),
        "usableBytes": _known(disk.usable_bytes),
        "usedBytes": _known(disk.used_bytes),
        "sizeBytes": disk.size_bytes,
        "partitions": disk.partition_count,
        "futurePartitions": disk.future_partition_count,
        "leaders": disk.leader_count,
        "deletedBytes": disk.deleted_bytes,
        "strayLogs": disk.stray_count,
        "strayBytes": disk.stray_bytes,
        "device": _health_document(disk),
        "cordons": [_cordon_document(cordon) for cordon in disk.cordons],
        "work": _work_document(disk.work) if disk.work is not None else None,
    }


def _health_document(disk: DiskView) -> dict[str, Any] | None:
    health = disk.health
    if health is None:
        return None
    return {
        "name": health.device,
        "ioErrors": health.errors,
        "smartPassed": health.smart_passed,
        "mediaErrors": health.media_errors,
    }


def move_document(move: MoveView) -> dict[str, Any]:
    """Return one move; `lag` is in records."""
    return {
        "topic": move.partition.topic,
        "partition": move.partition.partition,
        "source": move.source,
        "target": move.target,
        "state": move.state,
        "sizeBytes": move.size_bytes,
        "remainingBytes": move.remaining_bytes,
        "lag": move.lag,
    }


def rebuild_document(rebuild: RebuildView) -> dict[str, Any]:
    """Return one rebuild, running or ended; `lag` is in records, null if unknown."""
    return {
        "topic": rebuild.partition.topic,
        "partition": rebuild.partition.partition,
        "path": rebuild.path,
        "state": rebuild.state,
        "formerBytes": rebuild.former_bytes,
        "copiedBytes": rebuild.copied_bytes,
        "lag": rebuild.lag if rebuild.lag >= 0 else None,
        "error": rebuild.failure,
    }


def _cordon_document(cordon: CordonView) -> dict[str, Any]:
    return {
        "cause": cordon.cause,
        "reason": cordon.reason,
        "owner": cordon.owner,
        "untilMs": cordon.until_ms,
    }


def _work_document(work: DiskWork) -> dict[str, Any]:
    operations = dict(zip(_KINDS, map(_operations_document, work.operations), strict=True))
    return {
        "queueLength": work.queue_length,
        "busySeconds": work.busy_ns / _NS_PER_S,
        "hangMs": work.hang_ms,
        "operations": operations,
    }


def _operations_document(operations: OperationsView) -> dict[str, Any]:
    return {
        "count": sum(operations.buckets.values()),
        "bytes": operations.size_bytes,
        "seconds": operations.total_ns / _NS_PER_S,
        "errors": operations.errors,
    }


def _known(size_bytes: int) -> int | None:
    return size_bytes if size_bytes >= 0 else None
