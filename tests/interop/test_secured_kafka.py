"""Our client, tools and sources on an Apache Kafka node with TLS, client certificates and SASL."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from certificates import certified
from peers.java_tools import run_in_new_jvm
from peers.paths import SPINDLE
from peers.secured_kafka import (
    ODD_USER,
    PASSWORD,
    PLAIN_JAAS,
    SCRAM_JAAS,
    SESSION_MS,
    TOKEN_JAAS,
    SecuredKafka,
    jaas,
    secured_kafka,
)
from waiting import wait_until

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.blocking.reader import Reader
from spindle.client.blocking.settings import client_settings
from spindle.client.errors import AuthenticationFailed, ClientError, SaslFailed, TlsFailed
from spindle.client.security.token_settings import TokenLogin, UnsecuredToken
from spindle.client.security.tokens import TokenSource
from spindle.common.ids import TopicPartition
from spindle.config.properties import format_properties
from spindle.protocol.records.builder import SimpleRecord
from spindle.protocol.sentinels import READ_UNCOMMITTED

pytestmark = pytest.mark.timeout(180)

LOGINS = {
    "PLAIN": PLAIN_JAAS,
    "SCRAM-SHA-256": SCRAM_JAAS,
    "SCRAM-SHA-512": SCRAM_JAAS,
    "OAUTHBEARER": TOKEN_JAAS,
}
ODD_JAAS = jaas("scram.ScramLoginModule", username=ODD_USER, password=PASSWORD)
WRONG = "not-the-password"


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    with secured_kafka(tmp_path_factory.mktemp("secured")) as running:
        yield running


def login(mechanism: str, text: str | None = None) -> dict[str, str]:
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": text or LOGINS[mechanism]}


def produce_and_read(properties: Mapping[str, str], topic: str) -> list[bytes | None]:
    """Append three records to a new topic and return the values that arrive."""
    partition = TopicPartition(topic, 0)
    with WireClient(client_settings(properties)) as client:
        client.wait_for_topic(topic)
        producer = BlockingProducer(client)
        for number in range(3):
            producer.send(partition, [SimpleRecord(None, b"%d" % number)])
        reader = Reader(client, {partition: 0}, isolation_level=READ_UNCOMMITTED)
        values: list[bytes | None] = []
        while len(values) < 3:
            values += [record.value for record in reader.poll()]
    return values


def await_login(properties: Mapping[str, str]) -> None:
    """Wait until the broker knows a credential that the controller has just stored."""

    def can_log_in() -> bool:
        try:
            with WireClient(client_settings(properties)) as client:
                client.metadata()
        except SaslFailed:
            return False
        return True

    wait_until(can_log_in, limit_s=10, pause_s=0)


def refused(properties: Mapping[str, str], kind: type[ClientError] = AuthenticationFailed) -> str:
    """Return the text of the refusal, which has to come before any retry."""
    client = WireClient(client_settings(properties), sleep=lambda _: pytest.fail("retried"))
    with client, pytest.raises(kind) as raised:
        client.metadata()
    assert WRONG not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("mechanism", LOGINS)
def test_records_are_written_and_read_with_every_mechanism(
    kafka: SecuredKafka, mechanism: str
) -> None:
    properties = kafka.properties("LOGIN_TLS", **login(mechanism))
    assert produce_and_read(properties, mechanism) == [b"0", b"1", b"2"]


def test_a_user_name_with_the_separators_of_scram_logs_in(kafka: SecuredKafka) -> None:
    properties = kafka.properties("LOGIN_TLS", **login("SCRAM-SHA-256", ODD_JAAS))
    with WireClient(client_settings(properties)) as client:
        assert len(client.metadata().brokers) == 1


def test_a_delegation_token_logs_in(kafka: SecuredKafka, tmp_path: Path) -> None:
    properties = kafka.properties("LOGIN_TLS", **login("SCRAM-SHA-256"))
    file = tmp_path / "owner.properties"
    file.write_text(format_properties(properties))
    shown = run_in_new_jvm(
        "delegation-tokens",
        *("--bootstrap-server", properties["bootstrap.servers"], "--command-config", str(file)),
        *("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:alice"),
    ).check()
    (row,) = [line for line in shown.lines if "User:alice      User:alice" in line]
    token_id, token_hmac = row.split()[:2]
    options = {"username": token_id, "password": token_hmac, "tokenauth": "true"}
    text = jaas("scram.ScramLoginModule", **options)
    as_token = kafka.properties("LOGIN_TLS", **login("SCRAM-SHA-256", text))
    await_login(as_token)
    assert produce_and_read(as_token, "by-token") == [b"0", b"1", b"2"]
    as_user = login("SCRAM-SHA-256", text.replace('tokenauth="true"', ""))
    refused(kafka.properties("LOGIN_TLS", **as_user), SaslFailed)


def test_a_token_from_a_file_logs_in(kafka: SecuredKafka, tmp_path: Path) -> None:
    claims = UnsecuredToken('{"sub": "alice"}', lifetime_s=600)
    (tmp_path / "token").write_text(TokenSource(TokenLogin(claims)).token().text)
    module = jaas("oauthbearer.OAuthBearerLoginModule")
    handler = module.split()[0].replace("LoginModule", "LoginCallbackHandler")
    properties = kafka.properties(
        "LOGIN_TLS",
        **login("OAUTHBEARER", module),
        **{
            "sasl.login.callback.handler.class": handler,
            "sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri(),
        },
    )
    assert produce_and_read(properties, "by-file") == [b"0", b"1", b"2"]


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_a_client_certificate_is_presented_where_it_is_required(
    kafka: SecuredKafka, version: str
) -> None:
    only = {"ssl.enabled.protocols": version}
    own = {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(kafka.client_file)}
    properties = kafka.properties("MUTUAL", **only, **own)
    assert produce_and_read(properties, f"mutual-{version}") == [b"0", b"1", b"2"]
    text = refused(kafka.properties("MUTUAL", **only), TlsFailed)
    assert "refuses the certificate of this client, or its absence" in text
    stranger = certified("stranger", authority="stranger")
    other = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": stranger.key_pem(),
        "ssl.keystore.certificate.chain": stranger.certificate_pem,
    }
    refused(kafka.properties("MUTUAL", **only, **other), TlsFailed)


@pytest.mark.parametrize(
    ("listener", "words"),
    [
        ("OTHER_HOST", "is for another host"),
        ("EXPIRED", "has expired"),
        ("SELF_SIGNED", "not trusted (self-signed certificate)"),
    ],
)
def test_a_certificate_that_is_not_accepted_is_explained(
    kafka: SecuredKafka, listener: str, words: str
) -> None:
    assert words in refused(kafka.properties(listener), TlsFailed)


@pytest.mark.parametrize(
    ("mechanism", "text"),
    [
        ("PLAIN", PLAIN_JAAS),
        ("SCRAM-SHA-256", SCRAM_JAAS),
        ("SCRAM-SHA-512", SCRAM_JAAS.replace("alice", "nobody")),
    ],
)
def test_a_wrong_password_and_an_unknown_user_are_refused(
    kafka: SecuredKafka, mechanism: str, text: str
) -> None:
    module, _, _ = text.partition("password=")
    properties = kafka.properties("LOGIN_TLS", **login(mechanism, f'{module} password="{WRONG}";'))
    assert f"the broker refused the login with {mechanism}" in refused(properties, SaslFailed)


def test_an_expired_token_is_refused(kafka: SecuredKafka) -> None:
    expired = TOKEN_JAAS.replace(";", ' unsecuredLoginNumberClaim_exp="1000";')
    properties = kafka.properties("LOGIN_TLS", **login("OAUTHBEARER", expired))
    assert "invalid_token" in refused(properties, SaslFailed)


def test_a_mechanism_or_protocol_that_the_listener_lacks_is_named(kafka: SecuredKafka) -> None:
    text = refused(kafka.properties("SHORT", **login("SCRAM-SHA-256")), SaslFailed)
    assert "this listener enables OAUTHBEARER, PLAIN, SCRAM-SHA-512" in text
    on_plaintext = {"bootstrap.servers": kafka.node.bootstrap}
    text = refused(kafka.properties("SHORT", **login("PLAIN")) | on_plaintext, SaslFailed)
    assert "does not use SASL" in text
    for listener in ("TLS", "LOGIN_TLS", "SHORT"):
        properties = kafka.properties(listener) | {"security.protocol": "PLAINTEXT"}
        assert "security.protocol=PLAINTEXT" in refused(properties, ClientError)
    text = refused(kafka.properties("TLS") | on_plaintext, ClientError)
    assert "check security.protocol" in text


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_a_session_that_ends_is_renewed_on_its_connection(
    kafka: SecuredKafka, mechanism: str
) -> None:
    properties = kafka.properties("SHORT", **login(mechanism))
    with WireClient(client_settings(properties)) as client:
        (broker,) = client.metadata().brokers.values()
        connection = client.connection(broker)
        end = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < end:
            client.metadata()
        assert client.connection(broker) is connection


def test_tools_take_the_properties_from_a_file(kafka: SecuredKafka, tmp_path: Path) -> None:
    properties = kafka.properties("LOGIN_TLS", **login("SCRAM-SHA-512"))
    servers = properties.pop("bootstrap.servers")
    file = tmp_path / "client.properties"
    file.write_text(format_properties(properties))

    def spindle(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(SPINDLE), *arguments, "--bootstrap-server", servers],
            input=text, capture_output=True, text=True, check=False,
        )  # fmt: skip

    config = ("--command-config", str(file))
    assert spindle("topic", "create", "tools", *config).returncode == 0
    done = spindle("produce", "tools", *config, text="one\ntwo\n")
    assert done.returncode == 0, done.stderr
    done = spindle("consume", "tools", "--from-beginning", "-n", "2", *config)
    assert done.stdout == "one\ntwo\n"
    assert "tools" in spindle("topic", "list", *config).stdout
    assert spindle("status", *config).returncode == 0
    file.write_text(format_properties(properties).replace("alice", "nobody"))
    failed = spindle("topic", "list", *config)
    assert failed.returncode == 1
    assert "the broker refused the login with SCRAM-SHA-512" in failed.stderr
    assert failed.stderr.count("\n") == 1


@pytest.mark.timeout(400)
def test_spark_reads_with_every_source_and_shows_no_secret(
    kafka: SecuredKafka, tmp_path: Path
) -> None:
    properties = kafka.properties("LOGIN_TLS", **login("SCRAM-SHA-512"))
    expected = [value.decode() for value in produce_and_read(properties, "spark") if value]
    # All stores are inline, so that they travel to the workers.
    del properties["ssl.truststore.location"]
    properties |= {
        "ssl.truststore.certificates": kafka.client.authority_pem,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": kafka.client.key_pem(),
        "ssl.keystore.certificate.chain": kafka.client.certificate_pem,
    }
    options = {f"kafka.{name}": value for name, value in properties.items()}
    options |= {"subscribe": "spark", "startingOffsets": "earliest"}
    program = Path(__file__).with_name("spark_secured.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        input=json.dumps(options), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    for name in ("spindle", "spindle-segments", "stream"):
        assert answer[name] == expected, name
    assert answer["exported"] == len(expected)
    assert "the broker refused the login with SCRAM-SHA-512" in answer["refused"]
    key_line = kafka.client.key_pem().splitlines()[1]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("events" in path.parts for path in files)
    for text in (done.stderr, done.stdout, *(p.read_bytes().decode("latin-1") for p in files)):
        assert key_line not in text
        assert "s=s" not in text  # a part of the password without characters that JSON escapes
