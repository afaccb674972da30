"""A replica moves between directories: what is lost at which crash, and what a failure leaves."""

import asyncio

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, batch, values
from moving_broker import (
    BROKER,
    WHERE,
    Disks,
    InlineExecutor,
    LateExecutor,
    MovingBroker,
    new_cluster,
)

from spindle.common.errors import ErrorCode
from spindle.common.uuids import DIRECTORY_UNASSIGNED
from spindle.disks import log_copy
from spindle.disks.copied_range import COPIED_RANGE_BYTES
from spindle.log.formats.checkpoints import RECOVERY_POINTS, read_offset_checkpoint
from spindle.log.log import Log
from spindle.log.log_config import LogConfig
from spindle.replicas.moves.move import MoveState
from spindle.runtime.broker import move_task
from spindle.testing.filesystem import Fault

A, B, C = (directory_of(BROKER, number) for number in range(3))


async def new_broker(directories: int = 2) -> MovingBroker:
    return await MovingBroker(Disks(), new_cluster(directories), directories).start()


def recorded(broker: MovingBroker) -> bytes:
    topic = broker.cluster.image.topics.by_name["orders"]
    return topic.partitions[0].directories[0]


async def test_a_moved_replica_has_its_records_and_its_former_log_is_to_be_deleted() -> None:
    broker = await new_broker()
    expected = await broker.fill()
    assert await broker.begin() == ErrorCode.NONE
    await broker.until_moved()
    assert values(broker.partition.log) == expected
    assert broker.names(0) == ["orders-0-delete"]
    assert broker.names(1) == ["orders-0"]
    assert broker.assigned == [B]
    assert broker.partition.log.path == "/disk1/orders-0"
    info = await broker.append("next")
    assert info.first_offset == len(expected)
    assert (broker.directories[0].log_count, broker.directories[1].log_count) == (0, 1)


async def test_the_metadata_names_the_target_before_the_logs_change_places() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    expected = [*values(broker.partition.log), (12, "later")]
    await broker.append("later")
    await broker.until(lambda: broker.move.lag == 0)
    assert (broker.names(0), broker.names(1)) == (["orders-0"], ["orders-0-future"])
    broker.cluster.change("orders", directories=[B])
    await broker.follow_metadata()
    await broker.until_moved()
    assert values(broker.partition.log) == expected


async def test_the_bytes_of_a_move_are_counted_for_its_target() -> None:
    broker = await new_broker()
    await broker.fill()
    source, target = broker.directories
    moves = broker.replicas.moves
    size_bytes = broker.partition.log.size_bytes
    broker.quota.limit_bytes_per_s = -1  # nothing is copied
    await broker.begin()
    assert broker.move.remaining_bytes == size_bytes
    broker.quota.limit_bytes_per_s = broker.rate
    broker.is_deaf = True
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    assert broker.move.remaining_bytes == 0
    assert moves.copied_bytes_into(target) == size_bytes
    broker.cluster.change("orders", directories=[B])
    await broker.follow_metadata()
    await broker.until_moved()
    assert moves.copied_bytes_into(target) == size_bytes == moves.copied_bytes
    assert moves.copied_bytes_into(source) == 0


async def test_a_target_that_is_recorded_from_before_is_corrected_while_the_replica_is_copied() -> (
    None
):
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    broker.quota.limit_bytes_per_s = -1  # nothing is copied
    await broker.begin()
    broker.cluster.change("orders", directories=[B])
    await broker.follow_metadata()
    assert broker.assigned == [A]
    assert broker.move.course.state is MoveState.COPYING
    await broker.stop()


async def test_a_move_continues_when_the_controller_accepts_a_target_recorded_before() -> None:
    broker = await new_broker()
    expected = await broker.fill()
    broker.is_deaf = True
    broker.quota.limit_bytes_per_s = -1  # nothing is copied
    await broker.begin()
    broker.cluster.change("orders", directories=[B])
    await broker.follow_metadata()
    broker.quota.limit_bytes_per_s = broker.rate
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    # The controller got the target before it got the source, so it had nothing to record.
    topic_id = broker.partition.topic_id
    broker.replicas.assignment_acknowledged(topic_id, 0, A)
    assert broker.move.course.state is MoveState.ASSIGNING
    broker.replicas.assignment_acknowledged(topic_id, 0, B)
    await broker.until_moved()
    assert values(broker.partition.log) == expected
    assert broker.names(1) == ["orders-0"]


