"""Tokens at the listeners of nodes: OAUTHBEARER and delegation tokens (KIP-48)."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaProvider
from bearer_tokens import key_set, public_row, signed
from confluent_kafka import KafkaError, Producer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonProvider
from peers.clients import create
from peers.java_tools import ToolResult, run_in_new_jvm
from peers.node import SpindleNode
from peers.secured_kafka import SCRAM_JAAS as PASSWORD_JAAS
from peers.secured_kafka import USER, add_users, jaas, mechanisms
from waiting import wait_until

from kafka import KafkaProducer
from spindle.client.admin.delegation_tokens import (
    KnownToken,
    create_token,
    describe_tokens,
    expire_token,
)
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.errors import SaslFailed
from spindle.common.errors import ApiError, ErrorCode
from spindle.config.properties import format_properties

pytestmark = pytest.mark.timeout(180)
LIMIT_S = 30.0
HOUR_S = 3600
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
KEYS = "listener.name.login.oauthbearer.sasl."


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpindleNode]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(key_set(public_row("one")))
    running = SpindleNode(
        tmp_path_factory.mktemp("tokens"),
        directory_count=1,
        secure_listeners={"LOGIN": "SASL_PLAINTEXT"},
        overrides={
            **mechanisms("login", "SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
            f"{KEYS}server.callback.handler.class": HANDLER,
            f"{KEYS}oauthbearer.jwks.endpoint.url": keys.as_uri(),
            f"{KEYS}oauthbearer.expected.audience": "kafka",
            f"{KEYS}oauthbearer.allow.unverified.issuer": "true",
            "delegation.token.secret.key": "the secret of all nodes",
        },
    )
    with running:
        add_users(running)
        wait_past_logins(lambda: by_password(running))
        yield running
    running.remove()


def wait_past_logins(condition: Callable[[], object]) -> None:
    """Wait until a call neither fails at the login nor returns something false."""

    def holds() -> object:
        try:
            return condition()
        except SaslFailed:
            return False

    wait_until(holds, limit_s=LIMIT_S, pause_s=0)


def token_of(user: str, name: str = "one", **claims: object) -> str:
    now_s = int(time.time())
    basic = {"sub": user, "aud": "kafka", "iat": now_s, "exp": now_s + HOUR_S}
    return signed(basic | claims, name)


def properties(node: SpindleNode, mechanism: str, text: str, **more: str) -> dict[str, str]:
    """Return the properties of a client, with Java's names."""
    return {
        "bootstrap.servers": node.secure_bootstrap("LOGIN"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": text,
        **more,
    }


def password_properties(node: SpindleNode) -> dict[str, str]:
    return properties(node, "SCRAM-SHA-512", PASSWORD_JAAS)


def by_password(node: SpindleNode) -> bool:
    with WireClient(client_settings(password_properties(node))) as client:
        return bool(client.metadata().brokers)


def token_properties(node: SpindleNode, token: KnownToken, mechanism: str) -> dict[str, str]:
    module = jaas(
        "scram.ScramLoginModule",
        username=token.token_id,
        password=token_password(token),
        tokenauth="true",
    )
    return properties(node, mechanism, module)


def token_password(token: KnownToken) -> str:
    return b64encode(token.hmac).decode()


def librdkafka(node: SpindleNode, token: str) -> list[str]:
    """Write a record; return the errors of the login."""
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": node.secure_bootstrap("LOGIN"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + HOUR_S, "", {"traceId": "7"}),
            "error_cb": failures.append,
            "log_level": 0,
        }
    )
    producer.produce("written", b"x", partition=0)
    deadline = time.monotonic() + LIMIT_S
    while producer.flush(0.1) and time.monotonic() < deadline:
        refusals = [str(f) for f in failures if f.code() == KafkaError._AUTHENTICATION]
        if refusals:
            producer.purge()
            return refusals
    assert len(producer) == 0
    return []


def test_librdkafka_writes_with_a_signed_token_and_is_refused_with_other_ones(
    node: SpindleNode,
) -> None:
    create(node, "written")
    assert librdkafka(node, token_of("alice")) == []
    now_s = int(time.time())
    for wrong in (
        token_of("alice", "two"),
        token_of("alice", exp=now_s - 60, iat=now_s - 120),
        token_of("alice", aud="web"),
        token_of("alice").rpartition(".")[0] + ".AAAA",
    ):
        (text, *_) = librdkafka(node, wrong)
        assert "invalid_token" in text


