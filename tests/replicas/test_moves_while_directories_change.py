"""Moves that begin or end while directories are removed, fail, and come back."""

import asyncio
from contextlib import nullcontext
from typing import cast

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, values
from moving_broker import (
    BROKER,
    WHERE,
    Disks,
    HangingExecutor,
    MovingBroker,
    new_cluster,
)

from spindle.common.errors import ErrorCode
from spindle.disks.alter_disks import DirectoryInUse, ReplicaState
from spindle.disks.directory_store import DirectoryStore
from spindle.disks.log_directory import LogDirectory
from spindle.replicas.moves.move import MoveState
from spindle.runtime.broker.affected_replicas import AffectedReplicas
from spindle.runtime.broker.broker_metadata import BrokerMetadata


def affected(broker: MovingBroker) -> AffectedReplicas:
    return AffectedReplicas(BROKER, cast(BrokerMetadata, broker.view), broker.replicas)


async def beginning() -> tuple[MovingBroker, HangingExecutor, "asyncio.Task[ErrorCode]"]:
    """Return a broker whose move waits for the future log on a slow target."""
    broker = await MovingBroker(Disks(), new_cluster(3), 3, executor=HangingExecutor).start()
    await broker.fill()
    executor = broker.directories[1].executor
    assert isinstance(executor, HangingExecutor)
    executor.hangs_at = "create_future"
    begin = asyncio.create_task(broker.begin())
    await broker.until(lambda: bool(executor.waiting))
    return broker, executor, begin


async def check_nothing_moves(broker: MovingBroker) -> None:
    """Check that no move is left, nor what only a move needs."""
    await broker.until(lambda: not broker.mover.is_busy)
    await asyncio.sleep(0)
    assert not len(broker.replicas.moves)
    for directory in broker.directories:
        assert not directory.store.future_logs
        assert not any(log.is_moving for log in directory.store.logs.values())
    assert not [n for n in range(3) if "orders-0-future" in broker.names(n)]


async def test_a_directory_is_not_retired_while_a_move_into_it_begins() -> None:
    broker, executor, begin = await beginning()
    with pytest.raises(DirectoryInUse) as refused:
        affected(broker).check_empty(broker.directories[1])
    assert refused.value.replicas == {WHERE: ReplicaState.PRESENT}
    executor.release()
    assert await begin == ErrorCode.NONE
    await broker.until_moved()
    affected(broker).check_empty(broker.directories[0])
    await check_nothing_moves(broker)


async def test_a_move_that_waits_while_its_target_is_retired_does_not_begin() -> None:
    broker = await MovingBroker(Disks(), new_cluster(3), 3).start()
    target = broker.directories[1]
    async with broker.mover.alone(broker.partition):
        move = asyncio.create_task(broker.mover.alter(broker.partition, target))
        await asyncio.sleep(0)
        broker.replicas.remove_directory(target)
    assert await move == ErrorCode.LOG_DIR_NOT_FOUND
    await check_nothing_moves(broker)
    assert target.store.future_logs == {}


async def test_a_move_that_waits_while_its_target_is_re_admitted_goes_to_the_directory_of_now() -> (
    None
):
    broker = await MovingBroker(Disks(), new_cluster(3), 3).start()
    former = broker.directories[1]
    async with broker.mover.alone(broker.partition):
        move = asyncio.create_task(broker.mover.alter(broker.partition, former))
        await asyncio.sleep(0)
        former.executor.fail("pulled out")
        again = LogDirectory(
            former.path, former.directory_id, broker.directories[2].executor, former.store
        )
        broker.replicas.replace_directory(former, again)
    assert await move == ErrorCode.NONE
    await broker.until_moved()
    assert broker.partition.directory is again


async def test_a_replica_that_is_removed_while_its_move_begins_leaves_no_future_log() -> None:
    broker, executor, begin = await beginning()
    broker.replicas.remove_directory(broker.directories[0])
    executor.release()
    assert await begin == ErrorCode.REPLICA_NOT_AVAILABLE
    await broker.until(lambda: broker.names(1) != ["orders-0-future"])
    await check_nothing_moves(broker)


async def test_a_directory_that_fails_while_a_move_begins_leaves_no_future_log() -> None:
    broker, executor, begin = await beginning()
    broker.directories[2].executor.fail("pulled out")
    executor.release()
    assert await begin == ErrorCode.KAFKA_STORAGE_ERROR
    await broker.until(lambda: broker.names(1) != ["orders-0-future"])
    await check_nothing_moves(broker)


