"""Starts of a broker that find the copy of a move, and what became of the current log."""

from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, batch, values
from moving_broker import BROKER, WHERE, Disks, MovingBroker, new_cluster

from spindle.authorization.authorizer import NoAuthorizer
from spindle.common.uuids import DIRECTORY_LOST
from spindle.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from spindle.replicas.moves.move import MoveState
from spindle.serving.handlers.log_dirs import describe_log_dirs

A, B = (directory_of(BROKER, number) for number in range(2))
OTHER = 2


def after(before: MovingBroker) -> MovingBroker:
    """Return the next life of a broker; the controller records nothing by itself."""
    broker = MovingBroker(before.disks, before.cluster, uuids=count(10**6))
    broker.is_deaf = True
    return broker


async def caught_up(replicas: tuple[int, ...] = (BROKER,)) -> MovingBroker:
    """Return a broker that died when its copy was recorded, and lacked the last record."""
    broker = await MovingBroker(Disks(), new_cluster(2, replicas)).start()
    for number in range(12):
        broker.partition.log.append_as_leader(bytearray(batch(f"{number:200}")), 0, NOW_MS)
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    await broker.stop()
    broker.partition.log.append_as_leader(bytearray(batch("last")), 0, NOW_MS)
    broker.record(B)
    return broker


async def described(broker: MovingBroker) -> list[tuple[str, int, list[tuple[bool, int]]]]:
    """Return what DescribeLogDirs tells: directories, errors, and the kind and lag of each log."""
    services: Any = SimpleNamespace(replicas=broker.replicas, authorizer=NoAuthorizer())
    context: Any = None
    answer = await describe_log_dirs(services, context, DescribeLogDirsRequest(topics=None))
    return [
        (
            result.log_dir,
            result.error_code,
            [(p.is_future_key, p.offset_lag) for t in result.topics for p in t.partitions],
        )
        for result in answer.results
    ]


def lose(broker: MovingBroker, path: str) -> None:
    """Replace a disk by an empty one."""
    for name in broker.disks.list_directory(path):
        lost_path = f"{path}/{name}"
        if broker.disks.is_directory(lost_path):
            broker.disks.remove_tree(lost_path)
        else:
            broker.disks.remove(lost_path)


async def test_a_copy_takes_the_place_of_an_offline_log_once_nobody_counts_on_it() -> None:
    broker = after(await caught_up((OTHER, BROKER)))
    broker.directories[0].executor.fail("dead")
    await broker.start()
    assert broker.replicas.lookup(*WHERE) is None
    assert broker.assigned == [DIRECTORY_LOST]
    broker.cluster.change("orders", isr=[OTHER])
    broker.record(DIRECTORY_LOST)
    await broker.follow_metadata()
    assert broker.assigned == [DIRECTORY_LOST, B]
    assert broker.partition in broker.fetching.followed
    assert (broker.names(1), broker.partition.log.log_end_offset) == (["orders-0"], 12)


async def test_a_copy_of_the_only_replica_waits_for_the_offline_directory() -> None:
    broker = after(await caught_up())
    broker.directories[0].executor.fail("dead")
    await broker.start()
    broker.cluster.change("orders", isr=[], leader=-1, eligible_leader_replicas=[BROKER])
    broker.record(DIRECTORY_LOST)
    await broker.follow_metadata()
    assert broker.replicas.lookup(*WHERE) is None
    assert broker.assigned == [DIRECTORY_LOST]
    assert await described(broker) == [("/disk0", 56, []), ("/disk1", 0, [(True, -1)])]
    again = await after(broker).start()
    assert len(values(again.partition.log)) == 13
    await again.stop()


async def test_a_copy_of_the_only_replica_takes_the_place_of_a_log_whose_disk_was_replaced() -> (
    None
):
    before = await caught_up()
    lose(before, "/disk0")
    broker = await after(before).start()
    assert len(values(broker.partition.log)) == 12