async def test_a_replica_that_is_removed_and_added_again_during_its_move_is_assigned_again() -> (
    None
):
    broker = await new_broker()
    expected = await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    # The metadata has not published the removal: the broker only sees a new registration.
    broker.is_deaf = False
    broker.cluster.change("orders", directories=[DIRECTORY_UNASSIGNED])
    await broker.follow_metadata()
    await broker.until_moved()
    assert broker.assigned == [B, B]
    assert recorded(broker) == B
    assert values(broker.partition.log) == expected


async def test_records_appended_while_the_logs_change_places_are_in_the_new_log() -> None:
    broker = await new_broker()
    await broker.fill()
    await broker.begin()
    number = 12
    while len(broker.replicas.moves):
        assert (await broker.append(str(number))).first_offset == number
        number += 1
    assert [offset for offset, _ in values(broker.partition.log)] == list(range(number))


async def test_a_newer_target_takes_the_place_of_the_older() -> None:
    broker = await new_broker(3)
    expected = await broker.fill()
    broker.is_deaf = True
    await broker.begin(1)
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    assert await broker.begin(2) == ErrorCode.NONE
    assert broker.names(1) == ["orders-0-delete"]
    assert broker.assigned == [B, A]
    broker.is_deaf = False
    await broker.until_moved(2)
    assert values(broker.partition.log) == expected
    assert recorded(broker) == C


async def test_the_present_directory_as_the_target_ends_a_move() -> None:
    broker = await new_broker()
    expected = await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    assert await broker.begin(0) == ErrorCode.NONE
    await broker.until(lambda: not broker.mover.is_busy)
    assert not len(broker.replicas.moves)
    assert (broker.names(0), broker.names(1)) == (["orders-0"], ["orders-0-delete"])
    assert values(broker.partition.log) == expected
    assert not broker.partition.log.is_moving


async def test_a_second_request_for_the_same_target_changes_nothing() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    move = broker.move
    assert await broker.begin() == ErrorCode.NONE
    assert broker.move is move
    await broker.stop()


async def test_a_deleted_topic_takes_its_future_log_along() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    broker.cluster.delete("orders")
    await broker.follow_metadata()
    await broker.until(lambda: not broker.mover.is_busy)
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], ["orders-0-delete"])


async def test_a_truncation_of_the_current_log_truncates_the_future_log() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    log = broker.partition.log
    log.truncate_to(5)
    log.append_as_leader(bytearray(batch("other")), 3, NOW_MS)
    broker.cluster.change("orders", directories=[B])
    await broker.follow_metadata()
    await broker.until_moved()
    assert [offset for offset, _ in values(broker.partition.log)] == [0, 1, 2, 3, 4, 5]
    assert values(broker.partition.log)[-1] == (5, "other")


async def test_deleted_records_are_not_in_the_moved_log() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.partition.log.increment_log_start_offset(7)
    broker.partition.log.delete_old_segments(NOW_MS)
    await broker.begin()
    await broker.until_moved()
    log = broker.partition.log
    assert log.log_start_offset == 7
    assert [offset for offset, _ in values(log)] == [7, 8, 9, 10, 11]


async def test_an_empty_log_that_begins_above_zero_moves() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.partition.log.increment_log_start_offset(12)
    broker.partition.log.delete_old_segments(NOW_MS)
    await broker.begin()
    await broker.until_moved()
    assert (await broker.append("next")).first_offset == 12


