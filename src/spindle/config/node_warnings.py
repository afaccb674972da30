"""Warnings about a node's configuration: one sentence each, for the log at its start."""

from collections.abc import Iterator
from typing import Final

from spindle.config.authorizer import AUTHORIZER_KEYS, SUPER_USERS
from spindle.config.broker_keys import BROKER_KEYS, DYNAMIC_ONLY
from spindle.config.broker_synonyms import listener_override
from spindle.config.listener_config import listener_prefix, may_be_of_listener
from spindle.config.node_values import NodeValues
from spindle.config.validators import ListOf
from spindle.config.values import parse_type

_LISTENER_PREFIX: Final = "listener.name."
_FREE_PREFIXES: Final = (_LISTENER_PREFIX, "config.providers.", "rsm.config.", "rlmm.config.")
"""Prefixes below which a property file may have keys that no table lists."""
_TOKEN_KEYS: Final = "oauthbearer.sasl.oauthbearer."
"""Keys of a single listener for the mechanism OAUTHBEARER begin so, after the listener's name."""

_REPLICA_SELECTORS: Final = (
    None,
    "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    "org.apache.kafka.common.replica.LeaderSelector",
)
"""Values of `replica.selector.class` that Spindle implements."""


def node_warnings(config: NodeValues) -> Iterator[str]:
    """Return the warnings of a configuration, first those of single keys in the file's order."""
    for name in config.static:
        if name in DYNAMIC_ONLY:
            yield f"{name} has no effect in a property file: it is a dynamic configuration"
        elif not is_known(name):
            yield unknown_key_warning(name)
    yield from _without_effect(config)
    for name, text in config.static.items():
        key = BROKER_KEYS.get(name)
        if key is not None and isinstance(key.validator, ListOf):
            given = parse_type(name, text, key.type)
            if given != config.values[name]:
                yield f"{name}={text} has repeated entries, which count once"
    if not config.text("authorizer.class.name"):
        for name in AUTHORIZER_KEYS:
            if name in config.static:
                yield f"{name} has no effect: authorizer.class.name names no authorizer"
    else:
        yield from _misspelt_super_users(config.static.get(SUPER_USERS, ""))
    for path in config.log_dirs:
        if path.startswith(("'", '"')) or path.endswith(("'", '"')):
            yield (
                f"log.dirs: {path} has a quotation mark as a part of its name: commas separate "
                "directories, quoted or not"
            )
    selector = config.optional_text("replica.selector.class")
    if selector not in _REPLICA_SELECTORS:
        yield f"replica.selector.class={selector} has no effect: Java classes cannot be loaded"
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


def _misspelt_super_users(text: str) -> Iterator[str]:
    """Name the entries of `super.users` that match no client, although Kafka accepts them."""
    for user in filter(None, map(str.strip, text.split(";"))):
        if ",User:" in user.replace(" ", ""):
            yield f"{SUPER_USERS}: {user} is one principal; write a semicolon between two of them"
        elif not user.startswith("User:"):
            yield f"{SUPER_USERS}: no client is {user}; write User:NAME, with a capital U"


def _without_effect(config: NodeValues) -> Iterator[str]:
    """Name the keys that are set to another value than their default but change nothing.

    Values are left out, because some of them are passwords.
    """
    by_reason: dict[str, list[str]] = {}
    for name in config.static:
        key = BROKER_KEYS.get(name)
        if key is not None and key.no_effect and config.values[name] != key.default:
            by_reason.setdefault(key.no_effect, []).append(name)
        elif name.startswith(_LISTENER_PREFIX):
            reason = _why_without_effect(config, name)
            if reason is not None:
                by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        yield f"{', '.join(names)} {'has' if len(names) == 1 else 'have'} no effect: {reason}"


def _why_without_effect(config: NodeValues, name: str) -> str | None:
    """Return why a key for a single listener has no effect; None if it has one."""
    if not any(name.startswith(listener_prefix(known)) for known in config.security_protocols):
        return "it names no listener of listener.security.protocol.map, in lower case"
    base = listener_override(name) or ""
    if base.startswith(_TOKEN_KEYS):
        base = base.partition(".")[2]
    key = BROKER_KEYS.get(base)
    if key is None:
        return "there is no such key"
    if key.no_effect:
        return key.no_effect
    return None if may_be_of_listener(key.name) else "the key cannot be set for a single listener"


def is_known(name: str) -> bool:
    """Return True if a property file may have the key."""
    return (
        name in BROKER_KEYS
        or name in DYNAMIC_ONLY
        or name in AUTHORIZER_KEYS
        or name.startswith(_FREE_PREFIXES)
    )


def unknown_key_warning(name: str) -> str:
    """Return the sentence for a key that does not exist, with the nearest key that does."""
    # Imported here because only a file with a mistake needs it.
    from difflib import get_close_matches

    nearest = get_close_matches(name, BROKER_KEYS, n=1, cutoff=0.75)
    hint = f" (did you mean {nearest[0]}?)" if nearest else ""
    return f"configuration key {name} is unknown and has no effect{hint}"
