"""The state machine of a move between directories."""

from itertools import product

import pytest

from spindle.replicas.moves.move import MoveAction, MoveEvent, MoveState, ReplicaMove

TO_ASSIGNING = (MoveEvent.CAUGHT_UP, MoveEvent.EQUAL)
TO_SWAPPING = (*TO_ASSIGNING, MoveEvent.RECORDED)
TO_PROMOTING = (*TO_SWAPPING, MoveEvent.SET_ASIDE)


def after(*events: MoveEvent, **options: bool) -> ReplicaMove:
    move = ReplicaMove(**options)
    for event in events:
        move.step(event)
    return move


def state_of(move: ReplicaMove) -> MoveState:
    return move.state


def test_the_target_is_reported_to_the_controller_when_both_logs_are_equal() -> None:
    move = after(MoveEvent.CAUGHT_UP)
    assert state_of(move) is MoveState.VERIFYING
    assert move.step(MoveEvent.EQUAL) == (MoveAction.ASSIGN_TARGET,)
    assert state_of(move) is MoveState.ASSIGNING
    assert move.step(MoveEvent.RECORDED) == ()
    assert state_of(move) is MoveState.SWAPPING
    move.step(MoveEvent.SET_ASIDE)
    assert state_of(move) is MoveState.PROMOTING
    move.step(MoveEvent.SWAPPED)
    assert state_of(move) is MoveState.DONE


@pytest.mark.parametrize("options", [{"is_recorded": True}, {"needs_assignment": False}])
def test_a_target_that_is_recorded_or_need_not_be_is_not_assigned(options: dict[str, bool]) -> None:
    move = after(MoveEvent.CAUGHT_UP, **options)
    assert move.step(MoveEvent.EQUAL) == ()
    assert state_of(move) is MoveState.SWAPPING


def test_a_second_copy_that_differs_fails_the_move() -> None:
    move = after(MoveEvent.CAUGHT_UP)
    assert move.step(MoveEvent.DIFFERENT) == (MoveAction.START_OVER,)
    assert (move.state, move.verified_end_offset) == (MoveState.COPYING, -1)
    move.step(MoveEvent.CAUGHT_UP)
    assert move.step(MoveEvent.DIFFERENT) == (MoveAction.DROP_FUTURE,)
    assert state_of(move) is MoveState.FAILED


@pytest.mark.parametrize("events", [(), (MoveEvent.CAUGHT_UP,), TO_ASSIGNING, TO_SWAPPING])
@pytest.mark.parametrize(
    ("event", "drops"),
    [
        (MoveEvent.CANCEL, True),
        (MoveEvent.BROKEN, True),
        (MoveEvent.SOURCE_FAILED, False),
        (MoveEvent.TARGET_FAILED, False),
    ],
)
def test_an_assignment_is_taken_back_when_a_move_ends(
    events: tuple[MoveEvent, ...], event: MoveEvent, drops: bool
) -> None:
    move = after(*events)
    expected = [MoveAction.ASSIGN_SOURCE] if MoveEvent.EQUAL in events else []
    expected += [MoveAction.DROP_FUTURE] if drops else []
    assert move.step(event) == tuple(expected)
    assert not move.is_under_way
    assert not move.is_assigned


def test_once_the_current_log_has_given_up_its_name_only_the_target_can_end_the_move() -> None:
    move = after(*TO_PROMOTING)
    assert move.step(MoveEvent.SOURCE_FAILED) == ()
    assert move.step(MoveEvent.CANCEL) == ()
    assert state_of(move) is MoveState.PROMOTING
    assert move.step(MoveEvent.TARGET_FAILED) == (MoveAction.ASSIGN_SOURCE,)
    assert state_of(move) is MoveState.FAILED


@pytest.mark.parametrize(
    ("events", "event"),
    list(
        product(
            (
                (*TO_PROMOTING, MoveEvent.SWAPPED),
                (*TO_SWAPPING, MoveEvent.CANCEL),
                (*TO_SWAPPING, MoveEvent.SOURCE_FAILED),
            ),
            MoveEvent,
        )
    ),
)
def test_a_move_that_is_over_stays_so(events: tuple[MoveEvent, ...], event: MoveEvent) -> None:
    move = after(*events)
    state = move.state
    assert not move.is_under_way
    assert move.step(event) == ()
    assert state_of(move) is state


def test_a_truncation_takes_back_what_was_compared() -> None:
    move = after()
    move.verified_end_offset = 10
    move.truncated_to(12)
    assert move.verified_end_offset == 10
    move.truncated_to(7)
    assert move.verified_end_offset == 7
