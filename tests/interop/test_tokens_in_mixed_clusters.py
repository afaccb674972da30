"""Delegation tokens in clusters of Spindle and Kafka: brokers take each other's tokens."""

from __future__ import annotations

import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from peers.node import KafkaNode, Node, SpindleNode, random_uuid
from peers.secured_kafka import SCRAM_JAAS, add_users, jaas, mechanisms
from waiting import wait_for

from spindle.client.admin.delegation_tokens import create_token, describe_tokens, renew_token
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.errors import SaslFailed
from spindle.common.errors import ApiError

pytestmark = pytest.mark.timeout(180)
LIMIT_S = 60.0
SECRET = {"delegation.token.secret.key": "the secret of all nodes"}
T = TypeVar("T")


def client(broker: Node, module: str) -> WireClient:
    return WireClient(
        client_settings(
            {
                "bootstrap.servers": broker.secure_bootstrap("LOGIN"),
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.jaas.config": module,
            }
        )
    )


def soon(ask: Callable[[], T]) -> T:
    """Return the answer once the node that is asked has followed the metadata."""
    deadline = time.monotonic() + LIMIT_S
    while True:
        try:
            return ask()
        except (SaslFailed, ApiError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.parametrize("controller_class", [SpindleNode, KafkaNode])
def test_a_token_of_one_broker_logs_in_at_every_broker(
    controller_class: type[Node], tmp_path: Path
) -> None:
    cluster_id = random_uuid()
    controller = controller_class(
        tmp_path / "controller",
        directory_count=1,
        overrides=dict(SECRET),
        cluster_id=cluster_id,
        node_id=101,
        roles=("controller",),
    )
    brokers = [
        cls(
            tmp_path / cls.kind,
            directory_count=1,
            overrides={**SECRET, **mechanisms("login", "SCRAM-SHA-512")},
            cluster_id=cluster_id,
            node_id=number,
            roles=("broker",),
            secure_listeners={"LOGIN": "SASL_PLAINTEXT"},
        )
        for number, cls in enumerate((KafkaNode, SpindleNode), 1)
    ]
    nodes = [controller, *brokers]
    try:
        for node in nodes:
            node.voters = [controller]
            node.write_properties()
            node.format()
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        add_users(brokers[0])
        for broker in brokers:
            _use_token_of(broker, brokers)
    finally:
        for node in nodes:
            node.kill()


def _use_token_of(broker: Node, brokers: list[Node]) -> None:
    """Create a token at a broker, log in with it at all, renew and describe it."""

    def create() -> tuple[str, bytes]:
        with client(broker, SCRAM_JAAS) as alice:
            token = create_token(alice, ["User:bob"], None, -1)
            return token.token_id, token.hmac

    token_id, hmac = soon(create)
    password = b64encode(hmac).decode()
    module = jaas("scram.ScramLoginModule", username=token_id, password=password, tokenauth="true")
    for other in brokers:

        def log_in(at: Node = other) -> int:
            with client(at, module) as program:
                return len(program.metadata().brokers)

        assert soon(log_in) == len(brokers)

    def renew() -> int:
        with client(broker, SCRAM_JAAS) as alice:
            return renew_token(alice, hmac, 60_000)

    end_ms = soon(renew)

    def known_end_ms() -> int:
        with client(broker, SCRAM_JAAS) as alice:
            tokens = {token.token_id: token for token in describe_tokens(alice, [])}
        return tokens[token_id].expiry_timestamp_ms

    wait_for(known_end_ms, lambda known_ms: known_ms == end_ms, limit_s=LIMIT_S, pause_s=0.1)
