"""The wire client over TLS and SASL: what works, and errors that say what to do."""

import contextlib
import os
import pickle
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import PASSWORD as STORE_PASSWORD
from certificates import Certified, certified, self_signed
from secured_broker import PASSWORD, USER, SecuredBroker, server_context
from wire_broker import WireBroker

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.errors import (
    AuthenticationFailed,
    ConnectionLost,
    SaslFailed,
    TlsFailed,
)
from spindle.client.security.login import _RENEWAL_SHARE
from spindle.common.errors import ConfigError, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.security.tls_context import client_context
from spindle.security.tls_settings import tls_settings

SERVER = certified("broker", hosts=("127.0.0.1",))
MODULES = "org.apache.kafka.common.security"
PLAIN = f'{MODULES}.plain.PlainLoginModule required username="{USER}" password="{PASSWORD}";'
SCRAM = f'{MODULES}.scram.ScramLoginModule required username="{USER}" password="{PASSWORD}";'
WRONG = "wrong-battery-staple"


def tls(broker: WireBroker, **further: str) -> dict[str, str]:
    """Return properties; in names of `further`, `_` stands for a dot."""
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": SERVER.authority_pem,
        **{name.replace("_", "."): value for name, value in further.items()},
    }


def sasl(broker: WireBroker, mechanism: str, jaas: str) -> dict[str, str]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas,
    }


def brokers(properties: dict[str, str]) -> int:
    with WireClient(client_settings(properties)) as client:
        return len(client.metadata().brokers)


def refusal(properties: dict[str, str], kind: type[Exception] = AuthenticationFailed) -> str:
    """Return the error of the first request, which has to be one and at once."""
    with (
        pytest.raises(kind) as raised,
        WireClient(client_settings(properties), sleep=lambda _: pytest.fail("retried")) as client,
    ):
        client.metadata()
    assert WRONG not in str(raised.value)
    assert PASSWORD not in str(raised.value)
    return str(raised.value)


# ---------------------------------------------------------------- TLS


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_requests_travel_over_tls(version: str) -> None:
    with SecuredBroker(tls=server_context(SERVER)) as broker:
        assert brokers(tls(broker, ssl_enabled_protocols=version)) == 1


def test_a_large_request_and_its_answer_arrive_whole_over_tls() -> None:
    partition = TopicPartition("t", 0)
    with SecuredBroker(tls=server_context(SERVER)) as broker:
        broker.log("t", 0)
        broker.interrupt(ProduceRequest, lambda request: broker.handle(request))
        with WireClient(client_settings(tls(broker))) as client:
            batch = build_batch([SimpleRecord(None, os.urandom(3_000_000))])
            client.produce(partition, batch)
        assert broker.log("t", 0).batches == [batch]


@pytest.mark.parametrize(
    ("own", "words"),
    [
        (certified("b", hosts=("other.test",)), "is for another host"),
        (certified("b", hosts=("127.0.0.1",), days=-1), "has expired"),
        (self_signed("b", hosts=("127.0.0.1",)), "not trusted (self-signed"),
        (certified("b", hosts=("127.0.0.1",), authority="stranger"), "not trusted"),
    ],
    ids=["other host", "expired", "self-signed", "unknown authority"],
)
def test_a_certificate_that_is_not_accepted_is_explained_once(own: Certified, words: str) -> None:
    with SecuredBroker(tls=server_context(own)) as broker:
        text = refusal(tls(broker), TlsFailed)
        assert text.startswith(f"{broker.address}: its certificate")
        assert words in text


def test_the_host_is_not_checked_without_an_identification_algorithm() -> None:
    own = certified("b", hosts=("other.test",))
    with SecuredBroker(tls=server_context(own)) as broker:
        assert brokers(tls(broker, ssl_endpoint_identification_algorithm="")) == 1


def test_a_trusted_certificate_that_is_no_authority_is_an_anchor_as_in_java() -> None:
    with SecuredBroker(tls=server_context(SERVER)) as broker:
        assert brokers(tls(broker, ssl_truststore_certificates=SERVER.certificate_pem)) == 1


