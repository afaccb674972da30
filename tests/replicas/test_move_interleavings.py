"""Moves between directories while disks hang and fail in the middle of a swap."""

import asyncio

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, batch, values
from moving_broker import (
    BROKER,
    Disks,
    HangingExecutor,
    LateExecutor,
    MovingBroker,
    new_cluster,
)

from spindle.common.errors import ErrorCode
from spindle.replicas.moves.move import Move, MoveEvent, MoveState

A, B = (directory_of(BROKER, number) for number in range(2))
IN_THE_SWAP = [
    (0, "rename_to_replaced"),
    (1, "_promote"),
    (0, "state_for_copy"),
    (1, "_adopt_state"),
]


async def hanging(disk: int, function: str) -> tuple[MovingBroker, HangingExecutor]:
    """Return a broker whose swap hangs at a function of one disk."""
    broker = await MovingBroker(Disks(), new_cluster(3), 3, executor=HangingExecutor).start()
    await broker.fill()
    executor = broker.directories[disk].executor
    assert isinstance(executor, HangingExecutor)
    executor.hangs_at = function
    assert await broker.begin() == ErrorCode.NONE
    await broker.until(lambda: bool(executor.waiting))
    return broker, executor


@pytest.mark.parametrize(("disk", "function"), [*IN_THE_SWAP, (1, "create_future")])
async def test_while_a_disk_hangs_in_a_move_other_replicas_follow_the_metadata(
    disk: int, function: str
) -> None:
    broker = MovingBroker(Disks(), new_cluster(3), 3, executor=HangingExecutor)
    await broker.start()
    expected = await broker.fill()
    executor = broker.directories[disk].executor
    assert isinstance(executor, HangingExecutor)
    executor.hangs_at = function
    begin = asyncio.create_task(broker.begin())
    await broker.until(lambda: bool(executor.waiting))
    broker.cluster.create("payments", [BROKER], directories=[[directory_of(BROKER, 2)]])
    await broker.follow_metadata()
    other = broker.replicas.lookup("payments", 0)
    assert other is not None
    assert other.leader is not None
    executor.release()
    assert await begin == ErrorCode.NONE
    await broker.until_moved()
    assert values(broker.partition.log) == expected


async def test_metadata_changes_during_a_swap_are_applied_afterwards() -> None:
    broker, executor = await hanging(0, "rename_to_replaced")
    broker.cluster.change("orders", leader=BROKER)
    epoch = broker.cluster.image.topics.by_name["orders"].partitions[0].leader_epoch
    await broker.follow_metadata()
    assert broker.partition.leader_epoch < epoch
    executor.release()
    await broker.until(lambda: broker.partition.leader_epoch == epoch)
    assert broker.partition.directory is broker.directories[1]
    await broker.append("on")


async def test_a_topic_that_is_deleted_in_a_swap_leaves_no_log_behind() -> None:
    broker, executor = await hanging(1, "_promote")
    broker.cluster.delete("orders")
    await broker.follow_metadata()
    assert len(broker.replicas) == 1
    executor.release()
    await broker.until(lambda: len(broker.replicas) == 0 and not broker.mover.is_busy)
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], ["orders-0-delete"])
    assert [directory.log_count for directory in broker.directories] == [0, 0, 0]


async def test_another_target_named_in_a_swap_begins_the_next_move() -> None:
    broker, executor = await hanging(0, "rename_to_replaced")
    again = asyncio.create_task(broker.begin(2))
    for _ in range(50):
        await asyncio.sleep(0)
    assert not again.done()
    executor.release()
    assert await again == ErrorCode.NONE
    await broker.until_moved(2)
    assert [directory.log_count for directory in broker.directories] == [0, 0, 1]


@pytest.mark.parametrize(("disk", "function"), IN_THE_SWAP)
async def test_a_disk_that_never_answers_in_a_swap_ends_the_move(disk: int, function: str) -> None:
    broker, executor = await hanging(disk, function)
    held = asyncio.create_task(broker.append("held"))
    executor.give_up()
    await broker.until(lambda: not broker.mover.is_busy and not len(broker.replicas.moves))
    assert broker.partition.directory is broker.directories[0]
    await broker.until(held.done)
    if disk == 1:
        assert held.exception() is None
        assert broker.names(0) == ["orders-0"]
        assert [offset for offset, _ in values(broker.partition.log)] == list(range(13))
    else:
        assert held.exception() is not None
    await broker.until(
        lambda: broker.cluster.image.topics.by_name["orders"].partitions[0].directories[0] == A
    )
    assert [directory.log_count for directory in broker.directories] == [1, 0, 0]


