"""The key tables agree with Kafka's and with each other."""

import re

import pytest

from spindle.config.broker_keys import BROKER_KEYS, DYNAMIC_KEYS, DYNAMIC_ONLY
from spindle.config.broker_synonyms import is_dynamic
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.config.definition import REQUIRED, ConfigKey, UpdateMode
from spindle.config.group_keys import GROUP_BROKER_KEYS, GROUP_KEYS
from spindle.config.topic_keys import BROKER_SYNONYMS, TOPIC_KEYS
from spindle.config.values import ConfigType

EVERY = [
    *DYNAMIC_KEYS.values(),
    *TOPIC_KEYS.values(),
    *GROUP_KEYS.values(),
    *CLIENT_METRICS_KEYS.values(),
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


def test_there_are_as_many_keys_as_in_kafka() -> None:
    of_kafka = {name for name in BROKER_KEYS if not name.startswith("spindle.")}
    dynamic_only = [name for name in DYNAMIC_ONLY if not name.startswith("spindle.")]
    assert (len(of_kafka), len(dynamic_only)) == (360, 3)
    assert (len(TOPIC_KEYS), len(GROUP_KEYS), len(CLIENT_METRICS_KEYS)) == (34, 17, 3)
    assert sum(BROKER_KEYS[name].is_internal for name in of_kafka) == 20


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
    assert modes.count(UpdateMode.CLUSTER_WIDE) == 65
    assert is_dynamic("cordoned.log.dirs")
    assert not is_dynamic("log.dirs")
    assert not is_dynamic("log.retention.hours")


def test_every_topic_key_but_six_has_a_broker_key() -> None:
    assert all(s.name in BROKER_KEYS for group in BROKER_SYNONYMS.values() for s in group)
    assert sorted(set(TOPIC_KEYS) - set(BROKER_SYNONYMS)) == [
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
    default = last.default_value()
    scaled = default * synonyms[-1].factor if synonyms[-1].factor > 1 else default  # type: ignore[operator]
    assert scaled == TOPIC_KEYS[name].default
    assert BROKER_KEYS[synonyms[0].name].type == TOPIC_KEYS[name].type


@pytest.mark.parametrize("name", sorted(GROUP_BROKER_KEYS))
def test_a_group_key_and_its_broker_key_agree_on_the_default(name: str) -> None:
    assert GROUP_KEYS[name].default == BROKER_KEYS[GROUP_BROKER_KEYS[name]].default
