"""Effective values, their sources, and refused changes.

The expected values are the answers of Apache Kafka 4.4.0 to the same configuration.
"""

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.config.controller_config_rules import ControllerConfigRules
from spindle.config.describe import (
    BrokerLayers,
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_default_broker,
    describe_group,
    describe_topic,
)
from spindle.config.group_keys import GROUP_KEYS
from spindle.config.node_config import NodeConfig
from spindle.config.resources import ConfigResourceType, ConfigSource
from spindle.config.topic_config import topic_config
from spindle.config.validate import validate_broker, validate_own_broker, validate_resource

NODE = NodeConfig.from_properties(
    {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://h1:9092,CONTROLLER://h1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": "1@h1:9093",
        "log.dirs": "/a,  /b",
        "log.retention.hours": "2",
        "log.roll.hours": "5",
        "log.cleanup.policy": "compact, delete",
        "log.flush.scheduler.interval.ms": "99999999",
        "log.cleaner.threads": "2",
        "my.own.key": "secret",
        "ssl.key.password": "topsecret",
        "listener.name.plaintext.ssl.keystore.password": "abc",
        "internal.metadata.log.segment.bytes": "10485760",
        "group.consumer.session.timeout.ms": "50000",
    }
)
CLUSTER = {"message.max.bytes": "2000000", "log.roll.ms": "7777777"}
OWN = {"log.retention.ms": "123456", "leader.replication.throttled.rate": "1000"}
LAYERS = BrokerLayers(NODE, CLUSTER, OWN)


def line(described: list[DescribedConfig], name: str) -> str:
    """Return one key in the form: value source [sensitive] [read-only] type synonyms."""
    (entry,) = [config for config in described if config.name == name]
    flags = " sensitive" * entry.is_sensitive + " read-only" * entry.is_read_only
    synonyms = " ".join(f"{s.name}={s.value}@{s.source}" for s in entry.synonyms)
    return f"{entry.value} {entry.source}{flags} {entry.type.name} {synonyms}".rstrip()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("log.dirs", "/a,/b 4 read-only LIST log.dirs=/a,  /b@4"),
        ("num.partitions", "1 5 read-only INT num.partitions=1@5"),
        ("log.retention.ms", "123456 2 LONG log.retention.ms=123456@2 log.retention.hours=2@4"
                             " log.retention.hours=168@5"),
        ("log.retention.minutes", "None 5 read-only INT"),
        ("log.roll.ms", "7777777 3 LONG log.roll.ms=7777777@3 log.roll.hours=5@4"
                        " log.roll.hours=168@5"),
        ("log.flush.interval.ms", "None 5 LONG"),
        ("message.max.bytes", "2000000 3 INT message.max.bytes=2000000@3"
                              " message.max.bytes=1048588@5"),
        ("log.cleaner.threads", "2 4 INT log.cleaner.threads=2@4 log.cleaner.threads=1@5"),
        ("log.cleaner.io.max.bytes.per.second",
         "1.7976931348623157E308 5 DOUBLE log.cleaner.io.max.bytes.per.second="
         "1.7976931348623157E308@5"),
        ("leader.replication.throttled.rate",
         "1000 2 LONG leader.replication.throttled.rate=1000@2"),
        ("my.own.key", "None 4 sensitive read-only UNKNOWN my.own.key=None@4"),
        ("ssl.key.password", "None 4 sensitive PASSWORD ssl.key.password=None@4"),
        ("listener.name.plaintext.ssl.keystore.password",
         "None 4 sensitive read-only PASSWORD "
         "listener.name.plaintext.ssl.keystore.password=None@4"),
        ("internal.metadata.log.segment.bytes",
         "10485760 4 read-only INT internal.metadata.log.segment.bytes=10485760@4"),
        ("node.id", "1 4 read-only INT node.id=1@4"),
        ("broker.rack", "None 5 read-only STRING"),
        ("cordoned.log.dirs", " 5 LIST cordoned.log.dirs=@5"),
    ],
)  # fmt: skip
def test_a_broker_shows_each_value_with_its_source_and_synonyms(name: str, expected: str) -> None:
    assert line(describe_broker(LAYERS), name) == expected


