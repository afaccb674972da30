"""The mechanisms of a listener, with the credentials in the metadata."""

import os
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from spindle.common.ids import Endpoint
from spindle.config.node_config import NodeConfig
from spindle.metadata.configs import BROKER_RESOURCE, ConfigResource, ConfigsImage
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.security import ScramUser
from spindle.runtime.network.jwks_cache import KeySets
from spindle.runtime.network.sasl_rules import sasl_rules
from spindle.runtime.network.sasl_state import SaslRules
from spindle.runtime.network.unauthenticated import UnauthenticatedConnections
from spindle.security.scram import ScramCredential, ScramMechanism
from spindle.security.server.mechanism import LoginRefused

SHA_256 = ScramMechanism.SCRAM_SHA_256
PROTOCOL = 2
NODE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@h1:9093",
    "listeners": "CLIENTS://h1:9092,CONTROLLER://h1:9093",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "CLIENTS",
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
    "sasl.enabled.mechanisms": SHA_256.text,
    "log.dirs": "/a",
}


JAAS = "listener.name.clients.plain.sasl.jaas.config"


def module(*users: str) -> str:
    """Return the login module of users, each of whom has the own name as the password."""
    options = " ".join(f'user_{name}="{name}"' for name in users)
    return f"org.apache.kafka.common.security.plain.PlainLoginModule required {options};"


def rules_of(image: Callable[[], MetadataImage], **properties: str) -> SaslRules:
    """Return the rules of the listener; in names of properties, `_` stands for a dot."""
    changes = {name.replace("_", "."): value for name, value in properties.items()}
    rules = sasl_rules(
        NodeConfig({**NODE, **changes}),
        Endpoint("CLIENTS", "h1", 9092, PROTOCOL),
        image,
        lambda: 0,
        KeySets(Random(1).random),
        UnauthenticatedConnections(),
    )
    assert rules is not None
    return rules


def test_the_challenge_to_an_unknown_user_is_like_those_of_the_users_in_the_metadata() -> None:
    real = ScramCredential(os.urandom(64), os.urandom(32), os.urandom(32), 8192)
    security = replace(EMPTY_IMAGE.security, scram={ScramUser("alice", SHA_256): real})
    image = replace(EMPTY_IMAGE, security=security)
    rules = rules_of(lambda: image)
    exchange = rules.mechanisms[SHA_256.text]()
    next(exchange)
    _, salt, iterations = exchange.send(b"n,,n=ghost,r=nonce").split(b",")
    assert len(b64decode(salt.removeprefix(b"s="))) == 64
    assert iterations == b"i=8192"


def test_a_dynamic_value_changes_the_users_of_plain_and_a_malformed_one_does_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    image = EMPTY_IMAGE
    rules = rules_of(
        lambda: image, sasl_enabled_mechanisms="PLAIN", **{JAAS.replace(".", "_"): module("alice")}
    )

    def may_log_in(name: str) -> bool:
        exchange = rules.mechanisms["PLAIN"]()
        next(exchange)
        try:
            exchange.send(f"\0{name}\0{name}".encode())
        except StopIteration:
            return True
        except LoginRefused:
            return False
        raise AssertionError

    def configure(**values: str) -> None:
        nonlocal image
        resource = ConfigResource(BROKER_RESOURCE, "1")
        image = replace(image, configs=ConfigsImage({resource: values}))

    allowed = [may_log_in("alice")]
    configure(**{JAAS: module("bob")})
    allowed += [may_log_in("alice"), may_log_in("bob")]
    configure(**{JAAS: "hunter2"})
    allowed += [may_log_in("bob"), may_log_in("bob")]
    configure()
    allowed += [may_log_in("alice"), may_log_in("bob")]
    assert allowed == [True, False, True, True, True, True, False]
    (refusal,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert JAAS in refusal
    assert "hunter2" not in refusal
