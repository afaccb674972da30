"""The configuration as one listener has it: keys of its own before those of the node (KIP-103).

A key of a listener is written `listener.name.NAME.KEY`, with the name in lower case. Keys of a SASL
mechanism have its name before them, also in lower case: `listener.name.NAME.plain.KEY`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.values import ConfigValue

if TYPE_CHECKING:
    from spindle.config.node_config import NodeConfig


_LISTENER_KEYS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms", "connection.failed.")
"""Beginnings of the names of keys that a listener may have of its own."""


def may_be_of_listener(name: str) -> bool:
    """Return whether a key has an effect for a single listener."""
    return name.startswith(_LISTENER_KEYS)


def listener_prefix(listener: str) -> str:
    """Return what is before the keys of a listener."""
    return f"listener.name.{listener.lower()}."


class ListenerConfig:
    """The values of one listener.

    Attributes:
        listener: the name, in upper case.
        properties: the texts of all keys that are set, without the prefix of the listener. A key
            with the prefix takes precedence; a key of a mechanism is named `plain.KEY` here.
        own: the names, without prefix, of the keys that are set with it.
    """

    __slots__ = ("listener", "own", "properties")

    def __init__(
        self, node: "NodeConfig", listener: str, dynamic: Mapping[str, str] | None = None
    ) -> None:
        """`dynamic` are the dynamic values of the node, over those of its property file."""
        self.listener: Final = listener
        prefix = listener_prefix(listener)
        merged = {**node.static, **(dynamic or {})}
        own = {k.removeprefix(prefix): v for k, v in merged.items() if k.startswith(prefix)}
        self.properties: Final[Mapping[str, str]] = {**merged, **own}
        self.own: Final = frozenset(own)

    def key_name(self, name: str) -> str:
        """Return the key under which a value is set, for errors."""
        return f"{listener_prefix(self.listener)}{name}" if name in self.own else name

    def get(self, name: str) -> ConfigValue:
        """Return the value of a key of `BROKER_KEYS`.

        Raises:
            ConfigError: the text of the value is refused.
        """
        text = self.properties.get(name)
        if text is None:
            return BROKER_KEYS[name].default_value()
        try:
            return BROKER_KEYS[name].parse(text)
        except ConfigError as error:
            raise ConfigError(f"listener {self.listener}: {error}") from None

    def integer(self, name: str) -> int:
        value = self.get(name)
        assert isinstance(value, int), name
        return value

    def flag(self, name: str) -> bool:
        value = self.get(name)
        assert isinstance(value, bool), name
        return value

    def text(self, name: str) -> str:
        value = self.get(name)
        assert isinstance(value, str), name
        return value

    def optional_text(self, name: str) -> str | None:
        return None if self.get(name) is None else self.text(name)

    def names(self, name: str) -> tuple[str, ...]:
        """Return the entries of a list key, in order; an unset list is empty."""
        value = self.get(name)
        assert value is None or isinstance(value, tuple), name
        return value or ()
