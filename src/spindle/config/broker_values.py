"""Values of broker keys that may be changed while the broker runs (KIP-226)."""

from collections.abc import Mapping

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import DYNAMIC_KEYS, DYNAMIC_ONLY
from spindle.config.node_config import NodeConfig
from spindle.config.topic_config import NO_CONFIG
from spindle.config.values import ConfigValue


def broker_integer(
    node: NodeConfig,
    name: str,
    *,
    broker: Mapping[str, str] = NO_CONFIG,
    cluster: Mapping[str, str] = NO_CONFIG,
) -> int:
    """The value that counts: of the broker, else of the cluster, else of the property file.

    A stored value that no longer parses is passed over.
    """
    key = DYNAMIC_KEYS[name]
    value: ConfigValue = None
    for values in (broker, cluster):
        if value is None and name in values:
            try:
                value = key.parse(values[name])
            except ConfigError:
                continue
    if value is None:
        value = key.default_value() if name in DYNAMIC_ONLY else node.get(name)
    assert isinstance(value, int), name
    return value
