"""The configuration of one listener: its own keys before those of the node (KIP-103).

A key of a listener is written `listener.name.NAME.KEY`, with the name in lower case. Keys of a SASL
mechanism have its name before them, also in lower case: `listener.name.NAME.plain.KEY`.
"""

from collections.abc import Mapping
from typing import Final

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS
from spindle.config.node_values import NodeValues
from spindle.config.typed_values import TypedValues
from spindle.config.values import ConfigValue

_LISTENER_KEYS: Final = ("ssl.", "sasl.", "connections.max.reauth.ms", "connection.failed.")
"""Beginnings of the names of keys that a listener may have of its own."""


def may_be_of_listener(name: str) -> bool:
    """Return whether a key has an effect for a single listener."""
    return name.startswith(_LISTENER_KEYS)


def listener_prefix(listener: str) -> str:
    """Return the prefix of the keys of a listener."""
    return f"listener.name.{listener.lower()}."


class ListenerConfig(TypedValues):
    """The values of one listener.

    Attributes:
        listener: the name, in upper case.
        properties: the texts of all keys that are set, without the prefix of the listener. A key
            with the prefix takes precedence; a key of a mechanism is named `plain.KEY` here.
        own: the names, without prefix, of the keys that are set with it.
    """

    __slots__ = ("listener", "own", "properties")

    def __init__(
        self, node: NodeValues, listener: str, dynamic: Mapping[str, str] | None = None
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

    def get(self, key: str) -> ConfigValue:
        text = self.properties.get(key)
        if text is None:
            return BROKER_KEYS[key].default_value()
        try:
            return BROKER_KEYS[key].parse(text)
        except ConfigError as error:
            raise ConfigError(f"listener {self.listener}: {error}") from None