async def test_the_moved_log_knows_the_producers_and_the_leader_epochs() -> None:
    broker = await new_broker()
    await broker.append("a", producer_id=7, sequence=0)
    await broker.fill()
    log = broker.partition.log
    log.assign_epoch_start(4, log.log_end_offset)
    log.increment_log_start_offset(6)
    log.delete_old_segments(NOW_MS)
    await broker.begin()
    await broker.until_moved()
    moved = broker.partition.log
    assert moved is not log
    assert moved.epochs.entries == log.epochs.entries
    assert [e.producer_id for e in moved.active_producers()] == [7]
    again = moved.append_as_leader(batch("a", producer_id=7, sequence=0), 4, NOW_MS)
    assert (again.is_duplicate, again.first_offset) == (True, 0)


async def test_a_copy_that_differs_is_made_again_and_never_swapped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = await new_broker()
    expected = await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.future.log_end_offset > 3)
    damage(broker)
    broker.is_deaf = False
    await broker.until_moved()
    assert values(broker.partition.log) == expected


async def test_a_copy_that_differs_is_made_again_from_its_start_while_records_come() -> None:
    broker = await MovingBroker(Disks(), new_cluster(), executor=LateExecutor).start()
    await broker.fill()
    await broker.begin()
    await broker.until(lambda: broker.move.future.log_end_offset > 3)
    damage(broker)
    number = 12
    while len(broker.replicas.moves):
        await broker.append(str(number))
        number += 1
    assert broker.replicas.moves.failed == 0
    assert [offset for offset, _ in values(broker.partition.log)] == list(range(number))


async def test_a_truncation_of_the_future_log_lowers_its_checkpoints_before_records_follow() -> (
    None
):
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    path = f"/disk1/{RECOVERY_POINTS}"
    assert read_offset_checkpoint(broker.disks, path) == {WHERE: 12}
    log = broker.partition.log
    log.truncate_to(5)
    log.append_as_leader(bytearray(batch("other")), 3, NOW_MS)
    await broker.until(lambda: broker.move.future.log_end_offset == 6)
    assert read_offset_checkpoint(broker.disks, path) == {WHERE: 5}
    await broker.stop()


async def test_deleted_records_stay_deleted_if_the_broker_dies_right_after_the_swap() -> None:
    disks = Disks()
    broker = await MovingBroker(disks, new_cluster()).start()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    broker.partition.log.increment_log_start_offset(7)
    broker.directories[0].store.checkpoint_log_starts()
    await broker.until(lambda: broker.move.future.log_start_offset == 7)
    broker.cluster.change("orders", directories=[B])
    await broker.follow_metadata()
    await broker.until(lambda: broker.partition.directory is broker.directories[1])
    await broker.stop()
    disks.crash()
    after = await MovingBroker(disks, broker.cluster, uuids=iter(range(10**6, 10**7))).start()
    assert after.partition.log.path == "/disk1/orders-0"
    assert after.partition.log.log_start_offset == 7


async def test_the_move_of_a_log_whose_last_offsets_have_no_records_ends() -> None:
    broker = await new_broker()
    await broker.fill()
    log, far = broker.partition.log, 2**31 + 100
    later = bytearray(batch("later"))
    later[:8] = far.to_bytes(8, "big")
    log.append_as_follower(later, 3, NOW_MS)
    log.truncate_to(far)
    assert (len(values(log)), log.log_end_offset) == (12, far)
    await broker.begin()
    await broker.until(lambda: not broker.mover.is_busy)
    assert broker.replicas.moves.failed == 1
    assert broker.names(1) == ["orders-0-delete"]
    assert (await broker.append("on")).first_offset == far


async def test_a_stop_during_the_swap_acknowledges_nothing_that_was_held_back() -> None:
    broker = await MovingBroker(Disks(), new_cluster(), executor=LateExecutor).start()
    await broker.fill()
    await broker.begin()
    await broker.until(lambda: "orders-0" not in broker.names(0))
    held = asyncio.create_task(broker.append("held"))
    await asyncio.sleep(0)
    await broker.stop()
    for _ in range(50):
        await asyncio.sleep(0)
    assert not held.done()
    held.cancel()


async def test_the_future_log_has_settings_that_changed_while_it_was_created() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    begin = asyncio.create_task(broker.begin())
    await broker.until(lambda: "orders-0-future" in broker.names(1))
    changed = LogConfig(retention_ms=-1)
    broker.partition.log.config = changed
    await begin
    assert broker.move.future.config is changed
    await broker.stop()