def test_a_client_certificate_may_be_inline_a_file_or_pkcs12(tmp_path: Path) -> None:
    own = certified("client")
    (tmp_path / "own.p12").write_bytes(own.key_store_pkcs12())
    (tmp_path / "ca.p12").write_bytes(own.trust_store_pkcs12())
    stores = [
        {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": own.key_pem("pw"),
            "ssl_key_password": "pw",
            "ssl_keystore_certificate_chain": own.certificate_pem,
        },
        {"ssl_keystore_type": "PEM", "ssl_keystore_location": str(own.write(tmp_path, "own"))},
        {
            "ssl_keystore_type": "PKCS12",
            "ssl_keystore_location": str(tmp_path / "own.p12"),
            "ssl_keystore_password": STORE_PASSWORD,
            "ssl_truststore_type": "PKCS12",
            "ssl_truststore_certificates": "",
            "ssl_truststore_location": str(tmp_path / "ca.p12"),
            "ssl_truststore_password": STORE_PASSWORD,
        },
    ]
    with SecuredBroker(tls=server_context(SERVER, wants_client=True)) as broker:
        assert [brokers(tls(broker, **store)) for store in stores] == [1, 1, 1]
        assert "wants a client certificate" in refusal(tls(broker), TlsFailed)
        stranger = certified("client", authority="stranger")
        store = {
            "ssl_keystore_type": "PEM",
            "ssl_keystore_key": stranger.key_pem(),
            "ssl_keystore_certificate_chain": stranger.certificate_pem,
        }
        assert "refuses the certificate of this client" in refusal(tls(broker, **store), TlsFailed)


def test_tls_to_a_plaintext_listener_and_the_reverse_name_the_property() -> None:
    with server_that_says(b"", hangs_up=True) as address:
        text = refusal({"bootstrap.servers": address, "security.protocol": "SSL"}, ConnectionLost)
        assert "check security.protocol" in text
    alert = b"\x15\x03\x03\x00\x02\x02\x50"
    for last_words in (b"", alert):
        with server_that_says(last_words, hangs_up=True) as address:
            text = refusal({"bootstrap.servers": address}, ConnectionLost)
            assert "is its listener one for security.protocol=PLAINTEXT?" in text
            assert text.endswith("from the file of --command-config")


