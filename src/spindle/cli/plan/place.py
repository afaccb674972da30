"""Places on a command line: `BROKER`, `BROKER:DIR`, `BROKER:RACK`."""

from typing import Final

import click

from spindle.operations.directories import DrainTarget, drain_target

_DIRECTORY: Final = "BROKER or BROKER:DIR, such as 2 or 2:/data/1"


def parse_place(text: str, form: str = _DIRECTORY) -> tuple[int, str | None]:
    """Return the broker id, and the part after the colon if there is one.

    Args:
        form: the expected form with an example, for the error.

    Raises:
        click.BadParameter: the broker is not a number.
    """
    broker, colon, rest = text.partition(":")
    if not broker.isdecimal() or (colon and not rest):
        raise click.BadParameter(f"{text!r} is not {form}")
    return int(broker), rest or None


def parse_drain_target(text: str) -> DrainTarget:
    """Return the broker or the directory that a text names. Shell completion appends a slash to a
    path, which is left out.

    Raises:
        click.BadParameter: the broker id is not a number.
    """
    return drain_target(*parse_place(text))
