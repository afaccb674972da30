"""Reports of brokers about their directories, for tests of `spindle disks`."""

from dataclasses import replace
from typing import Any

from spindle.cli.disks.broker_poll import BrokerReport
from spindle.client.admin.cluster import ClusterNode
from spindle.client.disks import BrokerDisks, DiskView, DiskWork, MoveView, OperationsView
from spindle.common.ids import TopicPartition

GIB = 2**30
MIB = 2**20
NOTHING = OperationsView(0, 0, 0, {})
IDLE = DiskWork(0, 0, 0, (NOTHING, NOTHING, NOTHING))


def disk(path: str = "/d/1", **fields: Any) -> DiskView:
    """Return an online directory of a Spindle broker."""
    plain = DiskView(
        path=path,
        directory_id=bytes(15) + b"\xff",
        failure=None,
        failed_at_ms=None,
        total_bytes=100 * GIB,
        usable_bytes=60 * GIB,
        size_bytes=3 * GIB,
        partition_count=12,
        future_partition_count=0,
        leader_count=4,
        cordons=(),
        work=IDLE,
    )
    return replace(plain, **fields)


def move(remaining_bytes: int, source: str = "/d/1", target: str = "/d/2") -> MoveView:
    """Return a move of a replica of 1 GiB."""
    where = TopicPartition("t", 3)
    return MoveView(where, source, target, "copying", GIB, remaining_bytes, 5)


def report(
    *disks: DiskView,
    node_id: int = 1,
    steady_ms: int = 10_000,
    epoch: int = 7,
    is_spindle: bool = True,
    moves: tuple[MoveView, ...] = (),
) -> BrokerReport:
    """Return the report of a broker that answered."""
    node = ClusterNode(node_id, "host", 9092, None, False)
    return BrokerReport(node, is_spindle, BrokerDisks(steady_ms, epoch, None, disks, moves))


def silent(node_id: int = 2, *, is_fenced: bool = True) -> BrokerReport:
    """Return the report of a broker that did not answer."""
    node = ClusterNode(node_id, "host", 9093, None, is_fenced)
    error = "cannot connect to host:9093: Connection refused"
    return BrokerReport(node, False, None, error)
