"""Faults of disks in a running node: clients, the log and DescribeLogDirs see them."""

import errno
import os
import time
from collections.abc import Callable, Iterator

import pytest
from records import described, read, send

from spindle.common.errors import ErrorCode
from spindle.disks.alter_disks import DirectoryInUse
from spindle.testing import Cluster, ClusterError, Disk

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Start one broker with three directories, and create a topic outside the first of them.

    The first directory holds the metadata log.
    """
    with Cluster(directories=3) as cluster:
        cluster.create_topic("t", partitions=3)
        yield cluster


def data_disk(cluster: Cluster) -> tuple[Disk, int]:
    """Return a disk without the metadata log, and a partition on it."""
    (broker,) = cluster.brokers
    for partition in range(3):
        disk = broker.disk_of("t", partition)
        if disk.number > 1:
            return disk, partition
    raise AssertionError("no partition outside the first directory")


def fail_eio(disk: Disk) -> None:
    disk.fail()


def fail_enxio_on_writes(disk: Disk) -> None:
    disk.fail(errno.ENXIO, ["write", "sync"])


def fill(disk: Disk) -> None:
    disk.fill()


def readonly(disk: Disk) -> None:
    disk.readonly()


def tear(disk: Disk) -> None:
    disk.tear(then="fail")


def replace(disk: Disk) -> None:
    disk.replace()


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (fail_eio, "EIO"),
        (fail_enxio_on_writes, "ENXIO"),
        (fill, "ENOSPC"),
        (readonly, "EROFS"),
        (tear, "EIO"),
        (replace, "EIO"),
    ],
)
@pytest.mark.parametrize("way_back", ["restart", "bring_online"])
def test_a_write_takes_the_directory_offline_and_it_comes_back(
    cluster: Cluster, fault: Callable[[Disk], None], reason: str, way_back: str
) -> None:
    disk, partition = data_disk(cluster)
    send(cluster, [b"before"], partition=partition)
    assert described(cluster, disk).error == ErrorCode.NONE
    fault(disk)
    with pytest.raises(Exception):  # noqa: B017, PT011 - the client's error after its timeout
        send(cluster, [b"lost"], partition=partition, api_timeout_ms=500)
    assert disk.wait_until_offline().startswith(f"{reason} ")
    assert described(cluster, disk).error == ErrorCode.KAFKA_STORAGE_ERROR
    assert os.strerror(getattr(errno, reason)) in disk.node.log_file.read_text()
    disk.heal()
    if way_back == "bring_online":
        if fault is replace:
            with pytest.raises(DirectoryInUse, match="1 replica would be lost, because no other"):
                disk.bring_online()
        assert disk.bring_online(accept_loss=fault is replace) is (fault is replace)
    else:
        if fault is replace:
            disk.format()
        disk.node.restart()
        if fault is replace:
            assert not disk.bring_online(accept_loss=True)
    cluster.wait_until_in_sync()
    assert described(cluster, disk).error == ErrorCode.NONE
    send(cluster, [b"after"], partition=partition)
    expected = [b"after"] if fault is replace else [b"before", b"after"]
    assert read(cluster, len(expected), partition=partition) == expected


@pytest.mark.full
def test_a_fault_outlives_the_process(cluster: Cluster) -> None:
    disk, _ = data_disk(cluster)
    disk.node.kill()
    disk.fail()
    disk.node.start()
    assert disk.wait_until_offline()
    assert described(cluster, disk).error == ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_with_room_reports_it_and_takes_what_fits(cluster: Cluster) -> None:
    disk, partition = data_disk(cluster)
    disk.fill(leave_bytes=100_000)
    free = described(cluster, disk).usable_bytes
    assert 0 < free <= 100_000
    send(cluster, [bytes(40_000)], partition=partition)
    assert free - 41_000 < described(cluster, disk).usable_bytes < free - 40_000
    with pytest.raises(Exception):  # noqa: B017, PT011 - the client's error after its timeout
        send(cluster, [bytes(100_000)], partition=partition, api_timeout_ms=500)
    assert "ENOSPC" in disk.wait_until_offline()


@pytest.mark.full
def test_a_slow_disk_delays_its_own_partitions(cluster: Cluster) -> None:
    disk, partition = data_disk(cluster)
    disk.slow(300)
    begun_s = time.monotonic()
    send(cluster, [b"slow"], partition=partition)
    assert time.monotonic() - begun_s > 0.3
    disk.heal()


@pytest.mark.full
def test_a_hung_disk_answers_after_it_is_healed(cluster: Cluster) -> None:
    disk, partition = data_disk(cluster)
    disk.hang()
    with pytest.raises(Exception):  # noqa: B017, PT011 - the client's error after its timeout
        send(cluster, [b"late"], partition=partition, api_timeout_ms=500)
    disk.heal()
    send(cluster, [b"after"], partition=partition)
    assert read(cluster, 2, partition=partition) == [b"late", b"after"]


@pytest.mark.full
def test_a_hung_disk_fails_after_the_limit() -> None:
    properties = {"spindle.log.dir.hang.timeout.ms": 1000}
    with Cluster(directories=3, properties=properties) as cluster:
        cluster.create_topic("t", partitions=3)
        disk, partition = data_disk(cluster)
        disk.hang()
        with pytest.raises(Exception):  # noqa: B017, PT011 - the client's error after its timeout
            send(cluster, [b"lost"], partition=partition, api_timeout_ms=500)
        assert "has not answered" in disk.wait_until_offline()
        disk.heal()


def test_a_torn_write_kills_the_node_and_is_cut_off_at_its_start(cluster: Cluster) -> None:
    disk, partition = data_disk(cluster)
    send(cluster, [b"whole"], partition=partition)
    segment = disk.path / f"t-{partition}" / "00000000000000000000.log"
    whole_bytes = segment.stat().st_size
    disk.tear()
    with pytest.raises(Exception):  # noqa: B017, PT011 - the client's error after its timeout
        send(cluster, [bytes(1000)], partition=partition, api_timeout_ms=500)
    assert disk.node.wait_until_ended() == -9
    assert whole_bytes + 400 < segment.stat().st_size < whole_bytes + 700
    disk.node.start()
    send(cluster, [b"next"], partition=partition)
    assert read(cluster, 2, partition=partition) == [b"whole", b"next"]


def test_a_flipped_bit_is_found_by_the_reader(cluster: Cluster) -> None:
    disk, partition = data_disk(cluster)
    send(cluster, [b"abc"], partition=partition)
    flipped = disk.flip(bit=1)
    assert flipped.path == disk.path / f"t-{partition}" / "00000000000000000000.log"
    assert flipped.offset == flipped.path.stat().st_size - 1
    with pytest.raises(Exception, match=r"(?i)crc"):
        read(cluster, 1, partition=partition)
    disk.flip(flipped.path, flipped.offset, flipped.bit)
    assert read(cluster, 1, partition=partition) == [b"abc"]


@pytest.mark.full
def test_only_chosen_operations_fail(cluster: Cluster) -> None:
    disk, partition = data_disk(cluster)
    send(cluster, [b"one"], partition=partition)
    disk.fail(errno.EIO, operations=["read"])
    with pytest.raises(Exception):  # noqa: B017, PT011 - the client's error after its timeout
        read(cluster, 1, partition=partition, api_timeout_ms=500)


def test_wrong_arguments_are_refused(cluster: Cluster) -> None:
    disk = cluster.disk(1, 2)
    with pytest.raises(ClusterError, match="node 1 has no directory 4; they are 1 to 3"):
        cluster.disk(1, 4)
    with pytest.raises(ValueError, match="error_number 0"):
        disk.fail(0)
    with pytest.raises(ValueError, match="'fsync' is none of read, write, sync"):
        disk.fail(errno.EIO, operations=["fsync"])
    with pytest.raises(ValueError, match="'stop' is none of kill, fail"):
        disk.tear(then="stop")
    with pytest.raises(ValueError, match="leave_bytes -1"):
        disk.fill(-1)
    with pytest.raises(ValueError, match="delay_ms -1"):
        disk.slow(-1)
    with pytest.raises(ValueError, match="bit 8"):
        disk.flip(bit=8)
    with pytest.raises(ClusterError, match="has no byte 9999"):
        disk.flip("meta.properties", 9999)
    with pytest.raises(ClusterError, match="cannot flip a bit"):
        disk.flip("no-such-file")
    with pytest.raises(ClusterError, match="no segment with records"):
        cluster.disk(1, 2).flip()
