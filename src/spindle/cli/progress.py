"""The progress of an operation on the screen: lines for people, or JSON lines for programs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from spindle.cli.option_names import with_option_names
from spindle.common.text import printable
from spindle.operations.cancellation import Cancellation, Cancelled
from spindle.operations.events import OnProgress, ProgressEvent


def printing(
    *, as_json: bool, cancellation: Cancellation | None = None, **common: Any
) -> OnProgress:
    """Return a function that prints events.

    It never raises `OSError`: a cancelled operation still reports events, and Ctrl-C also ends the
    reader of a pipe.

    Args:
        cancellation: cancelled when standard output can no longer be written, as after `| head`;
            with None the operation continues without output.
        common: the first fields of each JSON line.
    """
    is_writable = True

    def show(event: ProgressEvent) -> None:
        nonlocal is_writable
        if not is_writable:
            return
        if as_json:
            text = with_option_names(json.dumps({**common, "event": event.event, **event.facts}))
        else:
            text = "\n".join(map(printable, with_option_names(event.text).split("\n")))
        try:
            click.echo(text)
        except OSError:
            is_writable = False
            if cancellation is not None:
                cancellation.cancel()

    return show


@contextmanager
def aborted_by_interrupt() -> Iterator[None]:
    """End the command after a cancellation; the operation has undone its changes.

    Raises:
        click.Abort: the user pressed Ctrl-C, or the reader of the output has gone.
    """
    try:
        yield
    except (Cancelled, KeyboardInterrupt):
        raise click.Abort from None
