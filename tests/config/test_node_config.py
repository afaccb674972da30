"""The configuration of a node: values that follow from its property file, and refused files."""

import pytest
from node_properties import COMBINED

from spindle.common.errors import ConfigError
from spindle.common.ids import Endpoint
from spindle.config.authorizer import STANDARD_AUTHORIZER
from spindle.config.endpoints import Address, VoterAddress
from spindle.config.node_config import NodeConfig

BROKER = {
    "process.roles": "broker",
    "node.id": "2",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "h1:9093,[::1]:9094",
}
CONTROLLER = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@h1:9093",
}


def config(base: dict[str, str], **changes: str | None) -> NodeConfig:
    texts = dict(base)
    for name, value in changes.items():
        key = name.replace("_", ".")
        if value is None:
            del texts[key]
        else:
            texts[key] = value
    return NodeConfig.from_properties(texts)


def test_a_combined_node_has_listeners_of_both_roles() -> None:
    node = config(COMBINED)
    plaintext = Endpoint("PLAINTEXT", "h1", 9092, 0)
    controller = Endpoint("CONTROLLER", "h1", 9093, 0)
    assert node.node_id == 1
    assert (node.is_broker, node.is_controller) == (True, True)
    assert node.listeners == (plaintext, controller)
    assert node.broker_listeners == node.advertised_listeners == (plaintext,)
    assert node.controller_listeners == node.advertised_controller_listeners == (controller,)
    assert node.controller_listener_names == ("CONTROLLER",)
    assert node.inter_broker_listener_name == "PLAINTEXT"
    assert node.quorum_voters == (VoterAddress(1, "h1", 9093),)
    assert node.quorum_bootstrap_servers == ()
    assert node.log_dirs == ("/a", "/b")
    assert node.metadata_log_dir == "/a"
    assert node.names("cordoned.log.dirs") == ()
    assert node.rack is None
    assert node.warnings == ()


def test_a_broker_has_no_controller_listener() -> None:
    node = config(BROKER, **{"log.dir": "/x", "broker.rack": "r", "metadata.log.dir": "/m"})
    assert (node.is_broker, node.is_controller) == (True, False)
    assert node.advertised_listeners == (Endpoint("PLAINTEXT", "", 9092, 0),)
    assert node.quorum_bootstrap_servers == (Address("h1", 9093), Address("::1", 9094))
    assert (node.log_dirs, node.metadata_log_dir) == (("/x",), "/m")
    assert node.rack == "r"


def test_a_controller_has_no_broker_listener() -> None:
    node = config(CONTROLLER)
    assert (node.is_broker, node.is_controller) == (False, True)
    assert node.broker_listeners == node.advertised_listeners == ()
    assert node.log_dirs == ("/tmp/kafka-logs",)


def test_each_accessor_returns_a_value_of_its_type() -> None:
    node = config(COMBINED, **{"log.cleaner.io.max.bytes.per.second": "5"})
    assert node.integer("num.partitions") == 1
    assert node.flag("auto.create.topics.enable") is True
    assert node.decimal("log.cleaner.io.max.bytes.per.second") == 5.0
    assert node.text("compression.type") == "producer"
    assert node.names("log.cleanup.policy") == ("delete",)
    assert node.names("advertised.listeners") == ()
    assert node.optional_text("broker.rack") is None
    assert node.optional_integer("log.retention.ms") is None
    assert node.get("log.retention.hours") == 168
    with pytest.raises(KeyError):
        node.get("no.such.key")


def test_listener_names_are_in_upper_case_and_advertised_listeners_replace_listeners() -> None:
    node = config(
        COMBINED,
        **{
            "listeners": "in://:1,out://:2,ctrl://:3",
            "advertised.listeners": "in://a:1,OUT://b:20,ctrl://c:30",
            "controller.listener.names": "Ctrl",
            "inter.broker.listener.name": "in",
            "listener.security.protocol.map": "IN:PLAINTEXT, OUT:SASL_SSL,ctrl:plaintext",
        },
    )
    assert node.advertised_listeners == (Endpoint("IN", "a", 1, 0), Endpoint("OUT", "b", 20, 3))
    assert node.advertised_controller_listeners == (Endpoint("CTRL", "c", 30, 0),)
    assert node.inter_broker_listener_name == "IN"


