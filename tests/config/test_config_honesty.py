"""A key says truthfully whether it has an effect, and when a new value takes effect."""

from typing import Final

import pytest
from key_readers import find_readers
from node_properties import COMBINED

from spindle.config.authorizer import STANDARD_AUTHORIZER
from spindle.config.broker_keys import DYNAMIC_KEYS
from spindle.config.broker_synonyms import is_dynamic
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.config.definition import ConfigKey
from spindle.config.group_keys import GROUP_BROKER_KEYS, GROUP_KEYS
from spindle.config.node_config import NodeConfig
from spindle.config.topic_keys import BROKER_SYNONYMS, TOPIC_KEYS

READERS: Final = find_readers()
OLDER_NAMES: Final = {"broker.id": "node.id"}
"""The key that an older name stands for."""
TOPIC_KEY_OF: Final = {s.name: topic for topic, group in BROKER_SYNONYMS.items() for s in group}
GROUP_KEY_OF: Final = {broker: group for group, broker in GROUP_BROKER_KEYS.items()}


def is_read(name: str) -> bool:
    """Return whether the sources read a broker key, or the topic key that it gives its default."""
    topic = TOPIC_KEY_OF.get(name)
    return (
        name in READERS.broker
        or OLDER_NAMES.get(name) in READERS.broker
        or (topic is not None and topic in READERS.topic)
    )


@pytest.mark.parametrize("key", DYNAMIC_KEYS.values(), ids=lambda key: key.name)
def test_a_broker_key_has_a_reader_or_says_that_it_has_no_effect(key: ConfigKey) -> None:
    assert is_read(key.name) is (key.no_effect is None)


@pytest.mark.parametrize("key", TOPIC_KEYS.values(), ids=lambda key: key.name)
def test_a_topic_key_has_a_reader_or_says_that_it_has_no_effect(key: ConfigKey) -> None:
    assert (key.name in READERS.topic) is (key.no_effect is None)


GROUP_KEYS_WITH_EFFECT: Final = {
    "consumer.assignment.interval.ms",
    "consumer.heartbeat.interval.ms",
    "consumer.session.timeout.ms",
    "errors.deadletterqueue.copy.record.enable",
    "errors.deadletterqueue.topic.name",
    "share.assignment.interval.ms",
    "share.auto.offset.reset",
    "share.delivery.count.limit",
    "share.heartbeat.interval.ms",
    "share.isolation.level",
    "share.partition.max.record.locks",
    "share.record.lock.duration.ms",
    "share.renew.acknowledge.enable",
    "share.session.timeout.ms",
    "streams.acceptable.recovery.lag",
    "streams.assignment.interval.ms",
    "streams.heartbeat.interval.ms",
    "streams.initial.rebalance.delay.ms",
    "streams.num.standby.replicas",
    "streams.session.timeout.ms",
    "streams.task.offset.interval.ms",
}
"""Their readers are in `of_group` of `ConsumerGroupConfig`, `ShareGroupConfig` and
`StreamsGroupConfig`, and in `spindle.runtime.share.settings`."""


def test_keys_of_a_group_or_a_subscription_say_whether_they_have_an_effect() -> None:
    have_effect = {name for name, key in GROUP_KEYS.items() if not key.no_effect}
    assert have_effect == GROUP_KEYS_WITH_EFFECT
    # Their reader is in `spindle.serving.telemetry.subscriptions`.
    assert not any(key.no_effect for key in CLIENT_METRICS_KEYS.values())


@pytest.mark.parametrize("name", sorted(TOPIC_KEY_OF))
def test_a_broker_key_and_its_topic_key_agree_on_the_effect(name: str) -> None:
    assert DYNAMIC_KEYS[name].no_effect == TOPIC_KEYS[TOPIC_KEY_OF[name]].no_effect


@pytest.mark.parametrize("name", sorted(GROUP_KEY_OF))
def test_a_broker_key_and_its_group_key_agree_on_the_effect(name: str) -> None:
    assert DYNAMIC_KEYS[name].no_effect == GROUP_KEYS[GROUP_KEY_OF[name]].no_effect


DYNAMIC: Final = [k for k in DYNAMIC_KEYS.values() if is_dynamic(k.name) and not k.no_effect]


