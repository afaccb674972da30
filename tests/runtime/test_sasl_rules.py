"""The mechanisms of a listener, with the credentials in the metadata."""

import os
from base64 import b64decode
from dataclasses import replace
from random import Random

from spindle.common.ids import Endpoint
from spindle.config.node_config import NodeConfig
from spindle.metadata.image import EMPTY_IMAGE
from spindle.metadata.security import ScramUser
from spindle.runtime.network.key_sets import KeySets
from spindle.runtime.network.sasl_rules import sasl_rules
from spindle.runtime.network.strangers import Strangers
from spindle.security.scram import ScramCredential, ScramMechanism

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


def test_the_challenge_to_an_unknown_user_is_like_those_of_the_users_in_the_metadata() -> None:
    real = ScramCredential(os.urandom(64), os.urandom(32), os.urandom(32), 8192)
    security = replace(EMPTY_IMAGE.security, scram={ScramUser("alice", SHA_256): real})
    image = replace(EMPTY_IMAGE, security=security)
    endpoint = Endpoint("CLIENTS", "h1", 9092, PROTOCOL)
    rules = sasl_rules(
        NodeConfig(NODE),
        endpoint,
        lambda: image,
        lambda: 0,
        KeySets(Random(1).random),
        Strangers(),
    )
    assert rules is not None
    exchange = rules.mechanisms[SHA_256.text]()
    next(exchange)
    _, salt, iterations = exchange.send(b"n,,n=ghost,r=nonce").split(b",")
    assert len(b64decode(salt.removeprefix(b"s="))) == 64
    assert iterations == b"i=8192"