async def test_an_in_sync_replica_whose_disk_was_replaced_does_not_lead_with_its_copy() -> None:
    before = await caught_up((BROKER, OTHER))
    lose(before, "/disk0")
    broker = await after(before).start()
    assert broker.replicas.lookup(*WHERE) is None
    assert broker.assigned == [DIRECTORY_LOST]


async def test_a_swap_between_its_renames_is_finished_for_an_in_sync_replica() -> None:
    before = await caught_up((BROKER, OTHER))
    before.move.future.append_as_follower(before.move.current.read(12, 1000, 13).records, 0, NOW_MS)
    before.directories[0].store.rename_to_replaced(before.move.current, before.move.future.path)
    broker = await after(before).start()
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], ["orders-0"])
    assert len(values(broker.partition.log)) == 13


async def test_the_longer_one_of_two_current_logs_is_kept_and_the_other_put_aside() -> None:
    before = await caught_up()
    before.directories[1].store.promote_future(WHERE)
    broker = await after(before).start()
    assert broker.partition.directory is broker.directories[0]
    assert len(values(broker.partition.log)) == 13
    assert (broker.names(0), broker.names(1)) == (["orders-0"], ["orders-0-stray"])
    assert broker.assigned == [A]


async def test_the_recorded_one_of_two_equal_logs_is_kept() -> None:
    before = await caught_up()
    before.partition.log.truncate_to(12)
    before.directories[1].store.promote_future(WHERE)
    broker = await after(before).start()
    assert broker.partition.directory is broker.directories[1]
    assert (broker.names(0), broker.names(1)) == (["orders-0-stray"], ["orders-0"])


async def test_the_current_log_with_the_later_epoch_is_kept() -> None:
    before = await caught_up()
    future = before.directories[1].store.promote_future(WHERE)
    future.truncate_to(5)
    future.append_as_leader(bytearray(batch("of a later leader")), 7, NOW_MS)
    broker = await after(before).start()
    assert broker.partition.directory is broker.directories[1]


# -- a swap that was cut short between its renames, and the target does not come back


async def cut_short(replicas: tuple[int, ...] = (BROKER,)) -> MovingBroker:
    """Return a broker that died between the two renames of a swap."""
    broker = await caught_up(replicas)
    broker.move.future.append_as_follower(broker.move.current.read(12, 1000, 13).records, 0, NOW_MS)
    broker.directories[0].store.rename_to_replaced(broker.move.current, broker.move.future.path)
    return broker


async def without_target(before: MovingBroker) -> MovingBroker:
    """Start without the target's disk; let the deletion delay pass."""
    broker = after(before)
    broker.directories[1].executor.fail("dead")
    await broker.start()
    await broker.follow_metadata()
    broker.expire()
    return broker


async def test_a_source_is_kept_over_starts_without_the_target_whose_copy_was_not_promoted() -> (
    None
):
    broker = await cut_short()
    for _ in range(3):
        broker = await without_target(broker)
        assert broker.replicas.lookup(*WHERE) is None
        assert broker.names(0) == ["orders-0-delete"]
    again = await after(broker).start()
    assert (again.names(0), again.names(1)) == (["orders-0-delete"], ["orders-0"])
    assert len(values(again.partition.log)) == 13
    again.expire()
    assert (again.names(0), again.names(1)) == ([], ["orders-0"])


async def test_a_source_whose_copy_was_promoted_is_kept_while_the_copy_is_not_seen() -> None:
    before = await cut_short()
    before.directories[1].store.promote_future(WHERE)
    broker = await without_target(before)
    assert (broker.replicas.lookup(*WHERE), broker.names(0)) == (None, ["orders-0-delete"])
    again = await after(broker).start()
    again.expire()
    assert (again.names(0), again.names(1)) == ([], ["orders-0"])