async def test_clients_of_python_write_with_a_signed_token(node: SpindleNode) -> None:
    class OfAiokafka(AiokafkaProvider):  # type: ignore[misc]  # aiokafka has no types
        async def token(self) -> str:
            return token_of("alice")

    class OfKafkaPython(KafkaPythonProvider):  # type: ignore[misc]  # kafka-python has no types
        def token(self) -> str:
            return token_of("alice")

    async def write() -> Any:
        producer = AIOKafkaProducer(
            bootstrap_servers=node.secure_bootstrap("LOGIN"),
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=OfAiokafka(),
        )
        async with producer:
            return await producer.send_and_wait("python", b"x", partition=0)

    create(node, "python")
    assert (await write()).offset == 0
    producer = KafkaProducer(
        bootstrap_servers=node.secure_bootstrap("LOGIN"),
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=OfKafkaPython(),
    )
    assert producer.send("python", b"y", partition=0).get(LIMIT_S).offset == 1
    producer.close()


def java(node: SpindleNode, config: Path, *arguments: str) -> ToolResult:
    return run_in_new_jvm(
        "org.apache.kafka.tools.DelegationTokenCommand",
        "--bootstrap-server",
        node.secure_bootstrap("LOGIN"),
        "--command-config",
        str(config),
        *arguments,
    )


def written(path: Path, values: Mapping[str, str]) -> Path:
    path.write_text(format_properties(values))
    return path


def test_the_tool_of_kafka_works_on_tokens(node: SpindleNode, tmp_path: Path) -> None:
    config = written(tmp_path / "alice.properties", password_properties(node))
    created = java(
        node, config, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    ).check()
    row = created.lines[-1].split()
    token_id, hmac = row[:2]
    assert row[2:5] == [f"User:{USER}", f"User:{USER}", "[User:bob]"]
    wait_past_logins(lambda: known_tokens(node) == [token_id])
    described = java(node, config, "--describe", "--owner-principal", f"User:{USER}").check()
    assert described.lines[-1] == created.lines[-1]
    renewed = java(node, config, "--renew", "--hmac", hmac, "--renew-time-period", "-1").check()
    assert "Completed renew operation" in renewed.stdout
    expired = java(node, config, "--expire", "--hmac", hmac, "--expiry-time-period", "-1").check()
    assert "Completed expire operation" in expired.stdout
    again = java(node, config, "--renew", "--hmac", hmac, "--renew-time-period", "-1")
    assert again.exit_code == 1
    assert "Delegation Token is not found on server." in again.stderr
    wait_past_logins(lambda: known_tokens(node) == [])


def known_tokens(node: SpindleNode) -> list[str]:
    with WireClient(client_settings(password_properties(node))) as alice:
        return [token.token_id for token in describe_tokens(alice, [])]


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_in_as_its_owner_until_it_is_gone(node: SpindleNode, mechanism: str) -> None:
    with WireClient(client_settings(password_properties(node))) as alice:
        token = create_token(alice, [], None, -1)
        assert token.owner == f"User:{USER}"
        settings = client_settings(token_properties(node, token, mechanism))

        def logs_in() -> bool:
            with WireClient(settings) as client:
                return bool(client.metadata().brokers)

        wait_past_logins(logs_in)
        with WireClient(settings) as client:
            for ask in (
                lambda: create_token(client, [], None, -1),
                lambda: expire_token(client, token.hmac, -1),
                lambda: describe_tokens(client, []),
            ):
                with pytest.raises(ApiError) as caught:
                    ask()
                assert caught.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            assert [token.token_id for token in describe_tokens(alice, [])] == [token.token_id]
            expire_token(alice, token.hmac, -1)
            wait_past_logins(lambda: not describe_tokens(alice, []))
        with pytest.raises(SaslFailed):
            logs_in()


def test_a_client_without_login_gets_no_token(node: SpindleNode) -> None:
    plain = client_settings({"bootstrap.servers": node.bootstrap})
    with WireClient(plain) as client, pytest.raises(ApiError) as caught:
        create_token(client, [], None, -1)
    assert caught.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


def test_the_log_shows_no_secret(node: SpindleNode) -> None:
    text = node.output()
    assert "the secret of all nodes" not in text
    assert "eyJ" not in text, "the beginning of a token"
