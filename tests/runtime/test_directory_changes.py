"""Log directories that are added, brought back online and removed while the node runs."""

import asyncio
import shutil
from pathlib import Path

import pytest
from directory_harness import add, alter, described, fail, log_dirs, registered, replicas_in
from node_harness import Home, batch_of, connected, records_in, running
from waiting import until

from spindle.common.errors import ApiError, ConfigError, ErrorCode
from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import TopicPartition
from spindle.disks.alter_disks import DirectoryAction, ReplicaState
from spindle.log.formats.clean_shutdown import read_clean_shutdown
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.runtime.node import Node


async def test_an_added_directory_is_formatted_registered_and_used(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()
    new = tmp_path / "new"

    async with running(home) as node, connected(node) as client:
        epoch = node.publisher.image.cluster.brokers[1].epoch
        answer = await add(client, new)
        assert (answer.error_code, answer.was_formatted) == (0, True), answer
        assert answer.directory_id in registered(node)
        assert node.publisher.image.cluster.brokers[1].epoch == epoch
        assert "cluster.id=4L6g3nShT-eMCtK--X86sw" in (new / "meta.properties").read_text()
        await client.create_topic("t", 4)
        by_path = await described(client)
        assert sum(len(t.partitions) for t in by_path[str(new)].topics) == 2
        assert await log_dirs(client) == [str(home.directories[0]), str(new)]
        again = await add(client, new)
        assert again.error_code == ErrorCode.INVALID_REQUEST
        assert f"{new} is a log directory of broker 1 already" in again.error_message
    async with running(home) as node, connected(node) as client:
        # The property file does not name it, and the node remembers it.
        assert (await described(client))[str(new)].error_code == 0
        assert len(registered(node)) == 2


async def test_directories_that_must_not_be_used_are_refused_and_left_as_they_were(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 2).format()
    full = tmp_path / "full"
    full.mkdir()
    (full / "photos").mkdir()
    (tmp_path / "alias").symlink_to(home.directories[1])
    cases: dict[Path | str, str] = {
        "relative": "not an absolute path",
        tmp_path / "a,b": "has a comma",
        tmp_path / "a\nb": "has a control character",
        f"{tmp_path}/a ": "ends with a space",
        f"/{home.directories[1]}": f"{home.directories[1]} is a log directory of broker 1 already",
        tmp_path / "absent" / "deep": f"there is no directory {tmp_path / 'absent'}",
        full: "is not empty: it contains photos",
        home.directories[0] / "inner": f"is inside of {home.directories[0]}",
        tmp_path: "contains ",
        tmp_path / "alias": f"{tmp_path / 'alias'} is the same directory as {home.directories[1]}",
        home.file: "is not a directory",
    }

    async with running(home) as node, connected(node) as client:
        for path, reason in cases.items():
            answer = await add(client, path)
            assert answer.error_code == ErrorCode.INVALID_REQUEST, (path, answer.error_message)
            assert reason in answer.error_message
        assert list(full.iterdir()) == [full / "photos"]
        assert len(registered(node)) == 2


async def test_a_separate_metadata_log_directory_is_refused_and_stays_in_use(
    tmp_path: Path,
) -> None:
    metadata = tmp_path / "metadata"
    home = Home(tmp_path, 1, metadata_log_dir=str(metadata)).format()

    async with running(home) as node, connected(node) as client:
        answer = await add(client, metadata)
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert f"{metadata} holds the metadata log" in answer.error_message
        await client.create_topic("t", 1)
        assert not node.is_stopping


async def test_a_directory_of_another_node_and_one_in_use_are_refused(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()
    place = tmp_path / "other"
    place.mkdir()
    other = Home(place, 1, node_id="7", controller_quorum_voters="7@127.0.0.1:65000").format()

    async with running(home) as node, connected(node) as client:
        answer = await add(client, other.directories[0])
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        assert "Stored node id 7" in answer.error_message


async def test_a_mount_point_with_lost_and_found_counts_as_empty(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()
    mount = tmp_path / "mount"
    (mount / "lost+found").mkdir(parents=True)

    async with running(home) as node, connected(node) as client:
        answer = await add(client, mount)
        assert (answer.error_code, answer.was_formatted) == (0, True), answer
    async with running(home) as node:
        assert len(registered(node)) == 2


async def test_a_half_formatted_directory_is_finished(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()
    half = tmp_path / "half"
    half.mkdir()
    (half / "meta.properties.tmp").write_text("node.i")
    (half / ".lock").touch()

    async with running(home) as node, connected(node) as client:
        assert (await add(client, half)).error_code == 0


async def test_a_repaired_directory_comes_back_with_its_records(tmp_path: Path) -> None:
    home = Home(tmp_path, 2).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 2)
        for index in (0, 1):
            assert (await client.produce("t", index, batch_of(b"before"))).error_code == 0
        path = home.directories[1]
        before = registered(node)
        refused = await alter(client, DirectoryAction.ONLINE, path)
        assert (
            "no replica of this broker is lost: nothing to bring back online"
            in refused.error_message
        )
        fail(node, path)
        await until(lambda: len(registered(node)) == 1)
        answer = await alter(client, DirectoryAction.ONLINE, path)
        assert (answer.error_code, answer.was_formatted) == (0, False), answer
        assert registered(node) == before
        states = [p.state for t in answer.topics for p in t.partitions]
        assert states == [ReplicaState.FOUND]
        where = TopicPartition("t", answer.topics[0].partitions[0].partition_index)
        assert node.broker is not None
        partition = node.broker.replicas.lookup(*where)
        assert partition is not None
        await until(lambda: partition.leader is not None)
        assert (await client.produce(*where, batch_of(b"after"))).error_code == 0
        values = [r.value for r in records_in((await client.fetch(*where, 0)).records)]
        assert values == [b"before", b"after"]
        fail(node, path)
        await until(lambda: len(registered(node)) == 1)
        assert (await alter(client, DirectoryAction.ONLINE, path)).error_code == 0


async def test_a_replica_that_is_served_elsewhere_is_not_lost_with_its_old_copy(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 2).format()

    async with running(home) as node, connected(node) as client:
        used, other = home.directories
        await client.create_topic("t", 1)
        assert (await client.produce("t", 0, batch_of(b"kept"))).error_code == 0
        fail(node, other)
        await until(lambda: len(registered(node)) == 1)
        shutil.copytree(used / "t-0", other / "t-0")
        answer = await alter(client, DirectoryAction.ONLINE, other)
        assert (answer.error_code, answer.topics) == (0, [])
        (aside,) = other.glob("t-0*")
        assert aside.name.endswith("-stray")
        (kept,) = records_in((await client.fetch("t", 0, 0)).records)
        assert kept.value == b"kept"


async def test_a_replaced_directory_gets_a_new_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, 2).format()
    mounted = {str(home.directories[1])}
    monkeypatch.setattr(
        OsFileSystem, "mount_point", lambda self, path: path if path in mounted else "/"
    )

    async with running(home) as node, connected(node) as client:
        path = home.directories[1]
        before = registered(node)
        fail(node, path)
        await until(lambda: len(registered(node)) == 1)
        shutil.rmtree(path)
        refused = await alter(client, DirectoryAction.ONLINE, path)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "mount its disk" in str(refused.error_message)
        assert not path.exists()
        path.mkdir()
        mounted.clear()
        refused = await alter(client, DirectoryAction.ONLINE, path)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert f"no disk is mounted at {path}, as there was" in str(refused.error_message)
        assert not list(path.iterdir())
        mounted.add(str(path))
        answer = await alter(client, DirectoryAction.ONLINE, path)
        assert (answer.error_code, answer.was_formatted) == (0, True), answer
        assert answer.directory_id not in before
        assert answer.directory_id in registered(node)
        await client.create_topic("t", 2)
        assert len((await described(client))[str(path)].topics) == 1


async def test_an_empty_directory_in_place_of_the_only_replicas_is_refused_until_each_is_named(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 2).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 4)
        path = home.directories[1]
        await until(lambda: replicas_in(node, path) == 2)
        there = sorted(p.name for p in path.iterdir() if p.name.startswith("t-"))
        lost = [TopicPartition("t", int(name[2:])) for name in there]
        fail(node, path)
        await until(lambda: len(registered(node)) == 1)
        shutil.rmtree(path)
        path.mkdir()
        for accepted in ([], lost[:1]):
            refused = await alter(client, DirectoryAction.ONLINE, path, *accepted)
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            assert "--accept-loss" in str(refused.error_message)
            named = [p.partition_index for t in refused.topics for p in t.partitions]
            assert named == [where.partition for where in lost if where not in accepted]
            assert not list(path.iterdir())
        unknown = TopicPartition("t", 99)
        for accepted in ([unknown], [*lost, unknown]):
            refused = await alter(client, DirectoryAction.ONLINE, path, *accepted)
            assert refused.error_message == (
                f"t-99 would not be lost with {path}, but {lost[0]}, {lost[1]} would: leave "
                "out --accept-loss t-99"
            )
        assert not list(path.iterdir())
        answer = await alter(client, DirectoryAction.ONLINE, path, *lost)
        assert (answer.error_code, answer.was_formatted) == (0, True), answer
        states = [p.state for t in answer.topics for p in t.partitions]
        assert states == [ReplicaState.CREATED_EMPTY] * 2
        await until(lambda: all(_leads(node, where) for where in lost))


async def test_the_only_replica_of_a_directory_replaced_before_the_start_waits_for_its_name(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 2).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 2)
        await until(lambda: replicas_in(node, home.directories[1]) == 1)
    (lost,) = (p.name for p in home.directories[1].iterdir() if p.name.startswith("t-"))
    shutil.rmtree(home.directories[1])
    home.format("--ignore-formatted")
    async with running(home) as node, connected(node) as client:
        where = TopicPartition("t", int(lost[2:]))
        assert node.broker is not None
        assert node.broker.replicas.lookup(*where) is None
        path = home.directories[1]
        other = await alter(client, DirectoryAction.ONLINE, path, TopicPartition("t", 7))
        assert "t-7 is not a lost replica" in str(other.error_message)
        asked = await alter(client, DirectoryAction.ONLINE, path)
        assert [t.partitions[0].partition_index for t in asked.topics] == [where.partition]
        answer = await alter(client, DirectoryAction.ONLINE, path, where)
        assert answer.error_code == 0, answer
        await until(lambda: _leads(node, where))


