"""Moves of logs that change meanwhile: throttles, retention, followers, transactions."""

import asyncio
from dataclasses import replace

import pytest
from cluster_image import directory_of
from log_builders import NOW_MS, append, batch, end_transaction, values
from moving_broker import BROKER, SMALL, WHERE, Disks, LateExecutor, MovingBroker, new_cluster

from spindle.common.errors import ErrorCode
from spindle.disks.cleaner import Cleaner
from spindle.replicas.moves.move import MoveState

OTHER = 2
B = directory_of(BROKER, 1)


async def new_broker(replicas: tuple[int, ...] = (BROKER,)) -> MovingBroker:
    cluster = new_cluster(2, replicas)
    return await MovingBroker(Disks(), cluster, executor=LateExecutor).start()


async def copied(broker: MovingBroker) -> None:
    """Return when everything is copied and compared, and only the controller's word is missing."""
    broker.is_deaf = True
    assert await broker.begin() == ErrorCode.NONE
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)


async def swapped(broker: MovingBroker) -> None:
    """Have the controller record the target; return when the replica is there."""
    broker.record(B)
    await broker.follow_metadata()
    await broker.until_moved()


async def test_a_move_copies_no_faster_than_its_quota() -> None:
    broker = await new_broker()
    await broker.fill()
    size_bytes = broker.partition.log.size_bytes
    broker.quota.limit_bytes_per_s = 1000
    await broker.begin()
    total = []
    while len(broker.replicas.moves):
        before = broker.move.copied_bytes
        for _ in range(200):
            await asyncio.sleep(0)
        if len(broker.replicas.moves):
            total.append(broker.replicas.moves.copied_bytes)
            assert broker.move.copied_bytes - before <= 1600
        broker.steady_ms += 1000
        if len(broker.replicas.moves):
            broker.replicas.moves.on_change(broker.move)
    assert total == sorted(total)
    assert broker.steady_ms >= 1000 * (size_bytes // 1000 - 1)
    assert broker.replicas.moves.done == 1


async def test_a_log_that_is_copied_at_once_changes_its_place_when_the_rate_allows_it() -> None:
    broker = await new_broker()
    await broker.fill(5)
    broker.quota.limit_bytes_per_s = 10
    await broker.begin()
    await broker.until(lambda: broker.move.course.state is MoveState.SWAPPING)
    assert (broker.move.lag, broker.assigned) == (0, [B])
    for seconds in range(11):
        broker.steady_ms = 1000 * seconds
        broker.replicas.moves.on_change(broker.move)
        for _ in range(50):
            await asyncio.sleep(0)
        assert broker.move.course.state is MoveState.SWAPPING
    broker.steady_ms = 11_000
    broker.replicas.moves.on_change(broker.move)
    await broker.until_moved()


async def test_a_raised_quota_lets_a_waiting_move_continue() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.quota.limit_bytes_per_s = 0
    await broker.begin()
    for _ in range(200):
        await asyncio.sleep(0)
    assert broker.move.lag > 0
    broker.quota.limit_bytes_per_s = 10**9
    await broker.until_moved()


async def test_the_lag_counts_the_offsets_that_are_missing() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.quota.limit_bytes_per_s = -1
    await broker.begin()
    assert (broker.move.lag, broker.move.future.size_bytes) == (12, 0)
    await broker.stop()


async def test_a_follower_moves_while_its_leader_feeds_it() -> None:
    broker = await new_broker((OTHER, BROKER))
    for number in range(6):
        await broker.feed(str(number))
    assert await broker.begin() == ErrorCode.NONE
    number = 6
    while len(broker.replicas.moves):
        await broker.feed(str(number))
        number += 1
    await broker.until_moved()
    await broker.feed(str(number))
    assert values(broker.partition.log) == [(n, str(n)) for n in range(number + 1)]
    assert broker.fetching.followed == [broker.partition]


async def test_a_leader_epoch_that_begins_during_a_move_truncates_both_logs() -> None:
    broker = await new_broker((OTHER, BROKER))
    for number in range(12):
        await broker.feed(f"{number:200}")
    await copied(broker)
    broker.cluster.change("orders", leader=BROKER, isr=[BROKER])
    broker.cluster.change("orders", leader=OTHER, isr=[OTHER, BROKER])
    await broker.follow_metadata()
    await broker.directories[0].executor.submit(broker.partition.log.truncate_to, 7)
    await broker.feed("later", leader_epoch=2)
    await broker.until(lambda: broker.move.future.log_end_offset == 8)
    epochs = list(broker.partition.log.epochs.entries)
    await swapped(broker)
    assert [offset for offset, _ in values(broker.partition.log)] == list(range(8))
    assert values(broker.partition.log)[-1] == (7, "later")
    assert list(broker.partition.log.epochs.entries) == epochs
    assert epochs[-1] == (2, 7)


async def test_a_leadership_that_begins_during_a_move_is_in_the_epochs_of_the_moved_log() -> None:
    broker = await new_broker()
    await broker.fill()
    await copied(broker)
    broker.cluster.change("orders", leader=BROKER)
    await broker.follow_metadata()
    await swapped(broker)
    assert broker.partition.log.epochs.latest == broker.partition.leader_epoch == 1
    await broker.append("on")


async def test_retention_during_a_move_continues_in_the_moved_log() -> None:
    broker = await new_broker()
    await broker.fill()
    await copied(broker)
    log = broker.partition.log
    log.increment_log_start_offset(7)
    assert broker.directories[0].store.apply_retention(NOW_MS) > 0
    await broker.until(lambda: broker.move.future.log_start_offset == 7)
    assert broker.directories[1].store.apply_retention(NOW_MS) > 0
    await swapped(broker)
    assert broker.partition.log.log_start_offset == 7
    assert [offset for offset, _ in values(broker.partition.log)] == [7, 8, 9, 10, 11]


async def test_a_copy_starts_over_at_the_log_start_when_retention_overtakes_it() -> None:
    broker = await new_broker()
    await broker.fill()
    broker.quota.limit_bytes_per_s = 1500
    await broker.begin()
    await broker.until(lambda: broker.move.future.log_end_offset > 0)
    log = broker.partition.log
    log.increment_log_start_offset(11)
    log.delete_old_segments(NOW_MS)
    broker.quota.limit_bytes_per_s = 10**9
    await broker.until_moved()
    assert values(broker.partition.log)[0][0] == 11
    assert broker.replicas.moves.failed == 0


async def test_records_deleted_up_to_the_middle_of_a_batch_before_a_move() -> None:
    broker = await new_broker()
    for number in range(8):
        await broker.append(*(f"{number}{letter}" + "x" * 100 for letter in "abcd"))
    log = broker.partition.log
    log.increment_log_start_offset(18)
    log.delete_old_segments(NOW_MS)
    await broker.begin()
    await broker.until_moved()
    moved = broker.partition.log
    assert moved is not log
    assert (moved.log_start_offset, moved.log_end_offset) == (18, 32)
    assert [offset for offset, _ in values(moved)] == list(range(18, 32))
    assert moved.segments.first.base_offset <= 16
    assert (await broker.append("on")).first_offset == 32


async def test_a_replica_that_is_reassigned_to_another_broker_takes_its_future_log_along() -> None:
    broker = await new_broker((BROKER, OTHER))
    await copied(broker)
    broker.cluster.change("orders", replicas=[OTHER], isr=[OTHER], leader=OTHER)
    await broker.follow_metadata()
    await broker.until(lambda: not broker.mover.is_busy)
    assert (broker.names(0), broker.names(1)) == (["orders-0-delete"], ["orders-0-delete"])
    assert [directory.log_count for directory in broker.directories] == [0, 0]


async def test_no_compaction_begins_while_a_log_moves() -> None:
    config = replace(SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01)
    broker = MovingBroker(Disks(), new_cluster(), config=config, executor=LateExecutor)
    await broker.start()
    await broker.fill()
    source, target = (Cleaner(directory.store) for directory in broker.directories)
    due = source.next_pass(NOW_MS)
    assert due is not None
    await copied(broker)
    assert due.plan.signal.is_aborted
    source.cancel(due.plan)
    assert (source.next_pass(NOW_MS), target.next_pass(NOW_MS)) == (None, None)
    await swapped(broker)
    assert target.next_pass(NOW_MS) is not None


async def test_a_cancelled_move_lets_compaction_begin_again() -> None:
    broker = await new_broker()
    await broker.fill()
    await copied(broker)
    assert broker.partition.log.is_moving
    await broker.begin(0)
    await broker.until(lambda: not broker.partition.log.is_moving)
    await broker.until(lambda: not broker.mover.is_busy)


@pytest.mark.parametrize("is_commit", [False, True])
async def test_transactions_end_in_the_moved_log_as_they_began(is_commit: bool) -> None:
    broker = await new_broker()
    log = broker.partition.log
    append(log, "gone", producer_id=3, sequence=0, transactional=True)
    end_transaction(log, 3, is_commit=False)
    await broker.fill()
    append(log, "open", producer_id=7, sequence=0, transactional=True)
    log.update_high_watermark(log.log_end_offset)
    await copied(broker)
    append(log, "during", producer_id=8, sequence=0, transactional=True)
    end_transaction(log, 8, is_commit=False)
    await swapped(broker)
    moved = broker.partition.log
    assert moved.first_unstable_offset == 14
    append(moved, "more", producer_id=7, sequence=1, transactional=True)
    end_transaction(moved, 7, is_commit=is_commit)
    moved.update_high_watermark(moved.log_end_offset)
    assert moved.last_stable_offset == moved.log_end_offset
    aborted = [t.producer_id for t in moved.aborted_transactions(0, moved.log_end_offset)]
    assert aborted == ([3, 8] if is_commit else [3, 8, 7])
    moved.flush()


async def test_the_next_start_knows_the_producers_of_a_moved_log() -> None:
    broker = await new_broker()
    await broker.append("a", producer_id=7, sequence=0)
    await broker.fill()
    await broker.begin()
    await broker.until_moved()
    await broker.append("b", producer_id=7, sequence=1)
    await broker.stop()
    for directory in broker.directories:
        directory.store.close(1)
    again = await MovingBroker(broker.disks, broker.cluster, uuids=iter(range(9**9))).start()
    partition = again.replicas.lookup(*WHERE)
    assert partition is not None
    log = partition.log
    repeated = log.append_as_leader(batch("b", producer_id=7, sequence=1), 0, NOW_MS)
    assert (repeated.is_duplicate, repeated.first_offset) == (True, 13)
