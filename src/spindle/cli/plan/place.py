"""Places on a command line: `BROKER`, `BROKER:DIR`, `BROKER:RACK`."""

import click

from spindle.operations.directories import DrainTarget, drain_target


def parse_place(text: str) -> tuple[int, str | None]:
    """Return the broker id, and the part after the colon if there is one.

    Raises:
        click.BadParameter: the broker is not a number.
    """
    broker, colon, rest = text.partition(":")
    if not broker.isdecimal() or (colon and not rest):
        raise click.BadParameter(f"{text!r} is not BROKER or BROKER:DIR, such as 2 or 2:/data/1")
    return int(broker), rest or None


def parse_drain_target(text: str) -> DrainTarget:
    """Return the broker or the directory that a text names. Shell completion appends a slash to a
    path, which is left out.

    Raises:
        click.BadParameter: the broker id is not a number.
    """
    return drain_target(*parse_place(text))