def test_internal_keys_are_shown_only_when_set() -> None:
    names = [config.name for config in describe_broker(LAYERS)]
    assert "internal.metadata.log.segment.bytes" in names
    assert "internal.metadata.delete.delay.millis" not in names
    assert names == sorted(names)


@pytest.mark.parametrize(
    ("topic", "level"),
    [
        ({}, None),
        ({"compression.type": "gzip"}, None),
        ({"compression.type": "gzip", "compression.gzip.level": "2"}, 2),
        ({"compression.type": "lz4", "compression.lz4.level": "3"}, None),
        ({"compression.type": "zstd"}, 3),
        ({"compression.type": "zstd", "compression.zstd.level": "-5"}, -5),
        ({"compression.type": "snappy", "compression.zstd.level": "5"}, None),
    ],
)
def test_the_level_of_a_topics_codec(topic: dict[str, str], level: int | None) -> None:
    assert topic_config(NODE, topic).compression_level == level


def test_a_request_for_named_keys_returns_those_that_exist() -> None:
    assert [c.name for c in describe_broker(LAYERS, ["node.id", "nope"])] == ["node.id"]
    assert [c.name for c in describe_topic(LAYERS, {}, ["segment.ms"])] == ["segment.ms"]


def test_a_key_for_a_single_listener_has_no_documentation() -> None:
    password = "ssl.keystore.password"
    names = [password, f"listener.name.plaintext.{password}"]
    texts = {c.name: c.documentation for c in describe_broker(LAYERS, names)}
    assert texts[password]
    assert texts[names[1]] is None


def test_the_dynamic_defaults_of_all_brokers_are_shown_alone() -> None:
    described = describe_default_broker({**CLUSTER, "custom": "x"})
    assert [config.name for config in described] == ["custom", "log.roll.ms", "message.max.bytes"]
    assert line(described, "log.roll.ms") == "7777777 3 LONG log.roll.ms=7777777@3"
    assert line(described, "custom") == "None 3 sensitive read-only UNKNOWN custom=None@3"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("retention.ms", "77 1 LONG retention.ms=77@1 log.retention.ms=123456@2"
                         " log.retention.hours=2@4 log.retention.hours=168@5"),
        ("segment.ms", "7777777 3 LONG log.roll.ms=7777777@3 log.roll.hours=5@4"
                       " log.roll.hours=168@5"),
        ("segment.bytes", "2000000 1 INT segment.bytes=2000000@1 log.segment.bytes=1073741824@5"),
        ("cleanup.policy", "compact,delete 4 LIST log.cleanup.policy=compact, delete@4"
                           " log.cleanup.policy=delete@5"),
        ("flush.ms", "99999999 5 LONG"),
        ("remote.storage.enable", "false 5 BOOLEAN"),
        ("max.message.bytes", "2000000 3 INT message.max.bytes=2000000@3"
                              " message.max.bytes=1048588@5"),
    ],
)  # fmt: skip
def test_a_topic_shows_each_value_with_its_source_and_synonyms(name: str, expected: str) -> None:
    topic = {"retention.ms": "77", "segment.bytes": " 2000000 "}
    described = describe_topic(LAYERS, topic)
    if name == "flush.ms":
        # Only entries from the key's own name on are synonyms; here there is none.
        assert line(described, name).startswith("99999999 ")
    else:
        assert line(described, name) == expected


def test_internal_topic_keys_are_shown_only_when_set() -> None:
    assert len(describe_topic(LAYERS, {})) == 37
    assert len(describe_topic(LAYERS, {"internal.segment.bytes": "100"})) == 38


