"""The configuration as one SASL mechanism of a listener has it.

A key is taken from `listener.name.NAME.MECHANISM.KEY`, then from `listener.name.NAME.KEY`, and then
from the node.
"""

from typing import Final

from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.listener_config import ListenerConfig, listener_prefix
from spindle.config.values import ConfigValue


class MechanismConfig:
    """The values of one mechanism; `own_text` has only those that are set for it."""

    def __init__(self, listener: ListenerConfig, mechanism: str) -> None:
        self.listener: Final = listener
        self._prefix = f"{mechanism.lower()}."

    def own_text(self, name: str) -> str | None:
        """Return the text of a key that is set for the mechanism alone."""
        return self.listener.properties.get(self._prefix + name)

    def own_key_name(self, name: str) -> str:
        """Return the key of the mechanism, for errors."""
        return f"{listener_prefix(self.listener.listener)}{self._prefix}{name}"

    def key_name(self, name: str) -> str:
        """Return the key under which a value is set, for errors."""
        if self.own_text(name) is None:
            return self.listener.key_name(name)
        return self.listener.key_name(self._prefix + name)

    def get(self, name: str) -> ConfigValue:
        """Return a value.

        Raises:
            ConfigError: the text of the value is refused.
        """
        text = self.own_text(name)
        return self.listener.get(name) if text is None else BROKER_KEYS[name].parse(text)

    def integer(self, name: str) -> int:
        value = self.get(name)
        assert isinstance(value, int), name
        return value

    def optional_text(self, name: str) -> str | None:
        value = self.get(name)
        assert value is None or isinstance(value, str), name
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """Return the entries of a list key, in order; an unset list is empty."""
        value = self.get(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()
