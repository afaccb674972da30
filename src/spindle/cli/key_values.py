"""Settings on the command line, as NAME=VALUE."""

from collections.abc import Iterable

import click


def parse_key_values(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return settings from texts of the form NAME=VALUE.

    Args:
        option: the option or argument that an error names.

    Raises:
        click.UsageError: a text has no equals sign or no name.
    """
    settings = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not name.strip():
            raise click.UsageError(f"{option} {text}: a setting has the form NAME=VALUE")
        settings[name.strip()] = value.strip()
    return settings