def test_a_group_shows_its_values_over_those_of_the_broker() -> None:
    described = describe_group(LAYERS, {"consumer.heartbeat.interval.ms": "6000"})
    assert len(described) == 21
    assert not any(GROUP_KEYS[key.name].is_internal for key in described)
    (named,) = describe_group(LAYERS, {}, ["streams.num.warmup.replicas"])
    assert named.value == "2"
    assert line(described, "consumer.heartbeat.interval.ms") == (
        "6000 8 INT consumer.heartbeat.interval.ms=6000@8"
        " group.consumer.heartbeat.interval.ms=5000@5"
    )
    assert line(described, "consumer.session.timeout.ms") == (
        "50000 4 INT group.consumer.session.timeout.ms=50000@4"
        " group.consumer.session.timeout.ms=45000@5"
    )
    assert line(described, "share.isolation.level") == (
        "read_uncommitted 5 STRING share.isolation.level=read_uncommitted@5"
    )


def test_a_client_metrics_subscription_shows_its_values_over_the_defaults() -> None:
    described = describe_client_metrics({"interval.ms": "1000"})
    assert line(described, "interval.ms") == "1000 7 INT interval.ms=1000@7"
    assert line(described, "match") == " 5 LIST"


def test_a_topics_value_goes_before_those_of_broker_cluster_and_file() -> None:
    assert topic_config(NODE).retention_ms == 2 * 3_600_000
    assert topic_config(NODE, cluster={"log.retention.ms": "5"}).retention_ms == 5
    layers = {"cluster": {"log.retention.ms": "5"}, "broker": {"log.retention.ms": "6"}}
    assert topic_config(NODE, **layers).retention_ms == 6
    assert topic_config(NODE, {"retention.ms": "7"}, **layers).retention_ms == 7
    assert topic_config(NODE).cleanup_policy == ("compact", "delete")
    assert topic_config(NODE).flush_ms == 99999999


def test_a_stored_value_that_is_no_longer_valid_is_skipped() -> None:
    config = topic_config(NODE, {"segment.bytes": "1"}, cluster={"message.max.bytes": "x"})
    assert (config.segment_bytes, config.max_message_bytes) == (1 << 30, 1_048_588)


def test_negative_retention_means_unlimited() -> None:
    assert topic_config(NODE, broker={"log.retention.ms": "-5"}).retention_ms == -1


def test_the_compaction_lag_limits_the_age_of_a_compacted_topics_segments() -> None:
    config = topic_config(NODE, {"max.compaction.lag.ms": "100"})
    assert config.max_segment_ms == 100
    assert topic_config(NODE, {"cleanup.policy": "delete"}).max_segment_ms == 5 * 3_600_000


