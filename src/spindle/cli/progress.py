"""The progress of an operation on the screen: lines for people, or JSON lines for programs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from spindle.common.printable import printable
from spindle.operations.events import OnProgress, ProgressEvent


def printing(*, as_json: bool, **common: Any) -> OnProgress:
    """Return a function that prints events.

    Args:
        common: facts that each JSON line begins with.
    """

    def show(event: ProgressEvent) -> None:
        if as_json:
            click.echo(json.dumps({**common, "event": event.event, **event.facts}))
        else:
            click.echo("\n".join(map(printable, event.text.split("\n"))))

    return show


@contextmanager
def aborted_by_interrupt() -> Iterator[None]:
    """End the command after Ctrl-C: the operation has undone what it had begun.

    Raises:
        click.Abort: the user pressed Ctrl-C.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise click.Abort from None
