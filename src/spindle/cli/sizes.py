"""Sizes on a command line."""

import re
from typing import Final

import click

_SIZE: Final = re.compile(r"(\d+)\s*(?:([KMGT])i?)?B?", re.IGNORECASE)
_POWERS: Final = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}


def parse_size(_: click.Context, parameter: click.Parameter, text: str | None) -> int | None:
    """Return the bytes that an option names; the callback of a click option.

    Raises:
        click.BadParameter: the text is not a size above 0.
    """
    return None if text is None else size_of(text, parameter)


def size_of(text: str, parameter: click.Parameter | None = None) -> int:
    """Return the bytes that a text such as `512MiB` or `1G` names.

    Args:
        parameter: the one that an error names.

    Raises:
        click.BadParameter: the text is not a size above 0.
    """
    match = _SIZE.fullmatch(text.strip())
    size_bytes = 0
    if match is not None:
        power: int = _POWERS[(match[2] or "").upper()]
        size_bytes = int(match[1]) * 1024**power
    if size_bytes < 1:
        raise click.BadParameter(
            f"{text!r} is not a size above 0, such as 512MiB or 1G", param=parameter
        )
    return size_bytes
