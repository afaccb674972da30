"""The property file of a node."""

from collections.abc import Mapping

from spindle.common.errors import ConfigError
from spindle.config.node_config import NodeConfig
from spindle.config.properties import read_properties


def load_node_config(
    path: str, overrides: Mapping[str, str] | None = None, *, must_run: bool = False
) -> NodeConfig:
    """Return the configuration in a file, with `overrides` on top.

    Args:
        must_run: the node is about to start, see `NodeConfig.from_properties`.

    Raises:
        ConfigError: the file cannot be read, or the configuration cannot be used.
    """
    try:
        properties = read_properties(path)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    return NodeConfig.from_properties({**properties, **(overrides or {})}, must_run=must_run)