async def test_a_move_continues_although_its_client_has_disconnected() -> None:
    broker, executor, begin = await beginning()
    begin.cancel()
    await asyncio.gather(begin, return_exceptions=True)
    executor.release()
    await broker.until_moved()
    await check_nothing_moves(broker)


async def test_a_topic_made_again_while_a_move_of_the_first_one_begins_is_hosted_empty() -> None:
    broker, executor, begin = await beginning()
    broker.cluster.change("orders", leader=BROKER)
    await broker.follow_metadata()
    broker.cluster.delete("orders")
    await broker.follow_metadata()
    broker.cluster.create("orders", [BROKER], directories=[[directory_of(BROKER, 2)]])
    await broker.follow_metadata()
    executor.release()
    await begin
    await broker.until(lambda: broker.replicas.lookup(*WHERE) is not None)
    await check_nothing_moves(broker)
    assert broker.partition.topic_id == broker.cluster.image.topics.by_name["orders"].topic_id
    assert values(broker.partition.log) == []
    assert broker.names(2) == ["orders-0"]


async def test_the_logs_of_a_busy_replica_are_no_strays() -> None:
    broker = await MovingBroker(Disks(), new_cluster(3), 3).start()
    expected = await broker.fill()
    log, directory = broker.partition.log, broker.directories[0]
    async with broker.mover.alone(broker.partition):
        broker.replicas.remove_directory(directory)
        broker.replicas.directories.insert(0, directory)
        broker.replicas.add_loaded([log], directory)
        await broker.follow_metadata()
        assert broker.replicas.lookup(*WHERE) is None
    assert values(broker.partition.log) == expected
    assert broker.names(0) == ["orders-0"]


async def test_a_directory_is_removed_after_the_swaps_of_its_replicas() -> None:
    broker, executor, begin = await beginning()
    executor.release()
    assert await begin == ErrorCode.NONE
    executor.hangs_at = "_promote"
    await broker.until(lambda: bool(executor.waiting))
    held: list[str] = []

    async def release() -> None:
        async with broker.mover.lock_directory(broker.directories[0]):
            held.append("held")

    waiting = asyncio.create_task(release())
    for _ in range(50):
        await asyncio.sleep(0)
    assert held == []
    executor.release()
    await waiting
    assert broker.partition.directory is broker.directories[1]
    await check_nothing_moves(broker)


async def test_a_directory_with_the_only_log_of_an_offline_replica_is_not_retired() -> None:
    before = await MovingBroker(Disks(), new_cluster(3), 3).start()
    await before.fill()
    before.directories[0].store.rename_to_replaced(
        before.partition.log, f"/x/orders-0.{1:032x}-future"
    )
    before.record(directory_of(BROKER, 1))
    broker = MovingBroker(before.disks, before.cluster, 3)
    broker.directories[1].executor.fail("dead")
    await broker.start()
    with pytest.raises(DirectoryInUse, match="only log of 1 offline replica") as refused:
        affected(broker).check_empty(broker.directories[0])
    assert refused.value.replicas == {WHERE: ReplicaState.OFFLINE}
    affected(broker).check_empty(broker.directories[2])


async def test_a_move_whose_source_failed_continues_when_the_source_is_re_admitted() -> None:
    broker = await MovingBroker(Disks(), new_cluster()).start()
    expected = await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    source = broker.directories[0]
    source.executor.fail("pulled out")
    await broker.until(lambda: not broker.mover.is_busy)
    assert broker.names(1) == ["orders-0-future"]
    await broker.follow_metadata()
    assert broker.names(1) == ["orders-0-future"]
    broker.is_deaf = False
    await broker.bring_online(0)
    await broker.until_moved()
    assert values(broker.partition.log) == expected
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], ["orders-0"])


@pytest.mark.parametrize("is_same_topic", [True, False])
async def test_a_log_of_a_deleted_topic_does_not_count_as_the_lost_log_of_its_name(
    is_same_topic: bool,
) -> None:
    broker = await MovingBroker(Disks(), new_cluster(2)).start()
    failed = broker.partition.directory
    topic_id = broker.partition.topic_id if is_same_topic else b"o" * 16
    failed.executor.fail("dead")
    recovered = DirectoryStore(Disks(), "/disk9")
    recovered.storage.file_system.make_directories("/disk9")
    log = recovered.create(WHERE, topic_id, broker.config, NOW_MS)
    expected = nullcontext() if is_same_topic else pytest.raises(DirectoryInUse)
    with expected:
        affected(broker).check_losses(failed, failed.directory_id, [log], ())