async def test_a_source_that_fails_after_it_gave_up_the_name_does_not_stop_the_swap() -> None:
    broker, executor = await hanging(1, "_promote")
    assert broker.move.course.state is MoveState.PROMOTING
    broker.directories[0].executor.fail("pulled out")
    await broker.until(lambda: broker.directories[0].is_offline)
    executor.release()
    await broker.until(lambda: not broker.mover.is_busy)
    assert broker.partition.directory is broker.directories[1]
    assert [offset for offset, _ in values(broker.partition.log)] == list(range(12))
    assert (await broker.append("on")).first_offset == 12
    assert [directory.log_count for directory in broker.directories] == [0, 1, 0]
    assert broker.replicas.moves.done == 1
    assert broker.assigned == [B]


async def test_a_target_that_fails_while_the_current_log_gives_up_its_name_is_not_promoted() -> (
    None
):
    broker, executor = await hanging(0, "rename_to_replaced")
    broker.directories[1].executor.fail("pulled out")
    await broker.until(lambda: not len(broker.replicas.moves))
    executor.release()
    await broker.until(lambda: not broker.mover.is_busy)
    assert broker.names(0) == ["orders-0"]
    assert (await broker.append("on")).first_offset == 12
    assert [directory.log_count for directory in broker.directories] == [1, 0, 0]


async def test_moves_that_wait_for_their_turn_go_in_the_order_of_their_names() -> None:
    cluster = new_cluster()
    for name in ("apples", "pears", "quinces"):
        cluster.create(name, [BROKER], directories=[[A]])
    broker = MovingBroker(Disks(), cluster, executor=LateExecutor, moves_at_once=1)
    await broker.start()
    broker.quota.limit_bytes_per_s = -1
    ended: list[str] = []
    for name in ("quinces", "pears", "apples", "orders"):
        partition = broker.replicas.lookup(name, 0)
        assert partition is not None
        partition.log.append_as_leader(bytearray(batch(name)), 0, NOW_MS)
        code = await broker.mover.alter(partition, broker.directories[1])
        assert code == ErrorCode.NONE
    seen = broker.replicas.moves.on_change

    def noted(move: Move) -> None:
        if move.course.state is MoveState.ASSIGNING:
            ended.append(move.partition.topic_partition.topic)
            broker.replicas.moves.apply(move, MoveEvent.CANCEL)
        seen(move)

    broker.replicas.moves.on_change = noted
    broker.quota.limit_bytes_per_s = 10**9
    await broker.until(lambda: not len(broker.replicas.moves) and not broker.mover.is_busy)
    assert ended == ["quinces", "apples", "orders", "pears"]


async def test_a_change_that_is_dropped_with_its_loop_awaits_nothing_more() -> None:
    broker = await MovingBroker(Disks(), new_cluster(3), 3).start()

    async def change() -> None:
        async with broker.mover.alone(broker.partition):
            await asyncio.get_running_loop().create_future()

    dropped = change()
    dropped.send(None)
    async with broker.mover.lock:
        # A coroutine that waits for the lock in spite of this raises RuntimeError.
        dropped.close()
    await broker.stop()


async def test_a_replica_follows_the_metadata_after_the_client_that_moved_it_is_gone() -> None:
    broker = MovingBroker(Disks(), new_cluster(3), 3, executor=HangingExecutor)
    await broker.start()
    executor = broker.directories[1].executor
    assert isinstance(executor, HangingExecutor)
    executor.hangs_at = "create_future"
    request = asyncio.create_task(broker.begin())
    await broker.until(lambda: bool(executor.waiting))
    async with broker.mover.lock:
        executor.release()
        for _ in range(20):  # until the change waits for the lock
            await asyncio.sleep(0)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)
    broker.cluster.delete("orders")
    await broker.follow_metadata()
    await broker.until(lambda: broker.replicas.lookup("orders", 0) is None)
    await broker.stop()
