"""Notes on standard error about what a command waits for: a broker, or a request it repeats."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

import click

from spindle.cli.tools.failures import failure
from spindle.client.blocking.client import WireClient
from spindle.common.text import printable

_FIRST_AFTER_S: Final = 3.0
_INTERVAL_S: Final = 1.0


@contextmanager
def wait_notes(client: WireClient) -> Iterator[None]:
    """Print what a client waits for, as soon as it waits for more than three seconds.

    Each note is printed once.
    """
    has_ended = Event()

    def watch() -> None:
        printed: set[str] = set()
        pause_s = _FIRST_AFTER_S
        while not has_ended.wait(pause_s):
            note = wait_text(client, _FIRST_AFTER_S)
            if note and note not in printed:
                click.echo(printable(note), err=True)
                printed.add(note)
            pause_s = _INTERVAL_S

    thread = Thread(target=watch, name="wait-notes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        has_ended.set()
        thread.join()


def wait_text(client: WireClient, after_s: float) -> str:
    """Return what a client waits for; empty if no broker has owed an answer for this time."""
    silent = client.silent_addresses(after_s)
    if silent:
        return f"waiting for {', '.join(map(str, silent))} to answer"
    error = client.retried_failure
    return "" if error is None else f"trying again: {failure(error).plainly}"
