"""Which moves of a round can never end, from the answers of controller and brokers."""

from collections.abc import Sequence

from spindle.client.admin.partitions import Reassignment
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.operations.execution.active_moves import ActiveMoves, StallDetector, moves_under_way
from spindle.operations.reassignment import Plan, Replica
from spindle.operations.snapshot import copied_inside

PARTITION = TopicPartition("t", 0)
PLAN = Plan({PARTITION: (1, 3)}, {Replica(3, PARTITION): "/disk"})


def log_dir(
    path: str, *replicas: TopicPartition, has_failed: bool = False, size_bytes: int = 1
) -> LogDirView:
    error = ErrorCode.KAFKA_STORAGE_ERROR if has_failed else ErrorCode.NONE
    held = dict.fromkeys(replicas, ReplicaOnDisk(size_bytes, 0, is_future=False))
    return LogDirView(path, error, 1, 1, False, held)


def moves(*of_target: LogDirView) -> ActiveMoves:
    """Return the move of one replica from broker 2 to broker 3, which has these directories."""
    reassigned = {PARTITION: Reassignment((1, 3, 2), (3,), (2,))}
    source: Sequence[LogDirView] = [log_dir("/d", PARTITION)]
    return moves_under_way(reassigned, {2: source, 3: of_target})


def test_a_move_into_a_directory_that_failed_is_lost() -> None:
    dead = log_dir("/disk", has_failed=True)
    assert moves(dead, log_dir("/d")).lost(PLAN, []) == {
        PARTITION: "directory /disk of broker 3 has failed"
    }
    assert moves(dead, log_dir("/d", PARTITION)).lost(PLAN, []) == {}
    assert moves(log_dir("/disk"), log_dir("/d", has_failed=True)).lost(PLAN, []) == {}


def test_a_move_to_a_broker_that_is_away_is_lost() -> None:
    assert moves().lost(PLAN, []) == {}
    assert moves().lost(PLAN, [3]) == {PARTITION: "broker 3 is not running"}
    assert moves().lost(PLAN, [2]) == {}


def test_a_move_that_nobody_can_send_is_lost() -> None:
    (lost,) = moves().lost(PLAN, [1, 2]).values()
    assert lost == "no broker has it to copy from: 1, 2 had it"
    dead = log_dir("/d", has_failed=True)
    alone = {PARTITION: Reassignment((3, 2), (3,), (2,))}
    plan = Plan({PARTITION: (3,)})
    assert list(moves_under_way(alone, {2: [dead], 3: []}).lost(plan, [])) == [PARTITION]
    left = log_dir("/e", PARTITION)
    assert moves_under_way(alone, {2: [dead, left], 3: []}).lost(plan, []) == {}


def test_moves_stand_still_when_nothing_more_is_copied_for_the_limit() -> None:
    standstill = StallDetector(10)
    first, more = (moves(log_dir("/disk", PARTITION, size_bytes=size)) for size in (1, 2))
    looks = [(0, first), (9, first), (9.5, more), (19, more), (19.5, more), (20, more)]
    assert [standstill.is_reached(moves, at) for at, moves in looks] == [
        *[False] * 4,
        True,
        False,
    ]
    assert first.names() == ["t-0 to broker 3"]


def test_the_moves_of_others_are_left_alone() -> None:
    assert moves(log_dir("/disk", has_failed=True)).lost(Plan({}), [3]) == {}
    assert moves().count == 1
    later = Plan({PARTITION: (1, 4)})
    assert moves().of_plan(PLAN)
    assert (moves().of_plan(later), moves().lost(later, [3])) == ({}, {})


def test_copies_between_directories_are_moves_while_their_replica_can_be_read() -> None:
    copy = {PARTITION: ReplicaOnDisk(1, 0, is_future=True)}
    target = LogDirView("/e", ErrorCode.NONE, 1, 1, False, copy)
    source, dead = log_dir("/d", PARTITION), log_dir("/d", has_failed=True)
    assert moves_under_way({}, {2: [source, target]}).count == 1
    assert copied_inside([source, target]) == [PARTITION]
    assert moves_under_way({}, {2: [dead, target]}).count == 0
    assert copied_inside([dead, target]) == []
