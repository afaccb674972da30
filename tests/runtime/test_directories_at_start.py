"""A start on directories that are missing, dead, replaced, swapped, or of somebody else."""

import asyncio
import errno
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from node_harness import CLUSTER_ID, Client, Home, batch_of, connected, running

from spindle.common.errors import ConfigError, ErrorCode
from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import NO_LEADER, TopicPartition
from spindle.common.ports import FileSystem
from spindle.disks.alter_disks import DirectoryAction, ReplicaState
from spindle.log.formats.clean_shutdown import CLEAN_SHUTDOWN_FILE
from spindle.log.formats.meta_properties import META_PROPERTIES
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.runtime.machine import LocalMachine, Lock
from spindle.runtime.node import Node


class FaultyMachine(LocalMachine):
    """A machine on which paths that contain `path_part` fail."""

    def __init__(self, path_part: str, error_number: int = errno.EIO) -> None:
        super().__init__()
        self.path_part = path_part
        self.error_number = error_number

    def check(self, path: str) -> None:
        if self.path_part in path:
            raise OSError(self.error_number, os.strerror(self.error_number), path)

    def file_system(self, directories: object) -> FileSystem:
        machine = self

        class FaultyFiles(OsFileSystem):
            def read_bytes(self, path: str) -> bytes:
                machine.check(path)
                return super().read_bytes(path)

            def write_atomically(self, path: str, data: bytes) -> None:
                machine.check(path)
                super().write_atomically(path, data)

        return FaultyFiles()

    def lock_directory(self, path: str) -> Lock:
        self.check(f"{path}/.lock")
        return super().lock_directory(path)


async def offline_paths(client: Client) -> list[str]:
    """Return the names of the directories that answer with KAFKA_STORAGE_ERROR."""
    response = await client.ask(DescribeLogDirsRequest(topics=None))
    return sorted(
        Path(row.log_dir).name
        for row in response.results
        if row.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    )


async def leaders(client: Client, topic: str) -> list[int]:
    """Return the leader of each partition."""
    asked = MetadataRequest.MetadataRequestTopic(name=topic)
    response = await client.ask(MetadataRequest(topics=[asked]), version=9)
    rows = sorted(response.topics[0].partitions, key=lambda row: row.partition_index)
    return [row.leader_id for row in rows]


async def fill(home: Home, partitions: int = 3) -> None:
    """Write a record to each partition of topic t, one in each directory."""
    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", partitions)
        for partition in range(partitions):
            answer = await client.produce("t", partition, batch_of(b"r%d" % partition))
            assert answer.error_code == 0


def places(home: Home) -> dict[int, int]:
    """Return the number of the directory of each partition of t."""
    return {
        int(path.name[2:]): number
        for number, directory in enumerate(home.directories)
        for path in directory.glob("t-?")
    }


def strays(folder: Path) -> list[Path]:
    return list(folder.glob("*/*-stray"))


async def started_with(home: Home, machine: LocalMachine) -> Node:
    node = Node(home.config(), machine)
    try:
        await node.start()
    except BaseException:
        await node.stop()
        raise
    return node


@pytest.mark.parametrize("name", [META_PROPERTIES, ".lock", ".kafka_cleanshutdown"])
@pytest.mark.parametrize("error_number", [errno.EIO, errno.EACCES, errno.EROFS])
async def test_a_directory_that_fails_at_the_start_is_offline_and_hinders_no_other(
    tmp_path: Path, name: str, error_number: int
) -> None:
    home = Home(tmp_path).format()

    await fill(home)
    gone = next(p for p, number in places(home).items() if number == 1)
    node = await started_with(home, FaultyMachine(f"disk2/{name}", error_number))
    try:
        async with connected(node) as client:
            assert await offline_paths(client) == ["disk2"]
            leader_ids = await leaders(client, "t")
            assert leader_ids[gone] == -1
            assert [leader for p, leader in enumerate(leader_ids) if p != gone] == [1, 1]
    finally:
        await node.stop()
    # The directory is back: its records are, too.
    async with running(home) as node, connected(node) as client:
        assert await leaders(client, "t") == [1, 1, 1]
        assert (await client.fetch("t", gone, 0)).high_watermark == 1