TOPIC, BROKER = ConfigResourceType.TOPIC, ConfigResourceType.BROKER
GROUP, METRICS = ConfigResourceType.GROUP, ConfigResourceType.CLIENT_METRICS
CONFIG, REQUEST = ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    ("kind", "resource", "name", "value", "code", "message"),
    [
        (BROKER, "1", "log.dirs", "x", REQUEST,
         "Cannot update these configs dynamically: [log.dirs]"),
        (BROKER, "", "node.id", "1", REQUEST,
         "Cannot update these configs dynamically: [node.id]"),
        (BROKER, "", "listeners", "PLAINTEXT://:1", REQUEST,
         "Cannot update these configs at default cluster level, broker id must be specified: "
         "[listeners]"),
        (BROKER, "", "cordoned.log.dirs", "*", REQUEST,
         "Cannot update these configs at default cluster level, broker id must be specified: "
         "[cordoned.log.dirs]"),
        (BROKER, "1", "log.cleaner.threads", "x", REQUEST,
         "Invalid value x for configuration log.cleaner.threads: Not a number of type INT"),
        (BROKER, "1", "log.cleaner.threads", "-1", REQUEST,
         "Invalid value -1 for configuration log.cleaner.threads: Value must be at least 0"),
        (BROKER, "1", "ssl.keystore.location", "x", REQUEST,
         "These security configs can be dynamically updated only per-listener using the listener "
         "prefix: [ssl.keystore.location]"),
        (BROKER, "x", "log.cleaner.threads", "1", REQUEST,
         "Unable to parse broker name as a base 10 number."),
        (BROKER, "-3", "log.cleaner.threads", "1", REQUEST, "Invalid negative broker ID."),
        (BROKER, "", "listener.name.in.ssl.keystore.type", "x", REQUEST,
         "Cannot update these configs at default cluster level, broker id must be specified: "
         "[listener.name.in.ssl.keystore.type]"),
        (TOPIC, "t", "nope", "1", CONFIG, "Unknown topic config name: nope"),
        (TOPIC, "t", "segment.bytes", "1", CONFIG,
         "Invalid value 1 for configuration segment.bytes: Value must be at least 1048576"),
        (TOPIC, "t", "retention.ms", "x", CONFIG,
         "Invalid value x for configuration retention.ms: Not a number of type LONG"),
        (TOPIC, "", "retention.ms", "1", REQUEST, "Default topic resources are not allowed."),
        (TOPIC, "t", "max.compaction.lag.ms", "5", None, None),
        (TOPIC, "t", "remote.storage.enable", "true", CONFIG,
         "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with "
         "remote log storage."),
        (GROUP, "g", "consumer.session.timeout.ms", "1", CONFIG,
         "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."),
        (GROUP, "g", "consumer.session.timeout.ms", "70000", CONFIG,
         "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive."),
        (GROUP, "g", "streams.num.standby.replicas", "3", CONFIG,
         "streams.num.standby.replicas must be less than or equal to 2"),
        (GROUP, "g", "nope", "1", CONFIG, "Unknown group config name: nope"),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:PT1H30M", None, None),
        (GROUP, "g", "share.auto.offset.reset", "by_duration:1h", CONFIG,
         "Invalid value by_duration:1h for configuration share.auto.offset.reset: Invalid value "
         "`by_duration:1h` for configuration share.auto.offset.reset. The value must be either "
         "'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'."),
        (GROUP, "", "share.isolation.level", "read_committed", REQUEST,
         "Default group resources are not allowed."),
        (METRICS, "m", "nope", "1", REQUEST, "Unknown client metrics configuration: nope"),
        (METRICS, "m", "interval.ms", "1", REQUEST,
         "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)"),
        (METRICS, "m", "match", "x", CONFIG, "Illegal client matching pattern: x"),
        (METRICS, "m", "match", "client_id=a[", CONFIG,
         "Illegal client matching pattern: client_id=a["),
        (METRICS, "m", "match", "client_id=a=b", CONFIG,
         "Illegal client matching pattern: client_id=a=b"),
        (METRICS, "m", "match", "client_id=a.*,client_source_port=1", None, None),
        (METRICS, "", "interval.ms", "1000", REQUEST, "Subscription name can't be empty"),
        (ConfigResourceType.BROKER_LOGGER, "1", "x", "INFO", REQUEST, "Unknown resource type 8"),
    ],
)  # fmt: skip
def test_a_change_that_kafka_refuses_is_refused_with_its_error(
    kind: ConfigResourceType,
    resource: str,
    name: str,
    value: str,
    code: ErrorCode | None,
    message: str | None,
) -> None:
    rules = ControllerConfigRules(NODE)
    if code is None:
        rules.validate(kind, resource, {name: value})
        return
    with pytest.raises(ApiError) as caught:
        rules.validate(kind, resource, {name: value})
    assert (caught.value.code, caught.value.message) == (code, message)


def test_compaction_lags_that_contradict_each_other_are_refused() -> None:
    with pytest.raises(
        ApiError, match=r"min.compaction.lag.ms \(9\) > max.compaction.lag.ms \(8\)"
    ):
        validate_resource(
            NODE, TOPIC, "t", {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}
        )


def test_a_session_timeout_must_exceed_the_heartbeat_interval() -> None:
    node = NodeConfig.from_properties(
        {**NODE.static, "group.consumer.max.heartbeat.interval.ms": "60000"}
    )
    values = {"consumer.session.timeout.ms": "45000", "consumer.heartbeat.interval.ms": "45000"}
    with pytest.raises(ApiError, match=r"consumer\.session\.timeout\.ms must be greater than"):
        validate_resource(node, GROUP, "g", values)


