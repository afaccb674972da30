"""Undoing what an operation has begun, when its caller cannot be told of it any more."""

from pathlib import Path

import pytest

from spindle.operations.cancellation import ProgressReport, undone_if_cancelled
from spindle.operations.events import NotUndone, ProgressEvent, Undone


def gone(event: ProgressEvent) -> None:
    raise OSError(5, f"the terminal has gone: {event}")


def test_a_cancelled_operation_is_undone_although_the_terminal_has_gone(tmp_path: Path) -> None:
    report = ProgressReport(gone)
    undone: list[str] = []

    def undo() -> None:
        report(Undone("the drain"))
        undone.append("throttles")

    with (
        pytest.raises(KeyboardInterrupt),
        undone_if_cancelled(undo, tmp_path / "state", report, "`cancel_drain`"),
    ):
        raise KeyboardInterrupt
    assert undone == ["throttles"]


def test_a_second_interrupt_ends_an_operation_whose_terminal_has_gone(tmp_path: Path) -> None:
    report = ProgressReport(gone)

    def undo() -> None:
        raise KeyboardInterrupt

    with (
        pytest.raises(KeyboardInterrupt),
        undone_if_cancelled(undo, tmp_path / "state", report, "`cancel_drain`"),
    ):
        raise KeyboardInterrupt


def test_a_failure_of_the_caller_ends_an_operation_that_is_not_cancelled() -> None:
    report = ProgressReport(gone)
    with report.may_fail():
        report(NotUndone("state", "nothing"))
    with pytest.raises(OSError, match="gone"):
        report(Undone("the drain"))