async def test_a_broker_without_any_directory_does_not_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    metadata = tmp_path / "metadata"
    home = Home(tmp_path, 2, metadata_log_dir=str(metadata)).format()

    with pytest.raises(ConfigError, match=r"none of the log directories.*disk1.*disk2"):
        await started_with(home, FaultyMachine("/disk"))
    assert not (metadata / ".lock").exists()


async def test_a_separate_metadata_directory_that_fails_ends_the_start(tmp_path: Path) -> None:
    home = Home(tmp_path, 2, metadata_log_dir=str(tmp_path / "metadata")).format()

    with pytest.raises(ConfigError, match=r"metadata cannot be used.*cannot start without it"):
        await started_with(home, FaultyMachine("metadata/meta.properties"))
    with pytest.raises(ConfigError, match=r"the metadata log directory .*metadata fails"):
        await started_with(home, FaultyMachine("metadata/.lock"))


async def test_a_directory_that_takes_no_new_id_is_offline(tmp_path: Path) -> None:
    home = Home(tmp_path).format()
    file = home.directories[1] / META_PROPERTIES
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("directory.id")))

    class ReadOnly(FaultyMachine):
        def file_system(self, directories: object) -> FileSystem:
            machine = self

            class ReadOnlyFiles(OsFileSystem):
                def write_atomically(self, path: str, data: bytes) -> None:
                    machine.check(path)
                    super().write_atomically(path, data)

            return ReadOnlyFiles()

    machine = ReadOnly("disk2/meta.properties", errno.EROFS)
    node = await started_with(home, machine)
    try:
        async with connected(node) as client:
            assert await offline_paths(client) == ["disk2"]
    finally:
        await node.stop()


def other_node(file: Path) -> None:
    file.write_text(file.read_text().replace("node.id=1", "node.id=2"))


def other_cluster(file: Path) -> None:
    file.write_text(file.read_text().replace(CLUSTER_ID, "AAAAAAAAAAAAAAAAAAAAAB"))


def copied(file: Path) -> None:
    file.write_text((file.parent.parent / "disk3" / META_PROPERTIES).read_text())


def removed(file: Path) -> None:
    file.unlink()


def gone(file: Path) -> None:
    shutil.rmtree(file.parent)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (other_node, "Stored node id 2 doesn't match"),
        (other_cluster, "Invalid cluster.id in"),
        (copied, "one directory is a copy of the other"),
        (removed, "disk2: its disk is not mounted, or the directory is not formatted"),
        (gone, "disk2: its disk is not mounted, or the directory is not formatted"),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
async def test_a_directory_that_belongs_elsewhere_ends_the_start(
    tmp_path: Path, damage: Callable[[Path], None], reason: str
) -> None:
    home = Home(tmp_path).format()
    damage(home.directories[1] / META_PROPERTIES)

    with pytest.raises(ConfigError, match=reason):
        async with running(home):
            pass


async def test_directories_may_change_their_order_and_their_paths(tmp_path: Path) -> None:
    """A directory is known by its id: replicas go where their disk goes."""
    home = Home(tmp_path, metadata_log_dir=str(tmp_path / "metadata")).format()

    await fill(home)
    first, second, third = home.directories
    first.rename(tmp_path / "swap")
    second.rename(first)
    (tmp_path / "swap").rename(second)
    home.properties["log.dirs"] = f"{third},{second},{first}"
    before = places(home)
    async with running(home) as node, connected(node) as client:
        assert await leaders(client, "t") == [1, 1, 1]
        for partition in range(3):
            assert (await client.fetch("t", partition, 0)).high_watermark == 1
    assert places(home) == before
    assert strays(tmp_path) == []