async def test_a_source_is_kept_when_the_target_dies_before_the_source_is_removed() -> None:
    before = await cut_short()
    before.directories[1].store.promote_future(WHERE)
    broker = await after(before).start()
    broker.directories[1].executor.fail("dead")
    broker.replicas.on_directory_failed(broker.directories[1])
    broker.expire()
    assert broker.names(0) == ["orders-0-delete"]
    await broker.stop()
    lose(broker, "/disk1")
    broker.record(directory_of(BROKER, 9))
    again = after(broker)
    again.replicas.accept_losses([WHERE])
    await again.start()
    assert len(values(again.partition.log)) == 13


async def test_a_swap_is_finished_when_the_source_is_back_after_a_start_without_it() -> None:
    before = await cut_short((BROKER, OTHER))
    broker = after(before)
    broker.directories[0].executor.fail("dead")
    await broker.start()
    assert (broker.replicas.lookup(*WHERE), broker.assigned) == (None, [DIRECTORY_LOST])
    broker.record(DIRECTORY_LOST)
    again = await after(broker).start()
    assert (again.names(0), again.names(1)) == (["orders-0-delete"], ["orders-0"])
    assert len(values(again.partition.log)) == 13


async def test_a_source_is_kept_until_the_replica_that_took_its_place_is_in_sync() -> None:
    before = await cut_short((OTHER, BROKER))
    before.cluster.change("orders", isr=[OTHER])
    broker = await after(before).start()
    broker.expire()
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], ["orders-0"])
    broker.cluster.change("orders", isr=[OTHER, BROKER])
    await broker.follow_metadata()
    broker.expire()
    assert broker.names(0) == []


async def test_a_source_is_put_back_when_the_disk_with_its_copy_was_replaced() -> None:
    before = await cut_short((OTHER, BROKER))
    before.cluster.change("orders", isr=[OTHER])
    lose(before, "/disk1")
    before.record(directory_of(BROKER, 9))
    broker = await after(before).start()
    assert (broker.names(0), broker.names(1)) == (["orders-0"], [])
    assert len(values(broker.partition.log)) == 13
    assert broker.assigned == [A]


async def test_a_copy_is_not_whole_any_more_once_its_source_was_put_back() -> None:
    before = await cut_short((OTHER, BROKER))
    before.cluster.change("orders", isr=[OTHER])
    broker = MovingBroker(before.disks, before.cluster, 1, uuids=count(10**6))
    await broker.start()
    assert broker.partition.directory is broker.directories[0]
    returned = after(before).directories[1]
    returned.store.load(lambda _: broker.config, NOW_MS)
    broker.replicas.futures.add(returned)
    assert len(broker.replicas.futures.of(WHERE, broker.partition.topic_id)) == 1
    assert not broker.replicas.futures.has_whole(WHERE, broker.partition.topic_id)


async def test_a_replica_whose_source_is_damaged_stays_offline_and_the_source_is_kept() -> None:
    before = await cut_short((OTHER, BROKER))
    before.cluster.change("orders", isr=[OTHER])
    lose(before, "/disk1")
    before.record(directory_of(BROKER, 9))
    source = next(n for n in before.disks.list_directory("/disk0") if "orders" in n)
    epochs = f"/disk0/{source}/leader-epoch-checkpoint"
    whole = before.disks.read_bytes(epochs)
    before.disks.write_atomically(epochs, b"damaged")
    broker = await after(before).start()
    broker.expire()
    assert broker.replicas.lookup(*WHERE) is None
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], [])
    assert not broker.directories[0].is_offline
    broker.disks.write_atomically(epochs, whole)
    await broker.follow_metadata()
    assert len(values(broker.partition.log)) == 13


async def moved(*, is_cleaned_up: bool) -> MovingBroker:
    """Return a broker whose replica was just moved when the target died."""
    broker = await MovingBroker(Disks(), new_cluster()).start()
    await broker.fill()
    await broker.begin()
    target = broker.directories[1]
    await broker.until(lambda: broker.partition.directory is target)
    if is_cleaned_up:
        await broker.until_moved()
    target.executor.fail("dead")
    broker.replicas.on_directory_failed(target)
    await broker.until(lambda: not broker.mover.is_busy)
    await broker.follow_metadata()
    broker.expire()
    return broker


