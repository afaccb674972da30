"""What is odd in a node's configuration without being refused: one sentence each, for the log."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from spindle.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY
from spindle.config.definition import CLASS
from spindle.config.validators import ListOf
from spindle.config.values import parse_type

if TYPE_CHECKING:
    from spindle.config.node_config import NodeConfig

_FREE_PREFIXES: Final = ("listener.name.", "config.providers.", "rsm.config.", "rlmm.config.")
"""Below these prefixes a file may have keys of its own."""


def node_warnings(config: "NodeConfig") -> Iterator[str]:
    """The warnings of a configuration: unknown keys first, in the order of the file."""
    for name in config.static:
        if name in DYNAMIC_ONLY:
            yield f"{name} has no effect in a property file: it is a dynamic configuration"
        elif name not in BROKER_KEYS and not name.startswith(_FREE_PREFIXES):
            yield unknown_key_warning(name, BROKER_KEYS)
        elif (
            name in BROKER_KEYS
            and BROKER_KEYS[name].type is CLASS
            and config.static[name] not in _KNOWN_CLASSES.get(name, ())
            and name != _PRINCIPAL_BUILDER
        ):
            yield f"{name}={config.static[name]} names a Java class, which cannot be loaded"
    for name, text in config.static.items():
        key = BROKER_KEYS.get(name)
        if key is not None and isinstance(key.validator, ListOf):
            given = parse_type(name, text, key.type)
            if given != config.values[name]:
                yield f"{name}={text} has repeated entries, which count once"
    if config.names("config.providers"):
        yield "config.providers is not supported: placeholders in values stay as they are"
    if config.flag("remote.log.storage.system.enable"):
        yield "remote.log.storage.system.enable=true has no effect: there is no remote storage"
    if config.process_roles == ("broker",) and len(config.controller_listener_names) > 1:
        names = ",".join(config.controller_listener_names)
        yield f"controller.listener.names={names}: a broker uses only the first entry"
    interval_ms = config.integer("broker.heartbeat.interval.ms")
    session_ms = config.integer("broker.session.timeout.ms")
    if interval_ms * 2 > session_ms:
        yield (
            f"broker.heartbeat.interval.ms={interval_ms} is more than half of "
            f"broker.session.timeout.ms={session_ms}: one lost heartbeat fences the broker"
        )


_PRINCIPAL_BUILDER: Final = "principal.builder.class"
_KNOWN_CLASSES: Final = {
    "replica.selector.class": (
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "org.apache.kafka.common.replica.LeaderSelector",
    )
}
"""What these classes do, Spindle does as well."""


def unknown_key_warning(name: str, known: Iterable[str]) -> str:
    """The sentence for a key that has no effect, with the nearest known key if there is one."""
    # Only a file with a mistake pays for the import.
    from difflib import get_close_matches

    nearest = get_close_matches(name, known, n=1, cutoff=0.75)
    hint = f" (did you mean {nearest[0]}?)" if nearest else ""
    return f"configuration key {name} is unknown and has no effect{hint}"
