"""The progress of operations on a standard output that cannot be written any more."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from spindle.cli.progress import printing
from spindle.operations.cancellation import (
    Cancellation,
    Cancelled,
    ProgressReport,
    undone_if_cancelled,
)
from spindle.operations.events import Stopping


@pytest.fixture
def closed_pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let standard output be a pipe whose reader has gone."""
    reading, writing = os.pipe()
    os.close(reading)
    descriptor = os.fdopen(writing, "wb", buffering=0)
    with monkeypatch.context() as patch, descriptor:
        patch.setattr("click.echo", lambda text: descriptor.write(text.encode()))
        yield


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.usefixtures("closed_pipe")
def test_an_operation_is_cancelled_when_nobody_reads_its_progress(as_json: bool) -> None:
    cancellation = Cancellation()
    report = printing(as_json=as_json, cancellation=cancellation)
    report(Stopping())
    with pytest.raises(Cancelled):
        cancellation.sleep(0)
    report(Stopping())


@pytest.mark.usefixtures("closed_pipe")
def test_an_interrupt_is_undone_although_it_has_ended_the_reader_too(tmp_path: Path) -> None:
    undone: list[bool] = []
    report = ProgressReport(printing(as_json=False, cancellation=Cancellation()))
    with (
        pytest.raises(KeyboardInterrupt),
        undone_if_cancelled(
            lambda: undone.append(True), tmp_path / "state", report, "`cancel_drain`"
        ),
    ):
        raise KeyboardInterrupt
    assert undone


@pytest.mark.usefixtures("closed_pipe")
def test_an_undo_continues_when_nobody_reads_its_progress() -> None:
    printing(as_json=False)(Stopping())