@pytest.mark.parametrize("key", DYNAMIC, ids=lambda key: key.name)
def test_a_dynamic_key_is_read_while_the_broker_runs_or_says_that_it_is_not(key: ConfigKey) -> None:
    takes_effect_at_once = key.name in READERS.dynamic or key.name in TOPIC_KEY_OF
    assert takes_effect_at_once is not key.is_read_at_start


def test_only_dynamic_keys_are_marked_as_read_at_the_start() -> None:
    marked = [key.name for key in DYNAMIC_KEYS.values() if key.is_read_at_start]
    assert marked == [
        "listener.security.protocol.map",
        "listeners",
        "sasl.enabled.mechanisms",
        "sasl.mechanism.inter.broker.protocol",
    ]
    assert all(map(is_dynamic, marked))


def test_the_documentation_says_that_a_key_has_no_effect() -> None:
    documentation = DYNAMIC_KEYS["log.cleaner.threads"].documentation
    assert documentation.endswith(
        " This key has no effect in Spindle: the number of threads is fixed."
    )
    assert "no effect" not in DYNAMIC_KEYS["log.cleaner.backoff.ms"].documentation
    assert "a dynamic value has no effect." in DYNAMIC_KEYS["listeners"].documentation


def test_keys_without_effect_are_warned_about_once_for_each_reason() -> None:
    node = NodeConfig.from_properties(
        {
            **COMBINED,
            "num.io.threads": "16",
            "log.preallocate": "true",
            "num.network.threads": "6",
            "sasl.kerberos.service.name": "kafka",
        }
    )
    assert node.warnings == (
        "num.io.threads, num.network.threads have no effect: the number of threads is fixed",
        "log.preallocate has no effect: segment files grow as records are appended, into disk space"
        " that is reserved in steps of 8 MiB",
        "sasl.kerberos.service.name has no effect: Kerberos is not supported",
    )


def test_a_key_without_effect_at_its_default_is_not_warned_about() -> None:
    assert NodeConfig.from_properties({**COMBINED, "num.io.threads": "8"}).warnings == ()


def test_a_key_for_a_single_listener_is_warned_about() -> None:
    name = "listener.name.plaintext.max.connections"
    assert NodeConfig.from_properties({**COMBINED, name: "5"}).warnings == (
        f"{name} has no effect: the key cannot be set for a single listener",
    )


def test_keys_of_oauthbearer_for_a_single_listener_have_an_effect() -> None:
    prefix = "listener.name.plaintext.oauthbearer.sasl.oauthbearer."
    keys = {f"{prefix}jwks.endpoint.url": "file:/keys", f"{prefix}expected.audience": "a"}
    assert NodeConfig.from_properties({**COMBINED, **keys}).warnings == ()


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("listener.name.plaintext.oauthbearer.sasl.oauthbearer.nothing", "there is no such key"),
        ("listener.name.PLAINTEXT.ssl.key.password", "it names no listener of listener.security"),
        ("listener.name.other.ssl.key.password", "it names no listener of listener.security"),
        ("listener.name.plaintext.ssl.nothing", "there is no such key"),
        ("listener.name.plaintext.ssl.provider", "Java classes cannot be loaded"),
    ],
)
def test_a_key_for_a_single_listener_without_effect_is_warned_about(name: str, reason: str) -> None:
    (warning,) = NodeConfig.from_properties({**COMBINED, name: "secret"}).warnings
    assert warning.startswith(f"{name} has no effect: {reason}")
    assert "secret" not in warning


@pytest.mark.parametrize(
    ("users", "warnings"),
    [
        ("User:a; User:CN=b,O=c", ()),
        ("User:a,User:b", ("User:a,User:b is one principal; write a semicolon",)),
        ("User:a;user:b", ("no client is user:b; write User:NAME",)),
    ],
)
def test_super_users_that_no_client_can_be_are_warned_about(
    users: str, warnings: tuple[str, ...]
) -> None:
    given = {**COMBINED, "authorizer.class.name": STANDARD_AUTHORIZER, "super.users": users}
    texts = NodeConfig.from_properties(given).warnings
    assert len(texts) == len(warnings)
    for text, start in zip(texts, warnings, strict=True):
        assert text.startswith(f"super.users: {start}")


def test_a_key_of_tls_for_a_single_listener_has_an_effect() -> None:
    name = "listener.name.plaintext.ssl.key.password"
    assert NodeConfig.from_properties({**COMBINED, name: "secret"}).warnings == ()
