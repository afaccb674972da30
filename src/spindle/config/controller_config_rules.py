"""The configuration rules of a controller: values that it accepts, and defaults of new topics.

`ControllerConfigRules` implements the controller's port; everything here is pure.
"""

from collections.abc import Callable, Mapping

from spindle.config.broker_keys import DYNAMIC_KEYS
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.config.definition import LIST, ConfigKey
from spindle.config.describe import (
    BrokerLayers,
    DescribedConfig,
    describe_topic,
)
from spindle.config.group_keys import GROUP_KEYS
from spindle.config.node_config import NodeConfig
from spindle.config.resources import ConfigResourceType
from spindle.config.topic_keys import TOPIC_KEYS
from spindle.config.validate import validate_resource

_KEYS: Mapping[int, Mapping[str, ConfigKey]] = {
    ConfigResourceType.TOPIC: TOPIC_KEYS,
    ConfigResourceType.BROKER: DYNAMIC_KEYS,
    ConfigResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
    ConfigResourceType.GROUP: GROUP_KEYS,
}


def key_of(resource_type: int, name: str) -> ConfigKey | None:
    """Return the definition of a key of this kind of resource; None if there is no such key."""
    return _KEYS.get(resource_type, {}).get(name)


class ControllerConfigRules:
    """Configuration rules with the defaults and limits of one node."""

    __slots__ = ("_node",)

    def __init__(self, node: NodeConfig) -> None:
        self._node = node

    def validate(self, resource_type: int, resource_name: str, values: Mapping[str, str]) -> None:
        """Check all values that a resource would have after a change.

        Raises:
            ApiError: INVALID_CONFIG or INVALID_REQUEST, naming key and value.
        """
        validate_resource(self._node, resource_type, resource_name, values)

    def is_list(self, resource_type: int, name: str) -> bool:
        """Return whether APPEND and SUBTRACT apply to the key."""
        key = key_of(resource_type, name)
        return key is not None and key.type is LIST

    def default(self, resource_type: int, name: str) -> str | None:
        """Return the default of the key as a text; None where it has none."""
        key = key_of(resource_type, name)
        return None if key is None else key.default_text()

    def is_sensitive(self, resource_type: int, name: str) -> bool:
        """Return whether the value must not be logged, as that of every unknown key."""
        key = key_of(resource_type, name)
        return key is None or key.is_sensitive

    def effective_topic_configs(
        self,
        values: Mapping[str, str],
        default_broker: Mapping[str, str],
        broker: Callable[[int], Mapping[str, str]],
    ) -> list[DescribedConfig]:
        """Return all keys of a topic, sorted by name: `values` over the defaults of this node.

        Args:
            default_broker: the dynamic values of all brokers.
            broker: the dynamic values of one, by its id.
        """
        layers = BrokerLayers(self._node, default_broker, broker(self._node.node_id))
        return describe_topic(layers, values)
