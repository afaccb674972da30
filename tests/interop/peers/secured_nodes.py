"""Nodes that show certificates to each other and log in to each other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from certificates import certified

from peers.node import Node
from peers.secured_kafka import HOSTS, jaas, stores
from spindle.client.admin.scram import NewCredential
from spindle.security.scram import ScramMechanism

NODE_USER = "node"
NODE_PASSWORD = "secret-of-the-nodes"
NODE_PRINCIPALS = f"User:CN=node;User:{NODE_USER}"
"""The nodes by their certificates and by their logins, for `super.users`."""
ADD_SCRAM = ("--add-scram", f"SCRAM-SHA-512=[name={NODE_USER},password={NODE_PASSWORD}]")
"""The options with which `storage format` stores the credential of the nodes."""
NODE_CREDENTIAL = NewCredential(ScramMechanism.SCRAM_SHA_512, 4096, NODE_PASSWORD, b"salt" * 8)
NODE_JAAS = jaas("scram.ScramLoginModule", username=NODE_USER, password=NODE_PASSWORD)


def certificates(folder: Path) -> Mapping[str, str]:
    """Return keys with which a node shows a certificate on all listeners, and wants one."""
    folder.mkdir(parents=True, exist_ok=True)
    own = certified(NODE_USER, hosts=HOSTS)
    trust_file = folder / "ca.pem"
    trust_file.write_text(own.authority_pem)
    return {**stores("", own.write(folder, "node"), trust_file), "ssl.client.auth": "required"}


def logins(listener: str, mechanism: str) -> Mapping[str, str]:
    """Return keys with which nodes log in at a listener by one mechanism, and serve it."""
    prefix = f"listener.name.{listener.lower()}."
    if mechanism == "PLAIN":
        users = {f"user_{NODE_USER}": NODE_PASSWORD}
        text = jaas("plain.PlainLoginModule", username=NODE_USER, password=NODE_PASSWORD, **users)
    else:
        text = NODE_JAAS
    return {
        f"{prefix}sasl.enabled.mechanisms": mechanism,
        f"{prefix}{mechanism.lower()}.sasl.jaas.config": text,
    }


def protocols(node: Node, **changed: str) -> Mapping[str, str]:
    """Return the key with the security protocols of a node's listeners, some of them changed."""
    by_listener = {
        "PLAINTEXT": "PLAINTEXT",
        "CONTROLLER": "PLAINTEXT",
        **node.secure_listeners,
        **changed,
    }
    text = ",".join(f"{name}:{protocol}" for name, protocol in by_listener.items())
    return {"listener.security.protocol.map": text}