@contextlib.contextmanager
def server_that_says(answer: bytes, *, hangs_up: bool = False) -> Iterator[str]:
    """Accept one connection, send something and wait for its end; yield the address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                connection.sendall(answer)
                while connection.recv(4096) and not hangs_up:
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        thread.join()


def test_a_silent_or_foreign_server_does_not_hold_a_tls_client_up() -> None:
    properties = {"security.protocol": "SSL", "socket.connection.setup.timeout.ms": "50"}
    with server_that_says(b"") as address:
        text = refusal({**properties, "bootstrap.servers": address}, ConnectionLost)
        assert "did not finish the TLS handshake in time" in text
    with server_that_says(b"SSH-2.0-x\r\n") as address:
        text = refusal({**properties, "bootstrap.servers": address}, TlsFailed)
        assert "does not speak TLS" in text


# ---------------------------------------------------------------- SASL


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM), ("SCRAM-SHA-512", SCRAM)],
)
def test_a_user_logs_in_over_tls_and_without(mechanism: str, jaas: str) -> None:
    with SecuredBroker(mechanisms=("PLAIN", mechanism)) as broker:
        assert brokers(sasl(broker, mechanism, jaas)) == 1
        assert broker.logins == 1
    with SecuredBroker(tls=server_context(SERVER), mechanisms=(mechanism,)) as broker:
        properties = sasl(broker, mechanism, jaas) | tls(broker, security_protocol="SASL_SSL")
        assert brokers(properties) == 1


@pytest.mark.parametrize("version", [0, 1, 2])
def test_every_version_of_sasl_authenticate_works(version: int) -> None:
    versions: dict[type[Message], int] = {SaslAuthenticateRequest: version}
    with SecuredBroker(mechanisms=("PLAIN",), last_versions=versions) as broker:
        assert brokers(sasl(broker, "PLAIN", PLAIN)) == 1
        assert broker.versions[SaslAuthenticateRequest] == version


@pytest.mark.parametrize(("mechanism", "jaas"), [("PLAIN", PLAIN), ("SCRAM-SHA-512", SCRAM)])
def test_a_wrong_password_is_an_error_that_is_not_tried_again(mechanism: str, jaas: str) -> None:
    with SecuredBroker(mechanisms=(mechanism,)) as broker:
        text = refusal(sasl(broker, mechanism, jaas.replace(PASSWORD, WRONG)), SaslFailed)
        assert text == (
            f"{broker.address}: the broker refused the login with {mechanism} ('go\\naway'): "
            "check sasl.jaas.config"
        )


def test_a_mechanism_that_the_listener_lacks_is_answered_with_those_it_has() -> None:
    with SecuredBroker(mechanisms=("SCRAM-SHA-512", "PLAIN")) as broker:
        text = refusal(sasl(broker, "SCRAM-SHA-256", SCRAM), SaslFailed)
        assert "this listener enables PLAIN, SCRAM-SHA-512" in text
    with SecuredBroker() as broker:
        text = refusal(sasl(broker, "PLAIN", PLAIN), SaslFailed)
        assert "does not use SASL: security.protocol has to be PLAINTEXT or SSL" in text


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda m: m.replace(b"r=", b"r=x"), "nonce does not extend"),
        (lambda m: m.replace(b"i=4096", b"i=1"), "asks for 1 iterations"),
        (lambda m: m.replace(b"i=4096", b"i=2000000000"), "asks for 2000000000 iterations"),
        (lambda m: m.replace(b"s=", b"s=*"), "first SCRAM message is malformed"),
        (lambda m: b"\xff" + m, "not UTF-8"),
        (lambda m: m.replace(b"v=", b"v=AAAA"), "may be an impostor"),
        (lambda m: b"" if m.startswith(b"v=") else m, "last SCRAM message is malformed"),
        (lambda m: b"e=unknown-user" if m.startswith(b"v=") else m, "'unknown-user'"),
    ],
    ids=["nonce", "few", "many", "salt", "bytes", "signature", "no signature", "error"],
)
def test_a_server_that_breaks_the_rules_of_scram_is_refused(
    edit: Callable[[bytes], bytes], words: str
) -> None:
    with SecuredBroker(mechanisms=("SCRAM-SHA-256",), edit=edit) as broker:
        assert words in refusal(sasl(broker, "SCRAM-SHA-256", SCRAM), SaslFailed)


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (None, ConnectionLost, "closed the connection"),
        (b"\x00\x00\x00\x02\x00" * 300_000, ProtocolViolation, "at most 1048576 are accepted"),
        (b"\x00\x00\x00\x02", ProtocolViolation, "127.0.0.1"),
        (b"", ProtocolViolation, "an answer of 0 bytes"),
    ],
    ids=["nothing", "too much", "half", "empty"],
)
def test_a_broker_that_answers_a_login_with_garbage_is_refused(
    answer: bytes | None, kind: type[Exception], words: str
) -> None:
    with SecuredBroker(mechanisms=("PLAIN",)) as broker:
        broker.interrupt(SaslAuthenticateRequest, lambda _: answer)
        assert words in refusal(sasl(broker, "PLAIN", PLAIN), kind)


def test_a_session_is_renewed_on_its_connection_before_it_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seconds = [0.0]
    monkeypatch.setattr("spindle.client.blocking.transport.time.monotonic", lambda: seconds[0])
    with (
        SecuredBroker(mechanisms=("SCRAM-SHA-256",), session_lifetime_ms=10_000) as broker,
        WireClient(client_settings(sasl(broker, "SCRAM-SHA-256", SCRAM))) as client,
    ):
        client.metadata()  # on a connection to the bootstrap server
        client.metadata()  # on one to broker 7, which metadata has named
        seconds[0] = 10 * _RENEWAL_SHARE[0] - 0.1
        client.metadata()
        assert broker.logins == 2
        seconds[0] = 10 * _RENEWAL_SHARE[1] + 0.1
        client.metadata()
        client.metadata()
        assert broker.logins == 3
        assert len(broker.requests[MetadataRequest]) == 5
        broker.interrupt(SaslAuthenticateRequest, lambda _: None)
        seconds[0] = 30.0
        client.retrying(client.metadata)
        assert broker.logins == 4


# ---------------------------------------------------------------- settings and secrets


def test_settings_travel_to_executors_and_hide_their_secrets() -> None:
    own = certified("client")
    properties = {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.jaas.config": SCRAM,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": own.key_pem("key-password"),
        "ssl.keystore.certificate.chain": own.certificate_pem,
        "ssl.key.password": "key-password",
    }
    settings = client_settings(properties)
    arrived = pickle.loads(pickle.dumps(settings))
    assert arrived == settings
    for text in (repr(arrived), str(settings), repr(WireClient(settings))):
        assert PASSWORD not in text
        assert "key-password" not in text
        assert "PRIVATE KEY" not in text


def test_a_key_leaves_no_file_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = certified("client")
    settings = tls_settings(
        {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.key": own.key_pem(),
            "ssl.keystore.certificate.chain": own.certificate_pem,
        }
    )
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    modes: list[int] = []
    load = ssl.SSLContext.load_cert_chain

    def spy(context: ssl.SSLContext, path: str, **more: Any) -> None:
        modes.append(os.stat(path).st_mode & 0o777)
        load(context, path, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", spy)
    client_context(settings)
    assert modes == [0o600]
    assert not list(tmp_path.iterdir())


def test_store_errors_are_configuration_errors_at_the_first_connection(tmp_path: Path) -> None:
    with SecuredBroker(tls=server_context(SERVER)) as broker:
        properties = tls(
            broker,
            ssl_truststore_certificates="",
            ssl_truststore_location=str(tmp_path / "none.pem"),
        )
        text = refusal(properties, ConfigError)
        assert text.startswith(f"ssl.truststore.location {tmp_path / 'none.pem'} cannot be read")
