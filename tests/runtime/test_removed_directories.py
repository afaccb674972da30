"""Log directories that a running node uses no longer: empty ones, and ones whose disk is dead."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
from cluster_harness import (
    COMBINED,
    cluster_homes,
    create_replicated_topic,
    in_sync,
    running_cluster,
)
from directory_harness import (
    add,
    alter,
    delete_topic,
    described,
    fail,
    log_dirs,
    registered,
    replicas_in,
)
from node_harness import Home, batch_of, connected, running
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.disks.alter_disks import DirectoryAction, ReplicaState


async def test_a_directory_is_retired_when_it_is_empty(tmp_path: Path) -> None:
    home = Home(tmp_path, 3).format()
    first, second, _ = home.directories

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 3)
        in_use = await alter(client, DirectoryAction.REMOVE, second)
        assert in_use.error_code == ErrorCode.INVALID_REQUEST
        assert f"{second} has 1 replica; move them" in in_use.error_message
        assert [p.state for t in in_use.topics for p in t.partitions] == [ReplicaState.PRESENT]
        metadata = await alter(client, DirectoryAction.REMOVE, first)
        assert "holds the metadata log" in metadata.error_message
        absent = await alter(client, DirectoryAction.REMOVE, tmp_path / "absent")
        assert absent.error_code == ErrorCode.LOG_DIR_NOT_FOUND
        assert (await add(client, tmp_path / "new")).error_code == 0
        gone = await alter(client, DirectoryAction.REMOVE, tmp_path / "new")
        assert gone.error_code == 0, gone
        assert len(registered(node)) == 3
        assert await log_dirs(client) == [str(d) for d in home.directories]
        assert not (tmp_path / "new" / ".lock").exists()
        assert (await add(client, tmp_path / "new")).error_code == 0


async def test_a_retired_directory_of_the_property_file_stays_retired(tmp_path: Path) -> None:
    home = Home(tmp_path, 2).format()
    first, second = home.directories
    file = first / "spindle-log-dirs.json"

    async with running(home) as node, connected(node) as client:
        assert (await alter(client, DirectoryAction.REMOVE, second)).error_code == 0
        assert json.loads(file.read_text())["retired"] == [str(second)]
    async with running(home) as node, connected(node) as client:
        assert list(await described(client)) == [str(first)]
        assert len(registered(node)) == 1
        assert (await add(client, second)).was_formatted is False
        assert json.loads(file.read_text()) == {"version": 1, "added": [], "retired": []}


async def test_a_dead_directory_is_retired_unless_it_has_the_only_replica(tmp_path: Path) -> None:
    home = Home(tmp_path, 3).format()
    _, path, other = home.directories

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 3)
        await until(lambda: replicas_in(node, path) > 0)
        fail(node, path)
        refused = await alter(client, DirectoryAction.REMOVE, path)
        assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert "has the only replica of 1 partition; bring it back online" in refused.error_message
        assert [p.state for t in refused.topics for p in t.partitions] == [ReplicaState.OFFLINE]
        assert (await alter(client, DirectoryAction.ONLINE, path)).error_code == 0
        await delete_topic(client, "t")
        fail(node, path)
        answer = await alter(client, DirectoryAction.REMOVE, path)
        assert (answer.error_code, answer.topics) == (0, []), answer
        assert len(registered(node)) == 2
        assert str(path) not in await described(client)
        # Nothing is offline any more: a replica that is missing is created.
        await client.create_topic("t", 2)
        await until(lambda: replicas_in(node, other) > 0)
    async with running(home) as node, connected(node) as client:
        assert str(path) not in await described(client)


async def test_a_retired_directory_is_not_reported_as_offline_when_its_disk_is_added_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path, 2).format()
    path = home.directories[1]

    async with running(home) as node, connected(node) as client:
        assert node.broker is not None
        forgotten: list[bytes | None] = []
        lifecycle = node.broker.lifecycle
        register_again = lifecycle.register_again

        def noting(recovered: bytes | None = None) -> None:
            forgotten.append(recovered)
            register_again(recovered)

        monkeypatch.setattr(lifecycle, "register_again", noting)
        fail(node, path)
        answer = await alter(client, DirectoryAction.REMOVE, path)
        assert forgotten == [answer.directory_id]
        added = await add(client, path)
        assert (added.error_code, added.directory_id) == (0, answer.directory_id)
        assert len(registered(node)) == 2


async def test_a_directory_that_was_dead_at_the_start_is_retired(tmp_path: Path) -> None:
    home = Home(tmp_path, 2).format()
    path = home.directories[1]

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 2)
        await until(lambda: replicas_in(node, path) > 0)
    shutil.rmtree(path)
    path.write_text("no directory")
    async with running(home) as node, connected(node) as client:
        refused = await alter(client, DirectoryAction.REMOVE, path)
        assert "has the only replica of 1 partition; bring it back online" in refused.error_message
        await delete_topic(client, "t")
        assert (await alter(client, DirectoryAction.REMOVE, path)).error_code == 0
        assert list(await described(client)) == [str(home.directories[0])]


async def test_a_directory_is_not_retired_while_a_replica_moves_there(tmp_path: Path) -> None:
    home = Home(tmp_path, 3, replica_alter_log_dirs_io_max_bytes_per_second="1").format()

    async with running(home) as node, connected(node) as client:
        await client.create_topic("t", 1)
        for _ in range(3):
            await client.produce("t", 0, batch_of(bytes(100_000)))
        assert node.broker is not None
        partition = node.broker.replicas.lookup("t", 0)
        assert partition is not None
        _, *others = node.broker.replicas.directories
        target = next(directory for directory in others if directory is not partition.directory)
        assert await node.broker.mover.alter(partition, target) == ErrorCode.NONE
        answer = await alter(client, DirectoryAction.REMOVE, target.path)
        assert "has 1 replica; move them" in answer.error_message


async def test_a_dead_directory_is_retired_after_the_controller_knows_its_replicas(
    tmp_path: Path,
) -> None:
    """Otherwise the leader in it would go on with an empty log."""
    homes = cluster_homes(tmp_path, [COMBINED] * 3)

    async with running_cluster(homes) as nodes:
        victim = nodes[1]
        assert victim.broker is not None
        path = homes[1].directories[1]
        await victim.broker.directory_reports.stop()
        await create_replicated_topic(victim, "t", 6)
        await until(lambda: replicas_in(victim, path) > 0)
        fail(victim, path)
        await until(lambda: len(registered(nodes[0], 2)) == 1)
        change = victim.broker.directory_changes.change(DirectoryAction.REMOVE, str(path))
        task = asyncio.ensure_future(change)
        async with connected(victim) as client:
            for _ in range(20):  # meanwhile it would be removed
                await described(client)
        assert not task.done()
        victim.broker.directory_reports.start()
        assert set((await task).replicas.values()) == {ReplicaState.CREATED}
        await until(lambda: in_sync(nodes[0]))