def damage(broker: MovingBroker) -> None:
    """Flip a bit of the copy, as a disk might."""
    path = broker.move.future.segments.first.path
    file = broker.disks.open(path)
    byte = file.pread(1, 100)
    file.pwrite(bytes([byte[0] ^ 1]), 100)


# -- failures


@pytest.mark.parametrize("state", [MoveState.COPYING, MoveState.VERIFYING, MoveState.ASSIGNING])
async def test_a_target_that_fails_leaves_the_replica_where_it_is(state: MoveState) -> None:
    broker = await new_broker()
    expected = await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is state)
    broker.directories[1].executor.fail("pulled out")
    await broker.until(lambda: not broker.mover.is_busy and not len(broker.replicas.moves))
    assert values(broker.partition.log) == expected
    assert await broker.append("on") is not None
    assert broker.assigned == ([B, A] if state is MoveState.ASSIGNING else [])


@pytest.mark.parametrize("state", [MoveState.COPYING, MoveState.VERIFYING, MoveState.ASSIGNING])
async def test_a_source_that_fails_ends_the_move(state: MoveState) -> None:
    broker = await new_broker()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is state)
    broker.directories[0].executor.fail("pulled out")
    await broker.until(lambda: not broker.mover.is_busy and not len(broker.replicas.moves))
    assert broker.partition.is_offline
    assert broker.names(1) == ["orders-0-future"]
    assert broker.assigned == ([B, A] if state is MoveState.ASSIGNING else [])


async def test_a_target_that_fails_at_the_last_rename_gives_the_current_log_its_name_back() -> None:
    broker = await new_broker()
    expected = await broker.fill()
    broker.disks.faults.append(Fault("-future", "rename"))
    await broker.begin()
    await broker.until(lambda: broker.directories[1].is_offline)
    await broker.until(lambda: not broker.mover.is_busy and not len(broker.replicas.moves))
    assert broker.names(0) == ["orders-0"]
    assert values(broker.partition.log) == expected
    assert (await broker.append("on")).first_offset == 12


async def test_a_target_that_fails_after_the_last_rename_gives_the_current_log_its_name_back() -> (
    None
):
    broker = await new_broker()
    expected = await broker.fill()
    await broker.begin()
    await broker.until(lambda: "orders-0" in broker.names(1))
    broker.directories[1].executor.fail("pulled out")
    await broker.until(lambda: not broker.mover.is_busy and not len(broker.replicas.moves))
    assert broker.names(0) == ["orders-0"]
    assert recorded(broker) == A
    assert values(broker.partition.log) == expected
    assert (await broker.append("on")).first_offset == 12
    assert (broker.directories[0].log_count, broker.directories[1].log_count) == (1, 0)


@pytest.mark.parametrize("failing", [0, 1])
async def test_a_directory_that_fails_while_the_future_log_is_created_begins_no_move(
    failing: int,
) -> None:
    broker = await new_broker()
    await broker.fill()
    begin = asyncio.create_task(broker.begin())
    await broker.until(lambda: "orders-0-future" in broker.names(1))
    broker.directories[failing].executor.fail("pulled out")
    assert await begin == ErrorCode.KAFKA_STORAGE_ERROR
    await broker.until(lambda: not broker.mover.is_busy)
    assert not len(broker.replicas.moves)


async def test_while_a_directory_is_offline_no_move_begins() -> None:
    broker = await new_broker(3)
    await broker.fill()
    broker.directories[2].executor.fail("pulled out")
    assert await broker.begin() == ErrorCode.KAFKA_STORAGE_ERROR


# -- crashes


