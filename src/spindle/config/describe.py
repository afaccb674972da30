"""The effective configuration as DescribeConfigs shows it (KIP-133, KIP-226, KIP-524).

Each key comes with its value, the source of the value, and its synonyms: the values that are set
for the same purpose, in order of precedence. Sensitive values are left out.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from spindle.common.errors import ConfigError
from spindle.config.broker_keys import BROKER_KEYS, DYNAMIC_KEYS
from spindle.config.broker_synonyms import broker_key, broker_synonyms, is_dynamic
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.config.definition import ConfigKey
from spindle.config.group_keys import GROUP_BROKER_KEYS, GROUP_KEYS
from spindle.config.node_config import NodeConfig
from spindle.config.resources import ConfigSource
from spindle.config.topic_config import NO_CONFIG, default_of
from spindle.config.topic_keys import BROKER_SYNONYMS, TOPIC_KEYS
from spindle.config.values import ConfigType, text_of


class ConfigSynonym(NamedTuple):
    """A value for the same purpose, and its source. `value` is None where it is sensitive."""

    name: str
    value: str | None
    source: ConfigSource


class DescribedConfig(NamedTuple):
    """One key of a resource as DescribeConfigs shows it."""

    name: str
    value: str | None
    source: ConfigSource
    is_sensitive: bool
    is_read_only: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    type: ConfigType = ConfigType.UNKNOWN
    documentation: str | None = None


class BrokerLayers(NamedTuple):
    """The configuration of a broker: the property file, and two layers of dynamic values."""

    node: NodeConfig
    cluster: Mapping[str, str] = NO_CONFIG
    """Dynamic defaults of all brokers."""
    broker: Mapping[str, str] = NO_CONFIG
    """Dynamic values of this broker."""

    def synonyms(self, name: str, *, is_sensitive: bool) -> tuple[ConfigSynonym, ...]:
        """Return the values of a key and its synonyms, from the first one of the key itself."""
        layers = (
            (self.broker, ConfigSource.DYNAMIC_BROKER_CONFIG),
            (self.cluster, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
            (self.node.static, ConfigSource.STATIC_BROKER_CONFIG),
        )
        names = broker_synonyms(name)
        synonyms = [
            ConfigSynonym(synonym, None if is_sensitive else values[synonym], source)
            for values, source in layers
            for synonym in names
            if synonym in values
        ]
        for synonym in names:
            default = BROKER_KEYS[synonym].default_text() if synonym in BROKER_KEYS else None
            if default is not None:
                shown = None if is_sensitive else default
                synonyms.append(ConfigSynonym(synonym, shown, ConfigSource.DEFAULT_CONFIG))
        first = next(
            (i for i, synonym in enumerate(synonyms) if synonym.name == name), len(synonyms)
        )
        return tuple(synonyms[first:])


def describe_topic(
    layers: BrokerLayers, topic: Mapping[str, str], names: Sequence[str] | None = None
) -> list[DescribedConfig]:
    """Return the configuration of a topic, sorted by name.

    Args:
        topic: the topic's own values.
        names: the keys to return; None or empty for all.
    """
    keys = [name for name, key in TOPIC_KEYS.items() if not key.is_internal or name in topic]
    return [_describe_topic_key(layers, topic, name) for name in _wanted(keys, names)]


def _describe_topic_key(
    layers: BrokerLayers, topic: Mapping[str, str], name: str
) -> DescribedConfig:
    key = TOPIC_KEYS[name]
    beneath: tuple[ConfigSynonym, ...] = ()
    if name in BROKER_SYNONYMS:
        beneath = layers.synonyms(BROKER_SYNONYMS[name][0].name, is_sensitive=key.is_sensitive)
    if name in topic:
        value = _normal_text(key, topic[name])
        synonyms = (ConfigSynonym(name, value, ConfigSource.TOPIC_CONFIG), *beneath)
    else:
        value = text_of(default_of(name, layers.node, broker=layers.broker, cluster=layers.cluster))
        synonyms = beneath
    return DescribedConfig(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        key.is_sensitive,
        False,
        synonyms,
        key.type,
        key.documentation,
    )


def describe_broker(
    layers: BrokerLayers, names: Sequence[str] | None = None
) -> list[DescribedConfig]:
    """Return the configuration of a broker, sorted by name, including unknown keys that are set.

    An internal key is in it if it is set, or named in `names`.
    """
    public = {name: None for name, key in BROKER_KEYS.items() if not key.is_internal}
    given = {**layers.node.static, **layers.cluster, **layers.broker}
    named = [n for n in names or () if n in DYNAMIC_KEYS and DYNAMIC_KEYS[n].is_internal]
    every = sorted(public | dict.fromkeys((*given, *named)))
    return [_describe_broker_key(layers, name) for name in _wanted(every, names)]


def describe_default_broker(
    cluster: Mapping[str, str], names: Sequence[str] | None = None
) -> list[DescribedConfig]:
    """Return the dynamic defaults of all brokers, sorted by name."""
    described = []
    for name in _wanted(sorted(cluster), names):
        key = broker_key(name)
        is_sensitive = key is None or key.is_sensitive
        value = None if is_sensitive else cluster[name]
        source = ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
        described.append(
            DescribedConfig(
                name,
                value,
                source,
                is_sensitive,
                not is_dynamic(name),
                (ConfigSynonym(name, value, source),),
                ConfigType.UNKNOWN if key is None else key.type,
                _documentation(name),
            )
        )
    return described


def _describe_broker_key(layers: BrokerLayers, name: str) -> DescribedConfig:
    key = broker_key(name)
    # The value of an unknown key may be a secret, so it is not shown.
    is_sensitive = key is None or key.is_sensitive
    synonyms = layers.synonyms(name, is_sensitive=is_sensitive)
    value: str | None = None
    if not is_sensitive and key is not None:
        given = next((v[name] for v in _layers_of(layers) if name in v), None)
        value = key.default_text() if given is None else _normal_text(key, given)
    return DescribedConfig(
        name,
        value,
        synonyms[0].source if synonyms else ConfigSource.DEFAULT_CONFIG,
        is_sensitive,
        not is_dynamic(name),
        synonyms,
        ConfigType.UNKNOWN if key is None else key.type,
        _documentation(name),
    )


def _documentation(name: str) -> str | None:
    """Return the documentation of a key; a key for a single listener has none."""
    key = DYNAMIC_KEYS.get(name)
    return None if key is None else key.documentation


def _layers_of(layers: BrokerLayers) -> tuple[Mapping[str, str], ...]:
    return layers.broker, layers.cluster, layers.node.static


def describe_group(
    layers: BrokerLayers, group: Mapping[str, str], names: Sequence[str] | None = None
) -> list[DescribedConfig]:
    """Return the configuration of a group, sorted by name."""
    described = []
    named = names or ()
    keys = [n for n, k in GROUP_KEYS.items() if not k.is_internal or n in group or n in named]
    for name in _wanted(keys, names):
        key = GROUP_KEYS[name]
        if name in GROUP_BROKER_KEYS:
            synonyms = layers.synonyms(GROUP_BROKER_KEYS[name], is_sensitive=False)
        else:
            default = key.default_text()
            synonyms = (ConfigSynonym(name, default, ConfigSource.DEFAULT_CONFIG),)
        value = synonyms[0].value
        if name in group:
            value = _normal_text(key, group[name])
            synonyms = (ConfigSynonym(name, value, ConfigSource.GROUP_CONFIG), *synonyms)
        described.append(
            DescribedConfig(
                name,
                value,
                synonyms[0].source,
                False,
                False,
                synonyms,
                key.type,
                key.documentation,
            )
        )
    return described


def describe_client_metrics(
    subscription: Mapping[str, str], names: Sequence[str] | None = None
) -> list[DescribedConfig]:
    """Return the configuration of a client metrics subscription, sorted by name."""
    described = []
    for name in _wanted(CLIENT_METRICS_KEYS, names):
        key = CLIENT_METRICS_KEYS[name]
        value, source = key.default_text(), ConfigSource.DEFAULT_CONFIG
        synonyms: tuple[ConfigSynonym, ...] = ()
        if name in subscription:
            value, source = (
                _normal_text(key, subscription[name]),
                ConfigSource.CLIENT_METRICS_CONFIG,
            )
            synonyms = (ConfigSynonym(name, value, source),)
        described.append(
            DescribedConfig(
                name, value, source, False, False, synonyms, key.type, key.documentation
            )
        )
    return described


def _wanted(every: Iterable[str], names: Sequence[str] | None) -> list[str]:
    return [name for name in every if not names or name in names]


def _normal_text(key: ConfigKey, text: str) -> str | None:
    """Return the text of the parsed value: lists without blanks, numbers in one form."""
    try:
        return text_of(key.parse(text))
    except ConfigError:
        return text
