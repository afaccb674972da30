"""A copy is read back from the disk in ranges while copying continues."""

import pytest
from log_builders import NOW_MS, batch, values
from moving_broker import Disks, HangingExecutor, LateExecutor, MovingBroker, new_cluster

from spindle.common.errors import ErrorCode
from spindle.disks import log_copy
from spindle.log.log import Log
from spindle.replicas.moves.move import MoveState
from spindle.runtime.broker import move_task


@pytest.fixture(autouse=True)
def _short_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(move_task, "COPIED_RANGE_BYTES", 2500)
    monkeypatch.setattr(move_task, "MIN_BYTES", 1)


@pytest.fixture
def compared(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Return the ranges of the logs that are read for a comparison of both."""
    compared: list[tuple[str, int]] = []
    digest = log_copy.digest

    def noted(log: Log, offset: int, end_offset: int, crc: int) -> log_copy.Digest:
        compared.append((log.path.split("/")[1], offset))
        return digest(log, offset, end_offset, crc)

    noted.__name__ = "digest"
    monkeypatch.setattr(move_task, "digest", noted)
    return compared


async def new_broker(batches: int = 40) -> tuple[MovingBroker, HangingExecutor]:
    """Return a broker, and the executor of its second disk."""
    broker = await MovingBroker(Disks(), new_cluster(), executor=HangingExecutor).start()
    await broker.fill(batches)
    executor = broker.directories[1].executor
    assert isinstance(executor, HangingExecutor)
    return broker, executor


def flip(broker: MovingBroker, log: Log, segment: int = 0) -> None:
    """Flip a bit of a record."""
    path = list(log.segments)[segment].path
    file = broker.disks.open(path)
    file.pwrite(bytes([file.pread(1, 100)[0] ^ 1]), 100)


async def test_the_current_log_is_read_once(compared: list[tuple[str, int]]) -> None:
    broker, _ = await new_broker()
    expected = values(broker.partition.log)
    await broker.begin()
    await broker.until_moved()
    assert values(broker.partition.log) == expected
    assert compared == []


async def test_records_are_acknowledged_while_copied_ranges_are_read_back() -> None:
    broker = await MovingBroker(Disks(), new_cluster(), executor=LateExecutor).start()
    await broker.fill(40)
    await broker.begin()
    number = 40
    while len(broker.replicas.moves):
        assert (await broker.append(f"{number:500}")).first_offset == number
        number += 1
    assert broker.replicas.moves.failed == 0
    assert [offset for offset, _ in values(broker.partition.log)] == list(range(number))


@pytest.mark.parametrize("segment", [0, 1, -1])
async def test_a_bit_that_flips_in_the_copy_is_found_and_the_copy_made_again(segment: int) -> None:
    broker, target = await new_broker()
    expected = values(broker.partition.log)
    target.hangs_at = "read_back"
    await broker.begin()
    await broker.until(lambda: bool(target.waiting))
    move = broker.move
    flip(broker, move.future, segment)
    truncations = move.future.truncation_count
    target.release()
    await broker.until_moved()
    assert move.future.truncation_count == truncations + 1
    assert values(broker.partition.log) == expected


async def test_a_bit_that_flips_in_the_current_log_before_it_is_copied_ends_the_move() -> None:
    broker, _ = await new_broker()
    flip(broker, broker.partition.log, 5)
    assert await broker.begin() == ErrorCode.NONE
    await broker.until(lambda: not broker.mover.is_busy)
    assert broker.replicas.moves.failed == 1
    assert broker.partition.directory is broker.directories[0]
    assert broker.names(1) == ["orders-0-delete"]


async def test_a_bit_that_flips_in_the_current_log_after_it_was_copied_is_not_in_the_copy() -> None:
    broker, target = await new_broker()
    expected = values(broker.partition.log)
    target.hangs_at = "read_back"
    await broker.begin()
    await broker.until(lambda: bool(target.waiting))
    flip(broker, broker.partition.log)
    target.release()
    await broker.until_moved()
    assert values(broker.partition.log) == expected


async def test_a_truncation_while_a_range_is_read_back_has_the_rest_compared(
    compared: list[tuple[str, int]],
) -> None:
    broker, target = await new_broker()
    broker.is_deaf = True
    target.hangs_at = "read_back"
    await broker.begin()
    await broker.until(lambda: bool(target.waiting))
    log = broker.partition.log
    log.truncate_to(5)
    log.append_as_leader(bytearray(batch("other")), 3, NOW_MS)
    target.release()
    await broker.until(lambda: broker.move.course.state is MoveState.ASSIGNING)
    broker.record(broker.directories[1].directory_id)
    await broker.follow_metadata()
    await broker.until_moved()
    assert values(broker.partition.log)[-1] == (5, "other")
    assert broker.replicas.moves.failed == 0


async def test_retention_that_removes_a_copied_range_does_not_end_the_move() -> None:
    broker, target = await new_broker()
    target.hangs_at = "read_back"
    await broker.begin()
    await broker.until(lambda: bool(target.waiting))
    log = broker.partition.log
    log.increment_log_start_offset(30)
    log.delete_old_segments(NOW_MS)
    broker.move.future.update_high_watermark(broker.move.future.log_end_offset)
    target.release()
    await broker.until_moved()
    assert [offset for offset, _ in values(broker.partition.log)] == list(range(30, 40))
    assert broker.replicas.moves.failed == 0


async def test_a_copy_that_continues_after_a_restart_is_compared_with_the_current_log(
    compared: list[tuple[str, int]],
) -> None:
    broker, _ = await new_broker()
    expected = values(broker.partition.log)
    broker.quota.limit_bytes_per_s = 3000
    await broker.begin()
    await broker.until(lambda: broker.move.future.log_end_offset > 10)
    copied = broker.move.future.log_end_offset
    await broker.stop()
    again = await MovingBroker(broker.disks, broker.cluster, uuids=iter(range(900, 999))).start()
    await again.until_moved()
    assert values(again.partition.log) == expected
    assert {offset for place, offset in compared if place == "disk0"} <= set(range(copied))
    assert ("disk0", 0) in compared


@pytest.mark.parametrize("disk", [0, 1])
async def test_a_disk_that_fails_while_a_range_is_read_back_ends_the_move(disk: int) -> None:
    broker, target = await new_broker()
    target.hangs_at = "read_back"
    await broker.begin()
    await broker.until(lambda: bool(target.waiting))
    if disk == 1:
        target.give_up()
    else:
        broker.directories[0].executor.fail("pulled out")
        await broker.until(lambda: not len(broker.replicas.moves))
        target.release()
    await broker.until(lambda: not broker.mover.is_busy and not len(broker.replicas.moves))
    assert broker.replicas.moves.failed == 1
    assert broker.partition.directory is broker.directories[0]
