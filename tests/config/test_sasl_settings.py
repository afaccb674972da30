"""The SASL settings of a listener: what is read, and what stops the start of a node."""

import pytest

from spindle.common.errors import ConfigError
from spindle.config.listener_config import ListenerConfig
from spindle.config.node_config import NodeConfig
from spindle.config.sasl_settings import check_dynamic_users, sasl_settings
from spindle.security.secret import Secret

MODULES = "org.apache.kafka.common.security"
PASSWORD = "s3cret"
USERS = f'{MODULES}.plain.PlainLoginModule required user_alice="{PASSWORD}";'
PROTOCOLS = "LOGIN:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "LOGIN://h1:9092,PLAINTEXT://h1:9094,CONTROLLER://h1:9093",
    "listener.security.protocol.map": PROTOCOLS,
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "1@h1:9093",
    "log.dirs": "/a",
}
LOGIN = {
    "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
    "listener.name.login.plain.sasl.jaas.config": USERS,
}


def started(**changes: str) -> NodeConfig:
    return NodeConfig.from_properties({**NODE, **LOGIN, **changes}, must_run=True)


def test_a_listener_has_its_own_mechanisms_users_and_limits() -> None:
    node = started(
        **{
            "sasl.enabled.mechanisms": "GSSAPI",
            "connections.max.reauth.ms": "1000",
            "listener.name.login.plain.connections.max.reauth.ms": "500",
            "listener.name.login.sasl.server.max.receive.size": "1234",
            "connection.failed.authentication.delay.ms": "7",
        }
    )
    settings = sasl_settings(ListenerConfig(node, "LOGIN"))
    assert settings.mechanisms == ("PLAIN", "SCRAM-SHA-512")
    assert settings.plain_users == {"alice": Secret(PASSWORD)}
    assert settings.max_reauth_ms == {"PLAIN": 500, "SCRAM-SHA-512": 1000}
    assert (settings.max_receive_bytes, settings.failure_delay_ms) == (1234, 7)
    assert node.warnings == ()


def test_settings_show_no_password() -> None:
    assert PASSWORD not in repr(sasl_settings(ListenerConfig(started(), "LOGIN")))


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        (
            {"listener.name.login.sasl.enabled.mechanisms": "PLAIN,GSSAPI"},
            "listener.name.login.sasl.enabled.mechanisms has GSSAPI, which is not supported",
        ),
        (
            {"listener.name.login.sasl.enabled.mechanisms": ""},
            "listener.name.login.sasl.enabled.mechanisms is empty",
        ),
        (
            {"listener.name.login.plain.sasl.jaas.config": ""},
            "listener.name.login.plain.sasl.jaas.config is missing: PLAIN needs the users",
        ),
        (
            {"listener.name.login.plain.connections.max.reauth.ms": "soon"},
            "listener.name.login.plain.connections.max.reauth.ms: ",
        ),
        (
            {"listener.name.login.plain.sasl.jaas.config": USERS[:-1]},
            "listener.name.login.plain.sasl.jaas.config: ",
        ),
        (
            {"listener.name.login.plain.sasl.jaas.config":
                f"{MODULES}.scram.ScramLoginModule required;"},
            "want the login module org.apache.kafka.common.security.plain.PlainLoginModule",
        ),
        (
            {"listener.name.login.plain.sasl.server.callback.handler.class": "org.example.A"},
            "listener LOGIN: sasl.server.callback.handler.class is not supported",
        ),
        (
            {"sasl.login.class": "org.example.A"},
            "listener LOGIN: sasl.login.class is not supported: it names Java code",
        ),
        (
            {"principal.builder.class": "org.example.A"},
            "principal.builder.class=org.example.A is not supported: it names Java code",
        ),
    ],
)  # fmt: skip
def test_an_unsupported_setting_stops_the_start_and_is_named(
    changes: dict[str, str], trouble: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        started(**changes)
    assert trouble in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_a_key_of_a_mechanism_without_its_listener_does_not_count() -> None:
    key = "listener.name.login.plain.sasl.jaas.config"
    properties = {k: v for k, v in {**NODE, **LOGIN}.items() if k != key}
    with pytest.raises(ConfigError, match=f"{key} is missing"):
        NodeConfig.from_properties({**properties, "plain.sasl.jaas.config": USERS}, must_run=True)


def test_java_classes_do_not_matter_without_a_listener_with_sasl() -> None:
    plain = {**NODE, "listener.security.protocol.map": "LOGIN:PLAINTEXT,PLAINTEXT:PLAINTEXT,"
             "CONTROLLER:PLAINTEXT", "sasl.login.class": "org.example.A"}  # fmt: skip
    assert NodeConfig.from_properties(plain, must_run=True).node_id == 1


def test_the_mechanism_among_brokers_must_be_one_of_their_listener() -> None:
    among = {"inter.broker.listener.name": "LOGIN"}
    assert started(**among, **{"sasl.mechanism.inter.broker.protocol": "PLAIN"})
    with pytest.raises(ConfigError) as refused:
        started(**among, **{"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"})
    assert str(refused.value) == (
        "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-256 must be among "
        "listener.name.login.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512"
    )


def test_dynamic_users_of_plain_are_checked_by_the_mechanisms_of_the_property_file() -> None:
    key = "listener.name.login.plain.sasl.jaas.config"
    check_dynamic_users(started(), {key: USERS.replace("alice", "bob")})
    for malformed in ("", USERS[:-1], USERS.replace("user_alice", "username")):
        with pytest.raises(ConfigError, match=key) as raised:
            check_dynamic_users(started(), {key: malformed})
        assert PASSWORD not in str(raised.value)
    without_plain = started(**{"listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512"})
    check_dynamic_users(without_plain, {key: "anything"})
