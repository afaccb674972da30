"""The configuration of one SASL mechanism of a listener.

A key is taken from `listener.name.NAME.MECHANISM.KEY`, then from `listener.name.NAME.KEY`, and then
from the node. As in Kafka, `MECHANISM.KEY` without the listener has no effect.
"""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.listener_config import ListenerConfig, listener_prefix
from spindle.config.typed_values import TypedValues
from spindle.config.values import ConfigValue


class MechanismConfig(TypedValues):
    """The values of one mechanism.

    Attributes:
        own: the texts of the keys that are set for the mechanism alone, by name without prefixes.
    """

    def __init__(self, listener: ListenerConfig, mechanism: str) -> None:
        self._listener = listener
        self._prefix = f"{mechanism.lower()}."
        self.own: Final[Mapping[str, str]] = {
            key.removeprefix(self._prefix): listener.properties[key]
            for key in listener.own
            if key.startswith(self._prefix)
        }

    def own_text(self, name: str) -> str | None:
        """Return the text of a key that is set for the mechanism alone."""
        return self.own.get(name)

    def own_key_name(self, name: str) -> str:
        """Return the key of the mechanism, for errors."""
        return f"{listener_prefix(self._listener.listener)}{self._prefix}{name}"

    def key_name(self, name: str) -> str:
        """Return the key under which a value is set, for errors."""
        return self.own_key_name(name) if name in self.own else self._listener.key_name(name)

    def get(self, key: str) -> ConfigValue:
        text = self.own_text(key)
        if text is None:
            return self._listener.get(key)
        try:
            return BROKER_KEYS[key].parse(text)
        except ConfigError as error:
            raise ConfigError(f"{self.own_key_name(key)}: {error}") from None