def test_controller_listeners_are_plain_text_unless_security_is_in_use() -> None:
    assert config(COMBINED).security_protocols["CONTROLLER"] == 0
    with pytest.raises(ConfigError, match="no security protocol is defined for listener CON"):
        config(COMBINED, listeners="SSL://h1:9092,CONTROLLER://h1:9093")


def test_broker_id_is_an_older_name_of_node_id() -> None:
    node = config(COMBINED, **{"node.id": None, "broker.id": "1"})
    assert node.node_id == 1
    assert node.static["node.id"] == "1"


@pytest.mark.parametrize("written", ["*", "/b", "/b/", "/a/../b", "../../../../../../../../b"])
def test_a_cordoned_directory_may_be_written_in_any_form(written: str) -> None:
    assert config(COMBINED, **{"cordoned.log.dirs": written}).names("cordoned.log.dirs") == (
        written,
    )


def test_a_directory_given_twice_counts_once() -> None:
    node = config(COMBINED, **{"log.dirs": "/a,/b,/a"})
    assert node.log_dirs == ("/a", "/b")
    assert node.warnings == ("log.dirs=/a,/b,/a has repeated entries, which count once",)


def test_an_unknown_key_is_a_warning_that_names_the_nearest() -> None:
    node = config(
        COMBINED,
        **{
            "log.dir.s": "/x",
            "zookeeper.connect": "z",
            "leader.replication.throttled.rate": "1",
        },
    )
    assert node.warnings == (
        "configuration key log.dir.s is unknown and has no effect (did you mean log.dirs?)",
        "configuration key zookeeper.connect is unknown and has no effect",
        "leader.replication.throttled.rate has no effect in a property file: it is a dynamic "
        "configuration",
    )


def test_quoted_directories_are_warned_about() -> None:
    quoted = config(COMBINED, **{"log.dirs": '"/data/a,b"'})
    assert [warning.partition(" has ")[0] for warning in quoted.warnings] == [
        'log.dirs: "/data/a',
        'log.dirs: b"',
    ]


def test_a_long_heartbeat_interval_and_an_unknown_replica_selector_are_warned_about() -> None:
    heartbeat = config(COMBINED, **{"broker.heartbeat.interval.ms": "5000"})
    assert "5000 is more than half of broker.session.timeout.ms=9000" in heartbeat.warnings[0]
    selector = config(COMBINED, **{"replica.selector.class": "com.example.Selector"})
    assert selector.warnings == (
        "replica.selector.class=com.example.Selector has no effect: Java classes cannot be loaded",
    )
    known = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    assert config(COMBINED, **{"replica.selector.class": known}).warnings == ()


