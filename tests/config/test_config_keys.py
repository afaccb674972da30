"""The key tables agree with Kafka's and with each other."""

import re
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from spindle.config.broker_keys import BROKER_KEYS, DYNAMIC_KEYS
from spindle.config.broker_synonyms import is_dynamic
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.config.definition import REQUIRED, ConfigKey, UpdateMode
from spindle.config.group_keys import GROUP_BROKER_KEYS, GROUP_KEYS
from spindle.config.topic_keys import BROKER_SYNONYMS, TOPIC_KEYS
from spindle.config.values import ConfigType
from spindle.pipeline.options.client_names import CLIENT_PROPERTIES

EVERY = [
    *DYNAMIC_KEYS.values(),
    *TOPIC_KEYS.values(),
    *GROUP_KEYS.values(),
    *CLIENT_METRICS_KEYS.values(),
]


class KafkaKey(NamedTuple):
    """A key of Kafka, as tools/kafka/ConfigKeys.java prints it."""

    kind: str
    name: str
    type: str
    default: str
    permitted: str
    update_mode: str
    internal: str


KAFKA_KEYS = [
    KafkaKey(*line.split("\t"))
    for line in (Path(__file__).parent / "recorded" / "config-keys-4.4.0.tsv")
    .read_text()
    .splitlines()
]
PYTHON_TYPES: dict[ConfigType, type | tuple[type, ...]] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.SHORT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple,
    ConfigType.STRING: str,
    ConfigType.CLASS: str,
    ConfigType.PASSWORD: str,
}


def test_keys_are_those_of_kafka() -> None:
    """Type, default, permitted values, update mode and visibility of every key of Kafka."""
    own = {
        "broker": {n: k for n, k in BROKER_KEYS.items() if not n.startswith("spindle.")},
        "topic": TOPIC_KEYS,
        "group": GROUP_KEYS,
        "client-metrics": CLIENT_METRICS_KEYS,
    }
    for kind, keys in own.items():
        theirs = {row.name: row for row in KAFKA_KEYS if row.kind == kind}
        assert keys.keys() == theirs.keys()
        for name, key in keys.items():
            assert _row(kind, key) == theirs[name]


def test_names_of_client_properties_are_those_of_kafka() -> None:
    kinds = ("producer", "consumer", "admin")
    names = {row.name for row in KAFKA_KEYS if row.kind in kinds and not row.internal}
    assert sorted(names) == list(CLIENT_PROPERTIES)


# The first one takes every text; Kafka's validator of the other has no text.
_VALIDATOR_TEXTS = {
    "authorizer.class.name": "non-null string",
    "max.connections.per.ip.overrides": "",
}


def _default(key: ConfigKey) -> str:
    if key.default is REQUIRED:
        return "(none)"
    return "null" if key.default is None else key.default_text() or ""


def _row(kind: str, key: ConfigKey) -> KafkaKey:
    is_dynamic = kind == "broker" and key.update_mode is not UpdateMode.WITH_RESOURCE
    return KafkaKey(
        kind,
        key.name,
        key.type.name.lower(),
        _default(key),
        _VALIDATOR_TEXTS.get(key.name, str(key.validator or "")),
        key.update_mode.name.lower().replace("_", "-") if is_dynamic else "",
        "internal" if key.is_internal else "",
    )


@pytest.mark.parametrize("key", EVERY, ids=lambda key: key.name)
def test_a_key_accepts_its_own_default_and_is_documented_in_sentences(key: ConfigKey) -> None:
    if key.default is not REQUIRED and key.default is not None:
        assert isinstance(key.default, PYTHON_TYPES[key.type])
        if key.validator is not None:
            key.validator.check(key.name, key.default_value())
        assert key.parse(key.default_text() or "") == key.default
    assert re.fullmatch(r"[A-Z].*\.", key.documentation), key.documentation


def test_dynamic_keys_are_those_of_kafka() -> None:
    of_kafka = [key for name, key in DYNAMIC_KEYS.items() if not name.startswith("spindle.")]
    modes = [key.update_mode for key in of_kafka]
    assert modes.count(UpdateMode.PER_BROKER) == 37
    assert modes.count(UpdateMode.CLUSTER_WIDE) == 73
    assert is_dynamic("cordoned.log.dirs")
    assert not is_dynamic("log.dirs")
    assert not is_dynamic("log.retention.hours")


def test_every_topic_key_but_seven_has_a_broker_key() -> None:
    assert all(s.name in BROKER_KEYS for group in BROKER_SYNONYMS.values() for s in group)
    assert sorted(set(TOPIC_KEYS) - set(BROKER_SYNONYMS)) == [
        "errors.deadletterqueue.group.enable",
        "follower.replication.throttled.replicas",
        "internal.segment.bytes",
        "leader.replication.throttled.replicas",
        "remote.log.copy.disable",
        "remote.log.delete.on.disable",
        "remote.storage.enable",
    ]


@pytest.mark.parametrize("name", sorted(BROKER_SYNONYMS))
def test_a_topic_key_and_its_broker_key_agree_on_type_and_default(name: str) -> None:
    synonyms = BROKER_SYNONYMS[name]
    last = BROKER_KEYS[synonyms[-1].name]
    default: Any = last.default_value()
    scaled = default * synonyms[-1].factor if synonyms[-1].factor > 1 else default
    assert scaled == TOPIC_KEYS[name].default
    assert BROKER_KEYS[synonyms[0].name].type == TOPIC_KEYS[name].type


@pytest.mark.parametrize("name", sorted(set(GROUP_BROKER_KEYS) - {"streams.assignor.name"}))
def test_a_group_key_and_its_broker_key_agree_on_the_default(name: str) -> None:
    assert GROUP_KEYS[name].default == BROKER_KEYS[GROUP_BROKER_KEYS[name]].default
