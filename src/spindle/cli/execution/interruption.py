"""Ctrl-C while moves are under way: they are undone, and the command ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from spindle.cli.execution.progress_events import ProgressEvent, Reporter


@contextmanager
def undone_by_interrupt(
    undo: Callable[[], None],
    file: Path,
    report: Reporter,
    remedy: str = "the same command with --cancel",
) -> Iterator[None]:
    """Call a function after Ctrl-C.

    Args:
        file: has what is still to be undone after a second Ctrl-C.
        remedy: the command that undoes it.

    Raises:
        click.Abort: the user pressed Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        report(ProgressEvent("stopping", "stopping the moves"))
        try:
            undo()
        except KeyboardInterrupt:
            text = f"not everything is undone: {file} has what is left, and {remedy} undoes it"
            report(ProgressEvent("notUndone", text, {"state": str(file)}))
        raise click.Abort from None
