"""One node from format to stop, over its own wire."""

import asyncio
import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from node_harness import (
    Client,
    Home,
    batch_of,
    connected,
    partition_folders,
    records_in,
    running,
)

from spindle.common.errors import ConfigError, ErrorCode, LogDirectoryFailed
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.record import Record
from spindle.runtime.node import Node
from spindle.runtime.process import EXIT_FAILED
from spindle.runtime.process import run as run_process


async def list_offset(client: Client, topic: str, timestamp: int) -> int:
    wanted = ListOffsetsRequest.ListOffsetsTopic
    response = await client.ask(
        ListOffsetsRequest(
            replica_id=-1,
            topics=[
                wanted(
                    name=topic,
                    partitions=[
                        wanted.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
                    ],
                )
            ],
        )
    )
    answer = response.topics[0].partitions[0]
    assert answer.error_code == 0
    offset: int = answer.offset
    return offset


async def test_records_survive_a_clean_restart(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        topic_id = await client.create_topic("t", partitions=6)
        answer = await client.produce("t", 4, batch_of(b"a", b"b"))
        assert (answer.error_code, answer.base_offset) == (0, 0)
        assert (await client.produce("t", 4, batch_of(b"c"))).base_offset == 2
    folders = partition_folders(home)
    assert sorted(folders) == [f"t-{n}" for n in range(6)]
    assert sorted(folders.values()) == ["disk1", "disk1", "disk2", "disk2", "disk3", "disk3"]
    assert all((disk / ".kafka_cleanshutdown").exists() for disk in home.directories)
    async with running(home) as node, connected(node) as client:
        assert not any((disk / ".kafka_cleanshutdown").exists() for disk in home.directories)
        fetched = await client.fetch("t", 4, 0)
        assert [r.value for r in records_in(fetched.records)] == [b"a", b"b", b"c"]
        assert fetched.high_watermark == 3
        metadata = await client.ask(MetadataRequest(topics=None))
        assert metadata.topics[0].topic_id == topic_id
        assert partition_folders(home) == folders


async def test_a_node_that_was_not_stopped_recovers(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    (tmp_path / "copy").mkdir()
    copy = Home(tmp_path / "copy")

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        for number in range(5):
            await client.produce("t", 0, batch_of(b"%d" % number))
        # A killed process leaves the files as they are now.
        for source, target in zip(home.directories, copy.directories, strict=True):
            _copy_tree(source, target)
    log = next(copy.directories[0].parent.rglob("t-0/*.log"))
    with log.open("ab") as file:
        file.write(b"\0\0\0\0torn")
    async with running(copy) as node, connected(node) as client:
        fetched = await client.fetch("t", 0, 0)
        assert [r.value for r in records_in(fetched.records)] == [b"0", b"1", b"2", b"3", b"4"]
        assert (await client.produce("t", 0, batch_of(b"5"))).base_offset == 5


def _copy_tree(source: Path, target: Path) -> None:
    for path in sorted(source.rglob("*")):
        place = target / path.relative_to(source)
        if path.is_dir():
            place.mkdir(parents=True, exist_ok=True)
        elif path.name != ".lock":
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(
                path.read_bytes().rstrip(b"\0") if "index" in path.name else path.read_bytes()
            )


async def test_topics_of_the_past_leave_the_disks_alone(tmp_path: Path) -> None:
    """A topic that was deleted and created again is judged by its present id only (KIP-516)."""
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        await client.ask(
            DeleteTopicsRequest(
                timeout_ms=5_000, topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]
            )
        )
        await client.create_topic("t")
        await client.produce("t", 0, batch_of(b"kept"))
    async with running(home) as node, connected(node) as client:
        assert not [name for name in partition_folders(home) if name.endswith("-stray")]
        fetched = await client.fetch("t", 0, 0)
        assert [r.value for r in records_in(fetched.records)] == [b"kept"]


async def test_a_foreign_partition_is_set_aside(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
    _copy_tree(
        next(d / "t-0" for d in home.directories if (d / "t-0").exists()),
        home.directories[1] / "other-7",
    )
    async with running(home):
        strays = [name for name in partition_folders(home) if name.endswith("-stray")]
        assert len(strays) == 1
        assert strays[0].startswith("other-7.")


async def test_the_recorded_one_of_two_logs_of_a_partition_is_used(tmp_path: Path) -> None:
    """A directory was offline while the replica was made in another one, and is back."""
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        await client.produce("t", 0, batch_of(b"kept"))
    own = next(d for d in home.directories if (d / "t-0").exists())
    for other in home.directories:
        if other != own:
            _copy_tree(own / "t-0", other / "t-0")
            (other / "t-0" / "00000000000000000000.log").write_bytes(b"")
    async with running(home) as node, connected(node) as client:
        assert (own / "t-0").exists()
        assert sum(name.endswith("-stray") for name in partition_folders(home)) == 2
        fetched = await client.fetch("t", 0, 0)
        assert [r.value for r in records_in(fetched.records)] == [b"kept"]


async def test_a_fetch_waits_for_data_and_is_answered_at_once(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as consumer, connected(node) as producer:
        await producer.create_topic("t")
        waiting = asyncio.ensure_future(consumer.fetch("t", 0, 0, max_wait_ms=30_000))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await producer.produce("t", 0, batch_of(b"x"))
        fetched = await asyncio.wait_for(waiting, 5)
        assert [r.value for r in records_in(fetched.records)] == [b"x"]
        empty = await consumer.fetch("t", 0, 1, max_wait_ms=10)
        assert (empty.error_code, empty.high_watermark) == (0, 1)
        assert not empty.records


async def test_deleting_a_topic_answers_a_waiting_fetch(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as consumer, connected(node) as admin:
        await admin.create_topic("t")
        waiting = asyncio.ensure_future(consumer.fetch("t", 0, 0, max_wait_ms=30_000))
        await asyncio.sleep(0.05)
        await admin.ask(
            DeleteTopicsRequest(
                timeout_ms=5_000, topics=[DeleteTopicsRequest.DeleteTopicState(name="t")]
            )
        )
        fetched = await asyncio.wait_for(waiting, 5)
        assert fetched.error_code in (
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
        )


async def test_offsets_by_time_and_deleted_records(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        for _ in range(3):
            await client.produce("t", 0, batch_of(b"a", b"b"))
        assert await list_offset(client, "t", -1) == 6
        assert await list_offset(client, "t", -2) == 0
        wanted = DeleteRecordsRequest.DeleteRecordsTopic
        response = await client.ask(
            DeleteRecordsRequest(
                timeout_ms=5_000,
                topics=[
                    wanted(
                        name="t",
                        partitions=[wanted.DeleteRecordsPartition(partition_index=0, offset=3)],
                    )
                ],
            )
        )
        assert response.topics[0].partitions[0].low_watermark == 3
        assert await list_offset(client, "t", -2) == 3
        below = await client.fetch("t", 0, 1)
        assert below.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_an_idempotent_producer_is_not_appended_twice(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t")
        ids = await client.ask(InitProducerIdRequest(transactional_id=None))
        assert (ids.error_code, ids.producer_epoch) == (0, 0)
        batch = batch_of(b"a", producer_id=ids.producer_id, producer_epoch=0, base_sequence=0)
        assert (await client.produce("t", 0, batch)).base_offset == 0
        assert (await client.produce("t", 0, batch)).base_offset == 0
        gap = batch_of(b"c", producer_id=ids.producer_id, producer_epoch=0, base_sequence=5)
        refused = await client.produce("t", 0, gap)
        assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert await list_offset(client, "t", -1) == 1
        other = await client.ask(InitProducerIdRequest(transactional_id=None))
        assert other.producer_id != ids.producer_id


async def test_a_directory_that_dies_stalls_only_itself(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", partitions=3)
        assert node.broker is not None
        await node.broker.metadata.catch_up(5.0)
        folders = partition_folders(home)
        # The first directory holds the metadata log, too: without it the node stops.
        lost = next(n for n in range(3) if folders[f"t-{n}"] != "disk1")
        dead = node.broker.replicas.lookup("t", lost)
        assert dead is not None
        alive = next(n for n in range(3) if folders[f"t-{n}"] != folders[f"t-{lost}"])
        dead.directory.executor.fail("EIO")
        assert (await client.produce("t", alive, batch_of(b"x"))).error_code == 0
        answer = await client.produce("t", lost, batch_of(b"x"))
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        dirs = await client.ask(DescribeLogDirsRequest(topics=None))
        codes = {Path(r.log_dir).name: r.error_code for r in dirs.results}
        assert codes.pop(folders[f"t-{lost}"]) == ErrorCode.KAFKA_STORAGE_ERROR
        assert set(codes.values()) == {0}
        assert node.broker.metadata.leader.leader_id == 1


async def test_every_advertised_api_is_served(tmp_path: Path) -> None:
    home = Home(tmp_path).format()

    async with running(home) as node, connected(node) as client:
        versions = await client.ask(
            ApiVersionsRequest(client_software_name="t", client_software_version="1")
        )
        keys = [row.api_key for row in versions.api_keys]
        assert keys == sorted(keys)
        assert {0, 1, 2, 3, *range(8, 15), *range(18, 21), 22, *range(24, 29)} <= set(keys)
        assert {32, 35, 65, 66, 68} <= set(keys)
        assert {*range(76, 80), *range(83, 88), *range(90, 93)} <= set(keys)
        assert {71, 72, 88, 89} <= set(keys), "client telemetry and streams groups"
        finalized = {f.name: f.max_version_level for f in versions.finalized_features}
        assert finalized["metadata.version"] == 33


async def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    program = (
        "import fcntl, sys; file = open(sys.argv[1], 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
        "print('held', flush=True); sys.stdin.read()"
    )

    lock = str(home.directories[1] / ".lock")
    with subprocess.Popen(
        [sys.executable, "-c", program, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(ConfigError, match="another process uses"):
            async with running(home):
                pass
        holder.communicate()


async def test_a_port_in_use_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """In one line: the parts that had not begun to work end in silence."""
    home = Home(tmp_path).format()

    server = await asyncio.start_server(lambda r, w: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    home.properties["listeners"] = f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0"
    assert await run_process(home.config()) == EXIT_FAILED
    (line,) = [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR]
    assert f"failed to bind to 127.0.0.1:{port}" in line
    server.close()


async def test_a_stop_leaves_a_disk_alone_that_hangs(tmp_path: Path) -> None:
    """Not even the lock file is touched, for that would hang as well."""
    home = Home(tmp_path).format()
    home.properties["spindle.log.dir.hang.timeout.ms"] = "1000"
    gate = threading.Event()

    try:
        node = Node(home.config())
        await node.start()
        assert node.broker is not None
        executor = node.broker.replicas.directories[1].executor
        with pytest.raises(LogDirectoryFailed, match="has not answered"):
            await executor.submit(gate.wait)
        await node.stop()
        locks = [(directory / ".lock").exists() for directory in home.directories]
        assert locks == [False, True, False]
    finally:
        gate.set()


@pytest.mark.parametrize("roles", ["broker", "controller", "broker,controller"])
async def test_a_node_that_is_not_ready_in_time_ends(
    roles: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(
        tmp_path,
        process_roles=roles,
        # The other voters do not run.
        controller_quorum_voters="1@127.0.0.1:1,2@127.0.0.1:2,3@127.0.0.1:3"
        if "controller" in roles
        else "2@127.0.0.1:2",
        listeners=",".join(
            f"{name}://127.0.0.1:0"
            for name, role in (("PLAINTEXT", "broker"), ("CONTROLLER", "controller"))
            if role in roles
        ),
        server_max_startup_time_ms="1",
    ).format()

    assert await run_process(home.config()) == EXIT_FAILED
    assert "not ready within server.max.startup.time.ms (0.001 s)" in caplog.text


async def test_a_node_that_was_ready_in_time_keeps_running(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, server_max_startup_time_ms="61234").format()
    loop = asyncio.get_running_loop()
    call_later = loop.call_later
    timers: dict[float, Callable[[], object]] = {}

    def noted(delay: float, callback: Any, *args: Any, **more: Any) -> asyncio.TimerHandle:
        timers[delay] = partial(callback, *args)
        return call_later(delay, callback, *args, **more)

    monkeypatch.setattr(loop, "call_later", noted)
    async with running(home) as node:
        timers[61.234]()
        assert not node.is_stopping


async def test_an_unexpected_directory_in_a_log_directory_stops_the_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path).format()
    stranger = home.directories[1] / "photos"
    stranger.mkdir()
    assert (await run_process(home.config())) == EXIT_FAILED
    (fatal,) = [record for record in caplog.records if record.levelname == "CRITICAL"]
    assert str(stranger) in fatal.getMessage()


async def test_a_cordoned_directory_gets_no_new_replicas(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    alter = IncrementalAlterConfigsRequest.AlterConfigsResource

    async def cordon(client: Client, value: str) -> int:
        response = await client.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    alter(
                        resource_type=4,
                        resource_name="1",
                        configs=[
                            alter.AlterableConfig(
                                name="cordoned.log.dirs", config_operation=0, value=value
                            )
                        ],
                    )
                ]
            )
        )
        code: int = response.responses[0].error_code
        return code

    async with running(home) as node, connected(node) as client:
        assert await cordon(client, "/no/such") == ErrorCode.INVALID_REQUEST
        cordoned = f"{home.directories[0]},{home.directories[2]}"
        assert await cordon(client, cordoned) == 0
        await client.create_topic("t", partitions=3)
        dirs = await client.ask(DescribeLogDirsRequest(topics=None))
        assert set(partition_folders(home).values()) == {"disk2"}
        assert [r.is_cordoned for r in dirs.results] == [True, False, True]
        assert await cordon(client, "") == 0
        await client.create_topic("u", partitions=2)
        await client.ask(DescribeLogDirsRequest(topics=None))
        folders = partition_folders(home)
        assert {folders["u-0"], folders["u-1"]} == {"disk1", "disk3"}


async def test_a_compacted_topic_keeps_the_newest_of_a_key(tmp_path: Path) -> None:
    home = Home(
        tmp_path, directories=1, log_initial_task_delay_ms="0", log_cleaner_backoff_ms="5"
    ).format()

    def keyed(*pairs: tuple[bytes, bytes]) -> bytes:
        records = [SimpleRecord(key=k, value=v, timestamp_ms=1_700_000_000_000) for k, v in pairs]
        return build_batch(records)

    async def values(client: Client) -> list[bytes | None]:
        records: list[Record] = []
        offset, end = 0, 1
        while offset < end:
            fetched = await client.fetch("t", 0, offset)
            records += [r for r in records_in(fetched.records) if r.offset >= offset]
            offset, end = records[-1].offset + 1, fetched.high_watermark
        return [r.value for r in records]

    async with running(home) as node, connected(node) as client:
        configs = {
            "cleanup.policy": "compact",
            "min.cleanable.dirty.ratio": "0.01",
            "segment.ms": "1",
        }
        await client.create_topic("t", configs=configs)
        assert (await client.produce("t", 0, batch_of(b"no key"))).error_code == (
            ErrorCode.INVALID_RECORD
        )
        await client.produce("t", 0, keyed((b"a", b"1"), (b"b", b"1"), (b"a", b"2")))
        await client.produce("t", 0, keyed((b"b", b"2")))
        newer = [SimpleRecord(key=b"c", value=b"x", timestamp_ms=1_700_000_100_000)]
        assert (await client.produce("t", 0, build_batch(newer))).error_code == 0
        kept = [b"2", b"2", b"x"]
        while (fetched := await values(client)) != kept:
            assert fetched == [b"1", b"1", *kept]
