"""The property file that a command is given for a node."""

from collections.abc import Iterable, Mapping

import click

from spindle.cli.failure import CommandFailed
from spindle.config.node_config import NodeConfig
from spindle.config.properties import read_properties


def load_node_config(
    path: str, overrides: Mapping[str, str] | None = None, *, must_run: bool = False
) -> NodeConfig:
    """Return the configuration in a file, with `overrides` on top.

    Args:
        must_run: the node is about to start, see `NodeConfig.from_properties`.

    Raises:
        CommandFailed: the file cannot be read.
        ConfigError: the configuration cannot be used.
    """
    try:
        properties = read_properties(path)
    except OSError as error:
        raise CommandFailed(f"cannot read {path}: {error.strerror}") from None
    return NodeConfig.from_properties({**properties, **(overrides or {})}, must_run=must_run)


def parse_overrides(texts: Iterable[str]) -> dict[str, str]:
    """Return the keys and values of `key=value` arguments.

    Raises:
        CommandFailed: an argument has no equals sign or no key.
    """
    overrides = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key.strip():
            raise click.UsageError(f"--override {text}: must be of the form key=value")
        overrides[key.strip()] = value.strip()
    return overrides
