"""Ctrl-C while moves are under way: they are undone, and the command ends."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click

from spindle.cli.execution.steps import ExecutionStep, Tell


@contextmanager
def undone_by_interrupt(undo: Callable[[], None], tell: Tell) -> Iterator[None]:
    """Call a function after Ctrl-C.

    Raises:
        click.Abort: the user pressed Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        tell(ExecutionStep("stopping", "stopping the moves"))
        undo()
        raise click.Abort from None