async def move_until_dead(
    disks: Disks, operations: int, executor: type[InlineExecutor]
) -> tuple[MovingBroker, list[str], bool]:
    """Move under traffic, and lose power after so many operations; what was acknowledged before."""
    broker = await MovingBroker(disks, new_cluster(), executor=executor).start()
    acknowledged = [text for _, text in await broker.fill(6)]
    broker.partition.log.flush()
    disks.power_left = operations
    work = asyncio.create_task(broker.begin())
    sent = 0
    while not broker.is_dead and (not work.done() or len(broker.replicas.moves)):
        producing = asyncio.create_task(broker.append(f"live{sent}"))
        await broker.until(producing.done)
        if producing.done():
            acknowledged.append(f"live{sent}")
            sent += 1
        producing.cancel()
    await broker.until(lambda: work.done() and not broker.mover.is_busy)
    is_over = not broker.is_dead
    disks.power_left = None
    for directory in broker.directories if broker.is_dead else ():
        assert isinstance(directory.executor, InlineExecutor)
        directory.executor.died.set()  # none of them does what the cancellation asks for
    work.cancel()
    await broker.stop()
    return broker, acknowledged, is_over


@pytest.mark.parametrize("loses_unsynced", [False, True], ids=["kill -9", "power failure"])
@pytest.mark.parametrize("range_bytes", [900, COPIED_RANGE_BYTES])
@pytest.mark.parametrize("executor", [InlineExecutor, LateExecutor])
async def test_a_crash_after_every_operation_loses_nothing_and_the_move_continues(
    loses_unsynced: bool,
    range_bytes: int,
    executor: type[InlineExecutor],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(move_task, "COPIED_RANGE_BYTES", range_bytes)
    monkeypatch.setattr(move_task, "MIN_BYTES", range_bytes)

    async def crash(operations: int) -> bool:
        disks = Disks()
        before, acknowledged, is_over = await move_until_dead(disks, operations, executor)
        if loses_unsynced:
            disks.crash()
        currents = [n for n in (0, 1) if "orders-0" in before.names(n)]
        assert len(currents) <= 1, f"two current logs after operation {operations}"
        after = await MovingBroker(disks, before.cluster, uuids=iter(range(10**6, 10**7))).start()
        texts = [text for _, text in values(after.partition.log)]
        kept = 6 if loses_unsynced else len(acknowledged)
        assert texts[:kept] == acknowledged[:kept], f"operation {operations}"
        assert [offset for offset, _ in values(after.partition.log)] == list(range(len(texts)))
        if len(after.replicas.moves):
            await after.until_moved()
            assert [text for _, text in values(after.partition.log)] == texts
        await after.until(lambda: recorded(after) == after.partition.directory.directory_id)
        at = after.directories.index(after.partition.directory)
        assert after.names(at).count("orders-0") == 1
        assert all("orders-0" not in after.names(n) for n in (0, 1) if n != at)
        assert not [n for n in (0, 1) if "orders-0-future" in after.names(n)]
        if is_over:
            assert at == 1
        await after.append("after")
        await after.stop()
        return is_over

    operations = 0
    while not await crash(operations):
        operations += 1
    assert operations > 50


async def test_a_future_log_whose_current_log_may_be_in_an_offline_directory_is_not_promoted() -> (
    None
):
    disks = Disks()
    broker = await MovingBroker(disks, new_cluster()).start()
    await broker.fill()
    broker.is_deaf = True
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    await broker.stop()
    broker.cluster.change("orders", directories=[B])
    after = MovingBroker(disks, broker.cluster, uuids=iter(range(10**6, 10**7)))
    after.directories[0].executor.fail("dead")
    after.is_deaf = True
    await after.start()
    assert after.replicas.lookup(*WHERE) is None
    assert after.names(1) == ["orders-0-future"]
    assert after.assigned == [bytes(15) + b"\x02"]


async def test_the_digest_does_not_depend_on_the_borders_of_segments() -> None:
    broker = await new_broker()
    await broker.fill()
    await broker.begin()
    source, future = broker.move.current, broker.move.future
    await broker.until_moved()
    assert source.segments.active.base_offset > 0

    def total(log: Log) -> int:
        crc = offset = 0
        while offset < 12:
            crc, _, offset = log_copy.digest(log, offset, 12, crc)
        return crc

    source.is_deleted = False
    assert total(source) == total(future)
