"""DescribeDisks: the directories of a broker and their work, as `spindle disks` gets them."""

import asyncio
import threading
from pathlib import Path
from typing import Any

from node_harness import Home, batch_of, connected, running, thread_of

from spindle.protocol.messages.describe_disks import DescribeDisksRequest

READ, WRITE, SYNC = range(3)


def by_path(answer: Any) -> dict[str, Any]:
    return {disk.path: disk for disk in answer.disks}


async def test_every_directory_is_described(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    async with running(home) as node, connected(node) as client:
        await client.create_topic("a", partitions=3)
        batch = batch_of(b"x" * 1000)
        for number in range(3):
            assert (await client.produce("a", number, batch)).error_code == 0
        answer = await client.ask(DescribeDisksRequest())
        assert node.broker is not None
        ids = [directory.directory_id for directory in node.broker.replicas.directories]
    assert answer.error_code == 0
    assert answer.broker_epoch >= 0
    assert answer.steady_ms > 0
    assert answer.moves == []
    assert [disk.path for disk in answer.disks] == list(map(str, home.directories))
    assert [disk.directory_id for disk in answer.disks] == ids
    for disk in answer.disks:
        assert (disk.partition_count, disk.leader_count) == (1, 1)
        assert disk.size_bytes == len(batch)
        assert disk.total_bytes >= disk.usable_bytes > 0
        assert (disk.failure, disk.failed_at_ms, disk.cordons) == (None, -1, [])
        assert disk.busy_ns > 0
        writes = disk.operations[WRITE]
        assert writes.kind == WRITE
        assert writes.size_bytes >= len(batch)
        assert sum(bucket.count for bucket in writes.buckets) > 0


async def test_an_offline_directory_has_its_reason_and_a_cordoned_one_its_cause(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, cordoned_log_dirs=str(tmp_path / "disk3")).format()
    async with running(home) as node, connected(node) as client:
        thread_of(node, str(home.directories[1])).fail(OSError(5, "Input/output error", "/x/y"))
        await asyncio.sleep(0)
        disks = by_path(await client.ask(DescribeDisksRequest()))
        offline = disks[str(home.directories[1])]
        assert offline.failure == "EIO on /x/y"
        assert offline.failed_at_ms > 0
        assert offline.total_bytes == -1
        (cordon,) = disks[str(home.directories[2])].cordons
        assert cordon.cause == "configuration"


async def test_a_disk_that_hangs_does_not_delay_the_answer(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    async with running(home) as node, connected(node) as client:
        released = threading.Event()
        path = str(home.directories[1])
        thread = thread_of(node, path)
        held = asyncio.ensure_future(thread.submit(released.wait, 60))
        waiting = [thread.submit(int) for _ in range(3)]
        first = by_path(await client.ask(DescribeDisksRequest()))[path]
        second = by_path(await client.ask(DescribeDisksRequest()))[path]
        released.set()
        assert await held
        await asyncio.gather(*waiting)
    assert first.queue_length >= 3
    assert second.busy_ns > first.busy_ns
