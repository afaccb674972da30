"""The configuration of one node, from its property file: typed, immutable and checked.

`node_checks` refuses values that contradict each other. An unknown key is not an error; a
warning names the nearest known key.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.node_checks import check_node, check_supported
from spindle.config.node_values import NodeValues
from spindle.config.node_warnings import node_warnings
from spindle.config.properties import read_properties


class NodeConfig(NodeValues):
    """The configuration of a node.

    Attributes:
        warnings: sentences for the log, see `node_warnings`.
    """

    __slots__ = ("warnings",)

    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.warnings: Final = tuple(node_warnings(self))

    @classmethod
    def from_properties(
        cls, properties: Mapping[str, str], *, must_run: bool = False
    ) -> "NodeConfig":
        """Return the configuration of `properties`, with every rule between keys checked.

        Args:
            must_run: the configuration is for a node that is about to start, so settings that
                Spindle does not support are refused, before any other rule.

        Raises:
            ConfigError: a value is refused, a required key is missing, or keys contradict.
        """
        config = cls(properties)
        if must_run:
            check_supported(config)
        check_node(config)
        return config

    def with_log_dirs(self, log_dirs: Iterable[str]) -> "NodeConfig":
        """Return this configuration with other log directories; the first one stays the first."""
        return NodeConfig({**self.static, "log.dirs": ",".join(log_dirs)})

    def __repr__(self) -> str:
        return f"NodeConfig(node_id={self.node_id}, process_roles={','.join(self.process_roles)})"


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
