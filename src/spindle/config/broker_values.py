"""Values of broker keys that can be changed while the broker runs (KIP-226)."""

from collections.abc import Mapping

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import DYNAMIC_KEYS, DYNAMIC_ONLY
from spindle.config.node_config import NodeConfig
from spindle.config.topic_config import NO_CONFIG
from spindle.config.values import ConfigValue


class BrokerValues:
    """The values in force: of this broker, else of all brokers, else of the property file.

    A stored value that no longer parses is skipped, so that a broker can start with values that
    an older version stored.

    Args:
        node: the property file.
        broker: dynamic values of this broker.
        cluster: dynamic defaults of all brokers.
    """

    __slots__ = ("_dynamic", "_node")

    def __init__(
        self,
        node: NodeConfig,
        broker: Mapping[str, str] = NO_CONFIG,
        cluster: Mapping[str, str] = NO_CONFIG,
    ) -> None:
        self._node = node
        self._dynamic = (broker, cluster)

    def integer(self, name: str) -> int:
        """Return the value of a key of type SHORT, INT or LONG."""
        value = self._value(name)
        assert isinstance(value, int), name
        return value

    def flag(self, name: str) -> bool:
        """Return the value of a key of type BOOLEAN."""
        value = self._value(name)
        assert isinstance(value, bool), name
        return value

    def decimal(self, name: str) -> float:
        """Return the value of a key of type DOUBLE."""
        value = self._value(name)
        assert isinstance(value, float), name
        return value

    def text(self, name: str) -> str:
        """Return the value of a key of type STRING."""
        value = self._value(name)
        assert isinstance(value, str), name
        return value

    def _value(self, name: str) -> ConfigValue:
        key = DYNAMIC_KEYS[name]
        for layer in self._dynamic:
            if name in layer:
                try:
                    return key.parse(layer[name])
                except ConfigError:
                    continue
        return key.default_value() if name in DYNAMIC_ONLY else self._node.get(name)