async def test_the_only_replica_of_a_replaced_directory_is_created_empty_when_its_loss_is_accepted(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path).format()

    await fill(home)
    lost = next(p for p, number in places(home).items() if number == 1)
    shutil.rmtree(home.directories[1])
    home.format("--ignore-formatted")
    async with running(home) as node, connected(node) as client:
        assert node.broker is not None

        async def wait_for_leaders(leaders: dict[int, int]) -> None:
            assert node.broker is not None
            assert await node.broker.metadata.wait_for(
                lambda image: (
                    {
                        number: partition.leader
                        for number, partition in image.topics.by_name["t"].partitions.items()
                    }
                    == leaders
                ),
                10,
            )

        await wait_for_leaders({n: -1 if n == lost else 1 for n in range(3)})
        altered = await node.broker.directory_changes.change(
            DirectoryAction.ONLINE, str(home.directories[1]), [TopicPartition("t", lost)]
        )
        assert altered.replicas == {TopicPartition("t", lost): ReplicaState.CREATED_EMPTY}
        await wait_for_leaders(dict.fromkeys(range(3), 1))
        for partition in range(3):
            answer = await client.fetch("t", partition, 0, max_wait_ms=0)
            assert (answer.error_code, answer.high_watermark) == (0, partition != lost)


async def test_the_only_replica_whose_folder_is_missing_waits_until_its_loss_is_accepted(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path).format()
    where = TopicPartition("t", 0)

    await fill(home)
    number = places(home)[where.partition]
    shutil.rmtree(home.directories[number] / "t-0")
    for _ in range(2):  # the evidence outlives a start
        async with running(home) as node:
            assert node.broker is not None
            metadata = node.broker.metadata
            assert await metadata.wait_for(lambda image: _leader_of(image, where) == NO_LEADER, 10)
            assert node.broker.replicas.lookup(*where) is None
    async with running(home) as node, connected(node) as client:
        assert node.broker is not None
        altered = await node.broker.directory_changes.change(
            DirectoryAction.ONLINE, str(home.directories[number]), [where]
        )
        assert altered.replicas == {where: ReplicaState.CREATED_EMPTY}
        assert await node.broker.metadata.wait_for(lambda image: _leader_of(image, where) == 1, 10)
        answer = await client.fetch("t", 0, 0, max_wait_ms=0)
        assert (answer.error_code, answer.high_watermark) == (0, 0)


def _leader_of(image: MetadataImage, where: TopicPartition) -> int:
    return image.topics.by_name[where.topic].partitions[where.partition].leader


async def test_a_start_does_not_forget_the_added_directories_because_one_file_cannot_be_read(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 2).format()

    with pytest.raises(ConfigError, match=r"spindle-log-dirs\.json"):
        await started_with(home, FaultyMachine("spindle-log-dirs.json"))


class SlowToLoad(LocalMachine):
    """A machine that loads no log until `may_load` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_loading = asyncio.Event()
        self.may_load = threading.Event()

    def file_system(self, directories: object) -> FileSystem:
        machine = self
        loop = asyncio.get_running_loop()

        class SlowFiles(OsFileSystem):
            def remove(self, path: str) -> None:
                super().remove(path)
                if path.endswith(CLEAN_SHUTDOWN_FILE):
                    loop.call_soon_threadsafe(machine.is_loading.set)
                    machine.may_load.wait()

        return SlowFiles()


async def test_a_stop_while_logs_are_loaded_leaves_the_directories_clean_with_their_broker_epoch(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path).format()
    await fill(home)
    marks = [disk / CLEAN_SHUTDOWN_FILE for disk in home.directories]
    before = [mark.read_text() for mark in marks]

    machine = SlowToLoad()
    node = Node(home.config(), machine)
    start = asyncio.create_task(node.start())
    await machine.is_loading.wait()
    node.request_stop()
    await start
    machine.may_load.set()
    await node.stop()

    assert [mark.read_text() for mark in marks] == before
