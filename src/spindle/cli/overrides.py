"""The option `--override KEY=VALUE`."""

from collections.abc import Iterable

import click


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of `key=value` arguments.

    Raises:
        click.UsageError: an argument has no equals sign or no key.
    """
    overrides = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--override {text}: must be of the form key=value")
        overrides[key.strip()] = value.strip()
    return overrides