def _leads(node: Node, where: TopicPartition) -> bool:
    assert node.broker is not None
    partition = node.broker.replicas.lookup(*where)
    return partition is not None and partition.leader is not None


async def test_two_commands_at_once_are_carried_out_one_after_the_other(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()

    async with running(home) as node, connected(node) as one, connected(node) as two:
        paths = [tmp_path / "a", tmp_path / "b"]
        answers = await asyncio.gather(add(one, paths[0]), add(two, paths[1]))
        assert [answer.error_code for answer in answers] == [0, 0]
        assert len(registered(node)) == 3
        same = await asyncio.gather(add(one, tmp_path / "c"), add(two, tmp_path / "c"))
        assert sorted(a.error_code for a in same) == [0, ErrorCode.INVALID_REQUEST]


async def test_a_directory_that_fails_while_it_is_added_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()
    locked = tmp_path / "locked"
    locked.mkdir()
    (locked / "meta.properties").mkdir()

    async with running(home) as node, connected(node) as client:
        answer = await add(client, locked)
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert str(locked) in answer.error_message
        assert len(registered(node)) == 1
        (locked / "meta.properties").rmdir()
        assert (await add(client, locked)).error_code == 0


async def test_a_stop_gives_up_a_change_that_waits_for_the_controller(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()

    async with running(home) as node:
        assert node.broker is not None
        changes = node.broker.directory_changes
        held = node.broker.mover.lock
        await held.acquire()
        added = tmp_path / "a"
        task = asyncio.ensure_future(changes.change(DirectoryAction.ADD, str(added)))
        await until(lambda: len(registered(node)) == 2)
        await node.stop()
        with pytest.raises(ApiError, match="starting or stopping"):
            await task
        held.release()
    # The controller keeps a broker among the replicas that may lead only if all were closed.
    epochs = {
        read_clean_shutdown(OsFileSystem(), path) for path in map(str, (*home.directories, added))
    }
    assert len(epochs) == 1
    assert None not in epochs
    async with running(home) as node:
        assert len(registered(node)) == 2


async def test_a_damaged_memory_of_the_directories_ends_the_start(tmp_path: Path) -> None:
    home = Home(tmp_path, 1).format()
    (home.directories[0] / "spindle-log-dirs.json").write_text('{"version": 2}')

    with pytest.raises(ConfigError, match=r"spindle-log-dirs\.json cannot be read"):
        async with running(home):
            pass


async def test_a_late_report_of_a_failure_leaves_no_partition_without_a_leader(
    tmp_path: Path,
) -> None:
    home = Home(tmp_path, 2).format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 2)
        assert node.broker is not None
        assert node.controller is not None
        directory = node.broker.replicas.directory_at(str(home.directories[1]))
        assert directory is not None
        before, own = registered(node), node.publisher.image.cluster.brokers[1]
        late = BrokerHeartbeatRequest(
            broker_id=1,
            broker_epoch=own.epoch,
            current_metadata_offset=node.broker.metadata.offset,
            offline_log_dirs=[directory.directory_id],
        )
        assert (await node.controller.channel.request(late)).error_code == 0
        await until(lambda: registered(node) == before)

        def leaders() -> list[int]:
            partitions = node.publisher.image.topics.by_name["t"].partitions
            return [partition.leader for partition in partitions.values()]

        await until(lambda: leaders() == [1, 1])


async def test_a_directory_that_fails_while_it_is_announced_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, 1).format()

    async with running(home) as node, connected(node) as client:
        assert node.broker is not None
        changes, lifecycle = node.broker.directory_changes, node.broker.lifecycle
        register_again = lifecycle.register_again

        def fail_first(recovered: bytes | None = None) -> None:
            assert changes.joining is not None
            changes.joining.executor.fail(OSError(5, "Input/output error"))
            register_again(recovered)

        monkeypatch.setattr(lifecycle, "register_again", fail_first)
        answer = await add(client, tmp_path / "a")
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        monkeypatch.setattr(lifecycle, "register_again", register_again)
        assert (await add(client, tmp_path / "b")).error_code == 0
