"""Broker keys that are synonyms of each other, and keys for a single listener (KIP-226)."""

import re
from typing import Final

from spindle.config.broker_keys import DYNAMIC_KEYS
from spindle.config.definition import ConfigKey, UpdateMode

_GROUPS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_SYNONYMS: Final = {name: group for group in _GROUPS for name in group} | {
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
}

_LISTENER_OVERRIDE: Final = re.compile(r"listener\.name\.[^.]*\.(.*)\Z")
_PER_MECHANISM: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)
"""Keys that may have a mechanism's name before them in a key for a single listener."""

CLUSTER_LEVEL_LISTENER_KEYS: Final = (
    "max.connections",
    "max.connection.creation.rate",
    "num.network.threads",
)
"""Keys that may be set for a single listener on all brokers at once."""


def broker_synonyms(name: str) -> tuple[str, ...]:
    """Return the keys that can give a broker key its value, in order of precedence.

    The key itself is among them.
    """
    broker_synonyms = _SYNONYMS.get(name)
    if broker_synonyms is not None:
        return broker_synonyms
    base = listener_override(name)
    return (name,) if base is None else (name, base)


def listener_override(name: str) -> str | None:
    """Return the key in `listener.name.<listener>.[<mechanism>.]<key>`; None for other names."""
    match = _LISTENER_OVERRIDE.match(name)
    if match is None:
        return None
    return next((key for key in _PER_MECHANISM if match[1].endswith(key)), match[1])


def broker_key(name: str) -> ConfigKey | None:
    """Return the definition of a name, which may be a key for a single listener."""
    key = DYNAMIC_KEYS.get(name)
    base = listener_override(name) if key is None else None
    return key if base is None else DYNAMIC_KEYS.get(base)


def is_dynamic(name: str) -> bool:
    """Return whether Kafka lets the key itself be changed while the broker runs."""
    key = DYNAMIC_KEYS.get(name)
    return key is not None and key.update_mode is not UpdateMode.READ_ONLY