def test_remote_storage_is_turned_off_only_together_with_its_data() -> None:
    old = {"remote.storage.enable": "true"}
    with pytest.raises(ApiError, match="without deleting remote data"):
        validate_resource(NODE, TOPIC, "t", {}, old)
    validate_resource(NODE, TOPIC, "t", {"remote.log.delete.on.disable": "true"}, old)


def test_a_valid_change_of_a_broker_is_accepted() -> None:
    validate_broker("1", {"log.cleaner.threads": "3", "own.key": "x", "cordoned.log.dirs": "/b"})
    validate_broker("", {"listener.name.in.max.connections": "5", "message.max.bytes": "9"})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("/c", "requirement failed: All entries in cordoned.log.dirs must be present in log.dirs "
               "or log.dir. Missing entries : /c"),
        ("/a,*", "requirement failed: When cordoned.log.dirs is set to *, it must not contain "
                 "other values"),
    ],
)  # fmt: skip
def test_a_broker_refuses_to_cordon_directories_that_it_does_not_have(
    value: str, message: str
) -> None:
    with pytest.raises(ApiError) as caught:
        validate_own_broker(NODE, {"cordoned.log.dirs": value})
    assert (caught.value.code, caught.value.message) == (REQUEST, message)
    validate_own_broker(NODE, {"cordoned.log.dirs": "/b,/a"})
    validate_own_broker(NODE, {})


def test_rules_between_keys_hold_for_dynamic_values() -> None:
    with pytest.raises(ApiError, match=r"log\.retention\.ms must be -1") as caught:
        validate_own_broker(NODE, {"log.retention.ms": "0"})
    assert caught.value.code == REQUEST
    validate_own_broker(NODE, {"log.retention.ms": "-1", "leader.replication.throttled.rate": "5"})


def test_the_rules_know_lists_and_defaults_for_append_and_subtract() -> None:
    rules = ControllerConfigRules(NODE)
    assert rules.is_list(TOPIC, "cleanup.policy")
    assert rules.is_list(BROKER, "cordoned.log.dirs")
    assert not rules.is_list(TOPIC, "retention.ms")
    assert not rules.is_list(TOPIC, "nope")
    assert rules.default(TOPIC, "cleanup.policy") == "delete"
    assert rules.default(BROKER, "node.id") is None
    assert rules.default(99, "x") is None
    assert rules.is_sensitive(BROKER, "ssl.key.password")
    assert rules.is_sensitive(BROKER, "unknown")
    assert not rules.is_sensitive(TOPIC, "retention.ms")


def test_a_new_topic_shows_its_own_values_and_the_defaults() -> None:
    own = {NODE.node_id: {"log.segment.bytes": "7777777"}}
    entries = ControllerConfigRules(NODE).effective_topic_configs(
        {"retention.ms": "9"}, CLUSTER, own.__getitem__
    )
    shown = {entry.name: (entry.value, entry.source) for entry in entries}
    assert shown["segment.bytes"] == ("7777777", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert shown["retention.ms"] == ("9", ConfigSource.TOPIC_CONFIG)
    assert shown["max.message.bytes"] == ("2000000", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
    assert shown["cleanup.policy"] == ("compact,delete", ConfigSource.STATIC_BROKER_CONFIG)
    assert shown["preallocate"] == ("false", ConfigSource.DEFAULT_CONFIG)


@pytest.mark.parametrize(
    ("value", "dynamic", "bound"),
    [
        ("17", {}, "not be greater than double the current value 8"),
        ("3", {}, "at least half the current value 8"),
        ("13", {"num.io.threads": "6"}, "not be greater than double the current value 6"),
    ],
)
def test_a_thread_pool_is_not_resized_by_more_than_a_factor_of_two(
    value: str, dynamic: dict[str, str], bound: str
) -> None:
    with pytest.raises(ApiError, match=bound) as caught:
        validate_own_broker(NODE, {"num.io.threads": value}, dynamic)
    assert caught.value.code is ErrorCode.INVALID_REQUEST


def test_a_thread_pool_may_double_and_halve() -> None:
    for value in ("4", "8", "16"):
        validate_own_broker(NODE, {"num.io.threads": value})