@pytest.mark.parametrize(
    ("base", "changes", "message"),
    [
        (COMBINED, {"node.id": None}, 'Missing required configuration "node.id"'),
        (COMBINED, {"process.roles": None}, 'Missing required configuration "process.roles"'),
        (COMBINED, {"controller.listener.names": None}, "controller.listener.names"),
        (COMBINED, {"node.id": "-1"}, "Invalid value -1 for configuration node.id"),
        (COMBINED, {"node.id": "x"}, "Invalid value x for configuration node.id"),
        (COMBINED, {"broker.id": "2"}, "node.id=1 and broker.id=2 must be the same"),
        (COMBINED, {"process.roles": "broker,zk"}, "String must be one of: broker, controller"),
        (COMBINED, {"process.roles": ""}, "'process.roles' must not be empty"),
        (COMBINED, {"log.dirs": ""}, "'log.dirs' must not be empty"),
        (COMBINED, {"log.dirs": "/a,,/b"}, "'log.dirs' values must not be empty"),
        (COMBINED, {"listeners": "PLAINTEXT:h1:1"}, "cannot parse 'PLAINTEXT:h1:1'"),
        (COMBINED, {"listeners": "PLAINTEXT://h1:70000"}, "must be between 0 and 65535"),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://h:1,PLAINTEXT://h:2"},
            "each listener must have a different name, but PLAINTEXT is used twice",
        ),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://h:1,CONTROLLER://h:1"},
            "each listener must have a different port",
        ),
        (
            COMBINED,
            {"listeners": "NEW://h:1,CONTROLLER://h:2"},
            "no security protocol is defined for listener NEW",
        ),
        (
            COMBINED,
            {"listener.security.protocol.map": "PLAINTEXT:PLAIN,CONTROLLER:PLAINTEXT"},
            "Invalid security protocol `PLAIN`",
        ),
        (COMBINED, {"listener.security.protocol.map": "x"}, "entry 'x' is not of the form"),
        (COMBINED, {"controller.quorum.voters": "1@h1"}, "in the form `{id}@{host}:{port}`"),
        (COMBINED, {"controller.quorum.voters": "x@h1:1"}, "Failed to parse voter ID"),
        (COMBINED, {"controller.quorum.voters": "2@h1:1"}, "node.id=1 must be among"),
        (COMBINED, {"controller.quorum.voters": "1@0.0.0.0:1"}, "others cannot connect to 0.0.0.0"),
        (COMBINED, {"controller.quorum.voters": None}, "both are empty"),
        (BROKER, {"controller.quorum.bootstrap.servers": "h1"}, "in the form `{host}:{port}`"),
        (BROKER, {"controller.quorum.voters": "2@h:1"}, "does not contain controller"),
        (BROKER, {"controller.quorum.auto.join.enable": "true"}, "needs controller"),
        (
            BROKER,
            {"listeners": "PLAINTEXT://:1,CONTROLLER://:2"},
            "listeners contains CONTROLLER",
        ),
        (
            BROKER,
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT"},
            "listener CONTROLLER is not in listener.security.protocol.map",
        ),
        (CONTROLLER, {"listeners": "CONTROLLER://:1,PLAINTEXT://:2"}, "every entry of listeners"),
        (
            COMBINED,
            {"listeners": "PLAINTEXT://h:1"},
            "listener CONTROLLER is not in listeners=PLAINTEXT://h:1",
        ),
        (
            CONTROLLER,
            {"inter.broker.listener.name": "controller"},
            "inter.broker.listener.name=CONTROLLER must not be one of",
        ),
        (
            COMBINED,
            {"listeners": "CONTROLLER://h:1"},
            "at least one advertised listener must not be in",
        ),
        (
            COMBINED,
            {"inter.broker.listener.name": "SSL"},
            "SSL must be one of the advertised listeners, which are PLAINTEXT",
        ),
        (COMBINED, {"inter.broker.listener.name": "X"}, "listener X is not in listener.security"),
        (
            COMBINED,
            {"inter.broker.listener.name": "PLAINTEXT", "security.inter.broker.protocol": "SSL"},
            "Only one of",
        ),
        (
            COMBINED,
            {"advertised.listeners": "PLAINTEXT://h:1,SSL://h:2"},
            "listener SSL must also be in listeners",
        ),
        (COMBINED, {"advertised.listeners": "PLAINTEXT://0.0.0.0:1"}, "cannot use 0.0.0.0"),
        (
            COMBINED,
            {"cordoned.log.dirs": "/c"},
            "must be present in log.dirs or log.dir. Missing entries : /c",
        ),
        (COMBINED, {"cordoned.log.dirs": "/a,*"}, "must not contain other values"),
        (COMBINED, {"log.roll.ms": "0"}, "log.roll.ms"),
        (COMBINED, {"log.retention.ms": "0"}, "must be -1 (unlimited) or at least 1, but is 0"),
        (COMBINED, {"log.cleaner.dedupe.buffer.size": "1048576"}, "must be more than 1048576"),
        (COMBINED, {"replica.fetch.wait.max.ms": "40000"}, "replica.socket.timeout.ms=30000"),
        (COMBINED, {"queued.max.request.bytes": "5"}, "socket.request.max.bytes=104857600"),
        (COMBINED, {"max.connections.per.ip": "0"}, "refuses every connection"),
        (COMBINED, {"max.connections.per.ip.overrides": "h"}, "not of the form address:count"),
        (COMBINED, {"connections.max.idle.ms": "100"}, "must be less than"),
        (COMBINED, {"log.cleaner.threads": "0"}, "log.cleaner.threads must be at least 1"),
        (COMBINED, {"controller.quorum.voters": "1@h1:70000"}, "must be between 0 and 65535"),
        (BROKER, {"controller.quorum.bootstrap.servers": "h:70000"}, "between 0 and 65535"),
        (COMBINED, {"early.start.listeners": "SSL"}, "known are PLAINTEXT, CONTROLLER"),
        (COMBINED, {"offsets.topic.compression.codec": "5"}, "=5 is not a codec"),
        (
            COMBINED,
            {"group.consumer.session.timeout.ms": "1"},
            "group.consumer.session.timeout.ms=1 must be at least "
            "group.consumer.min.session.timeout.ms=45000",
        ),
        (
            COMBINED,
            {"group.share.max.heartbeat.interval.ms": "1"},
            "group.share.max.heartbeat.interval.ms=1 must be at least "
            "group.share.min.heartbeat.interval.ms=5000",
        ),
        (
            COMBINED,
            {
                "group.streams.max.heartbeat.interval.ms": "50000",
                "group.streams.heartbeat.interval.ms": "45000",
            },
            "group.streams.heartbeat.interval.ms=45000 must be less than "
            "group.streams.session.timeout.ms=45000",
        ),
        (COMBINED, {"group.streams.num.standby.replicas": "3"}, "max.standby.replicas=2"),
        (COMBINED, {"group.share.max.share.sessions": "5"}, "group.share.max.size=200"),
        (COMBINED, {"group.consumer.assignors": "a.B"}, "unknown assignor a.B"),
        (COMBINED, {"group.coordinator.rebalance.protocols": "consumer"}, "must contain classic"),
    ],
)
def test_a_file_that_contradicts_itself_is_refused_with_key_and_value(
    base: dict[str, str], changes: dict[str, str | None], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(base, **changes)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"listeners": "PLAINTEXT://h1:1,SASL_SSL://h1:3,CONTROLLER://h1:2",
             "listener.security.protocol.map":
                 "PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT"},
            "sasl.enabled.mechanisms is missing, and GSSAPI (Kerberos), the default of Kafka",
        ),
        (
            {"authorizer.class.name": "org.example.A"},
            "authorizer.class.name=org.example.A: Java classes cannot be loaded; the only "
            "authorizer of Spindle is org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        ),
        (
            {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": "User:a,User:b;c"},
            "super.users=User:a,User:b;c: c is not a principal",
        ),
        (
            {"authorizer.class.name": STANDARD_AUTHORIZER,
             "allow.everyone.if.no.acl.found": "maybe"},
            "allow.everyone.if.no.acl.found=maybe: it must be true or false",
        ),
        (
            {"early.start.listeners": "OTHER"},
            "early.start.listeners=OTHER: OTHER is neither in listeners nor in",
        ),
    ],
)  # fmt: skip
def test_mechanisms_and_authorizers_that_are_not_supported_are_refused_before_any_other_rule(
    changes: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        NodeConfig.from_properties({**COMBINED, **changes}, must_run=True)
    assert message in str(caught.value)


def test_a_file_that_is_only_read_keeps_kafkas_rule_for_sasl() -> None:
    properties = {
        "listeners": "SASL_SSL://h1:1,CONTROLLER://h1:2",
        "inter.broker.listener.name": "SASL_SSL",
        "listener.security.protocol.map": "SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
    }
    with pytest.raises(ConfigError, match=r"GSSAPI must be among sasl\.enabled\.mechanisms=PLAIN"):
        config(COMBINED, **properties)


def test_an_ipv4_and_an_ipv6_listener_may_share_a_port() -> None:
    node = config(
        BROKER,
        **{
            "listeners": "PLAINTEXT://127.0.0.1:9092,SSL://[::1]:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:SSL",
        },
    )
    assert [endpoint.host for endpoint in node.listeners] == ["127.0.0.1", "::1"]


def test_the_repr_shows_no_secrets() -> None:
    node = config(COMBINED, **{"ssl.key.password": "secret"})
    assert repr(node) == "NodeConfig(node_id=1, process_roles=broker,controller)"