@pytest.mark.parametrize("is_cleaned_up", [False, True])
@pytest.mark.parametrize("is_killed", [False, True])
async def test_a_source_is_kept_and_put_back_when_the_target_dies_right_after_the_swap(
    is_cleaned_up: bool, is_killed: bool
) -> None:
    broker = await moved(is_cleaned_up=is_cleaned_up)
    assert broker.names(0) == ["orders-0-delete"]
    lose(broker, "/disk1")
    broker.record(directory_of(BROKER, 9))
    if is_killed:
        await broker.stop()
        broker = after(broker)
    broker.replicas.accept_losses([WHERE])
    if is_killed:
        await broker.start()
    else:
        await broker.bring_online(1)
    assert (broker.names(0), broker.names(1)) == (["orders-0"], [])
    assert len(values(broker.partition.log)) == 12
    broker.expire()
    assert broker.partition.log.high_watermark == 12
    assert len(values(broker.partition.log)) == 12


async def test_a_source_without_a_topic_id_is_kept_until_another_replica_has_its_records(
    caplog: pytest.LogCaptureFixture,
) -> None:
    before = await cut_short((BROKER, OTHER))
    lose(before, "/disk1")
    source = next(n for n in before.disks.list_directory("/disk0") if "orders" in n)
    before.disks.open(f"/disk0/{source}/partition.metadata").truncate(0)
    before.record(directory_of(BROKER, 9))
    before.cluster.change("orders", isr=[BROKER])
    broker = after(before)
    broker.cluster.change("orders", isr=[OTHER], leader=OTHER)
    await broker.start()
    assert broker.partition.log.log_end_offset == 0
    broker.record(broker.partition.directory.directory_id)
    broker.cluster.change("orders", isr=[BROKER], leader=BROKER)
    await broker.follow_metadata()
    broker.expire()
    assert source in broker.disks.list_directory("/disk0")
    assert "but its topic id is lost, so it is not put back" in caplog.text
    broker.cluster.change("orders", isr=[BROKER, OTHER])
    await broker.follow_metadata()
    broker.expire()
    assert source not in broker.disks.list_directory("/disk0")


async def test_a_future_log_without_a_topic_id_belongs_to_the_replica_recorded_there() -> None:
    before = await caught_up()
    file = f"{before.move.future.path}/partition.metadata"
    content = before.disks.read_bytes(file)
    before.disks.open(file).truncate(0)
    broker = after(before)
    broker.directories[0].executor.fail("dead")
    await broker.start()
    broker.expire()
    assert broker.names(1) == ["orders-0-future"]
    lose(broker, "/disk0")
    again = await after(broker).start()
    assert (again.names(0), again.names(1)) == ([], ["orders-0"])
    assert len(values(again.partition.log)) == 12
    assert again.disks.read_bytes("/disk1/orders-0/partition.metadata") == content


async def test_a_source_of_a_replica_that_was_reassigned_meanwhile_is_removed() -> None:
    before = await cut_short()
    before.cluster.change("orders", replicas=[OTHER], isr=[OTHER], leader=OTHER)
    broker = await without_target(before)
    assert broker.names(0) == []


async def test_a_future_log_is_kept_while_the_directory_of_its_replica_is_offline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = after(await caught_up())
    executor = broker.directories[0].executor
    apply = broker.replicas.apply

    async def apply_and_fail(instructions: Any) -> None:
        await apply(instructions)
        executor.fail("it dies before the futures are settled")

    monkeypatch.setattr(broker.replicas, "apply", apply_and_fail)
    await broker.start()
    assert broker.names(1) == ["orders-0-future"]
    assert broker.replicas.futures.in_directory(broker.directories[1])
