"""The credentials of a node for others: from its property file, dynamic values and files."""

import logging
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
from certificates import Certified, certified

from spindle.client.security.login_source import LoginSource
from spindle.common.errors import ConfigError
from spindle.config.node_config import NodeConfig
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from spindle.runtime.peers.connections import PeerConnections
from spindle.runtime.peers.credentials import PeerCredentials
from spindle.runtime.peers.security import NO_SECURITY

PASSWORD = "not-to-be-shown"
MODULES = "org.apache.kafka.common.security."
PLAIN = f'{MODULES}plain.PlainLoginModule required username="node" password="{PASSWORD}";'
SCRAM = f'{MODULES}scram.ScramLoginModule required username="node" password="{PASSWORD}";'
JAAS = "listener.name.internal.plain.sasl.jaas.config"
MECHANISM = "sasl.mechanism.inter.broker.protocol"
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@h1:9093",
    "listeners": "INTERNAL://h1:9092,CONTROLLER://h1:9093",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "INTERNAL",
    "log.dirs": "/a",
}
LOGIN = {
    **NODE,
    "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,GSSAPI",
    MECHANISM: "PLAIN",
    JAAS: PLAIN,
}


@cache
def node_certificate() -> Certified:
    return certified("node", hosts=("h1",))


def with_tls(folder: Path) -> dict[str, str]:
    own = node_certificate()
    (folder / "ca.pem").write_text(own.authority_pem)
    return {
        **NODE,
        "listener.security.protocol.map": "INTERNAL:SSL,CONTROLLER:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(own.write(folder, "node")),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }


def credentials(
    properties: Mapping[str, str], dynamic: Mapping[str, str] | None = None
) -> PeerCredentials:
    return PeerCredentials(NodeConfig(properties), "INTERNAL", MECHANISM, lambda: dynamic or {})


def sent_by(logins: LoginSource | None) -> bytes:
    """Return the first message of the mechanism."""
    assert logins is not None
    course = logins.flow()
    next(course)
    answer = SaslHandshakeResponse(mechanisms=[logins.mechanism])
    first = course.send(answer).message
    assert isinstance(first, SaslAuthenticateRequest)
    return bytes(first.auth_bytes)


def test_nodes_of_plaintext_listeners_need_no_credentials() -> None:
    properties = {
        **NODE,
        "listener.security.protocol.map": "INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
    }
    connections = PeerConnections(NodeConfig(properties), dict)
    assert connections.to_brokers is NO_SECURITY
    assert connections.to_controllers is NO_SECURITY


def test_each_listener_has_its_own_security() -> None:
    properties = {
        **LOGIN,
        "listener.security.protocol.map": "INTERNAL:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "listener.name.controller.scram-sha-256.sasl.jaas.config": SCRAM,
    }
    connections = PeerConnections(NodeConfig(properties), dict)
    for security, mechanism in (
        (connections.to_brokers, "PLAIN"),
        (connections.to_controllers, "SCRAM-SHA-256"),
    ):
        handshake = next(security.login_course()).message
        assert isinstance(handshake, SaslHandshakeRequest)
        assert handshake.mechanism == mechanism


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({JAAS: ""}, "listener.name.internal.plain.sasl.jaas.config is missing"),
        ({JAAS: "", "sasl.jaas.config": PLAIN}, f"{JAAS} is missing"),
        ({JAAS: "", "plain.sasl.jaas.config": PLAIN}, f"{JAAS} is missing"),
        ({JAAS: SCRAM}, "does not fit sasl.mechanism=PLAIN"),
        ({JAAS: PLAIN.replace("username", "user")}, "the option username is missing"),
        ({JAAS: PLAIN.removesuffix(";")}, "does not end with a semicolon"),
        ({MECHANISM: "GSSAPI"}, f"{MECHANISM} is GSSAPI, want one of PLAIN, SCRAM-SHA-256"),
        ({"listener.name.internal.plain.sasl.login.class": "a.B"}, "sasl.login.class"),
    ],
)
def test_a_login_that_cannot_be_made_is_refused_by_name(
    changes: Mapping[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        credentials({**LOGIN, **changes})
    assert said in str(refused.value)
    assert "listener INTERNAL" in str(refused.value)
    assert PASSWORD not in str(refused.value)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"ssl.keystore.location": "/nowhere/node.pem"}, "/nowhere/node.pem cannot be read"),
        ({"ssl.truststore.type": "PKCS12"}, "set ssl.truststore.type=PEM"),
        ({"listener.name.internal.ssl.keystore.type": "JCEKS"}, "ssl.keystore.type is 'JCEKS'"),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "is 'ldaps', want https"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "TLSv1.1"),
    ],
)
def test_stores_and_values_that_cannot_be_used_are_refused_by_name(
    tmp_path: Path, changes: Mapping[str, str], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        credentials({**with_tls(tmp_path), **changes})
    assert said in str(refused.value)
    assert "begin with listener.name.internal." in str(refused.value)


def test_a_key_that_does_not_belong_to_its_certificate_is_refused(tmp_path: Path) -> None:
    properties = with_tls(tmp_path)
    mixed = certified("other").key_pem() + node_certificate().certificate_pem
    Path(properties["ssl.keystore.location"]).write_text(mixed)
    with pytest.raises(ConfigError, match="does not belong to the first certificate"):
        credentials(properties)


def test_a_renewed_file_counts_for_the_next_connection(tmp_path: Path) -> None:
    properties = with_tls(tmp_path)
    peer_credentials = credentials(properties)
    before = peer_credentials.present()
    assert peer_credentials.present() is before
    renewed = certified("node", hosts=("h1", "h2")).write(tmp_path, "renewed")
    renewed.rename(properties["ssl.keystore.location"])
    after = peer_credentials.present()
    assert after is not before
    assert peer_credentials.present() is after


def test_a_damaged_file_is_logged_once_and_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    properties = with_tls(tmp_path)
    peer_credentials = credentials(properties)
    before = peer_credentials.present()
    Path(properties["ssl.keystore.location"]).write_text("nonsense")
    with caplog.at_level(logging.INFO, "spindle"):
        assert peer_credentials.present() is before
        assert peer_credentials.present() is before
    (line,) = [record.getMessage() for record in caplog.records]
    assert "is not PEM" in line


def test_a_dynamic_store_counts_for_the_next_connection_and_a_dynamic_login_does_not(
    tmp_path: Path,
) -> None:
    """As DescribeConfigs says of these keys."""
    dynamic: dict[str, str] = {}
    properties = {**LOGIN, **with_tls(tmp_path)}
    properties["listener.security.protocol.map"] = "INTERNAL:SASL_SSL,CONTROLLER:PLAINTEXT"
    credentials = PeerCredentials(NodeConfig(properties), "INTERNAL", MECHANISM, lambda: dynamic)
    before = credentials.present()
    dynamic[JAAS] = PLAIN.replace(PASSWORD, "renewed")
    assert credentials.present() is before
    assert sent_by(before.logins) == f"\0node\0{PASSWORD}".encode()
    renewed = certified("node", hosts=("h1", "h2")).write(tmp_path, "renewed")
    dynamic["listener.name.internal.ssl.keystore.location"] = str(renewed)
    assert credentials.present() is not before
