"""A Kafka node with listeners for TLS, client certificates and every SASL mechanism."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from certificates import Certified, certified, self_signed

from peers.node import KafkaNode, Node
from spindle.client.admin.scram import NewCredential, alter_user
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.security.scram import ScramMechanism

HOSTS = ("127.0.0.1", "localhost")
USER = "alice"
ODD_USER = "a=b,c"
PASSWORD = 'p"a;s=s \\word,1'
"""This and the odd user have the characters for which JAAS and SCRAM have rules."""
SESSION_MS = 2_000
"""The life of a session at the listener SHORT."""
_MODULES = "org.apache.kafka.common.security"
_LISTENERS = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "OTHER_HOST": "SSL",
    "EXPIRED": "SSL",
    "SELF_SIGNED": "SSL",
    "LOGIN_TLS": "SASL_SSL",
    "SHORT": "SASL_PLAINTEXT",
}


def jaas(module: str, **options: str) -> str:
    """Return a value of sasl.jaas.config with quoted options."""
    texts = {k: v.replace("\\", "\\\\").replace('"', '\\"') for k, v in options.items()}
    pairs = " ".join(f'{key}="{value}"' for key, value in texts.items())
    return f"{_MODULES}.{module} required {pairs};"


PLAIN_JAAS = jaas("plain.PlainLoginModule", username=USER, password=PASSWORD)
SCRAM_JAAS = jaas("scram.ScramLoginModule", username=USER, password=PASSWORD)
TOKEN_JAAS = jaas("oauthbearer.OAuthBearerLoginModule", unsecuredLoginStringClaim_sub=USER)


@dataclass(frozen=True)
class SecuredKafka:
    """A running node, and the files of its clients."""

    node: KafkaNode
    trust_file: Path
    client: Certified
    client_file: Path

    def properties(self, listener: str, **further: str) -> dict[str, str]:
        """Return client properties for a listener; in names of `further`, `_` stands for a dot."""
        return {
            "bootstrap.servers": self.node.secure_bootstrap(listener),
            "security.protocol": _LISTENERS[listener],
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.trust_file),
            **{name.replace("_", "."): value for name, value in further.items()},
        }


@contextmanager
def secured_kafka(folder: Path) -> Iterator[SecuredKafka]:
    """Run a node with a listener for each protocol; yield it."""
    folder.mkdir(parents=True, exist_ok=True)
    server = certified("broker", hosts=HOSTS)
    client = certified("client")
    trust_file = folder / "ca.pem"
    trust_file.write_text(server.authority_pem)
    node = KafkaNode(
        folder / "kafka",
        directory_count=1,
        secure_listeners=_LISTENERS,
        overrides={
            **stores("", server.write(folder, "server"), trust_file),
            **stores("other_host", certified("x", hosts=("x.test",)).write(folder, "other")),
            **stores("expired", certified("old", hosts=HOSTS, days=-1).write(folder, "expired")),
            **stores("self_signed", self_signed("self", hosts=HOSTS).write(folder, "self")),
            "listener.name.mutual.ssl.client.auth": "required",
            **mechanisms("login_tls", "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER"),
            **mechanisms("short", "PLAIN,SCRAM-SHA-512,OAUTHBEARER"),
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
            "delegation.token.secret.key": "secret of the tokens",
        },
    )
    try:
        node.format()
        node.start()
        add_users(node)
        yield SecuredKafka(node, trust_file, client, client.write(folder, "client"))
    finally:
        node.remove()


def stores(listener: str, key_file: Path, trust_file: Path | None = None) -> Mapping[str, str]:
    """Return the keys of a listener for its own certificate and for those it trusts."""
    prefix = f"listener.name.{listener}." if listener else ""
    keys = {f"{prefix}ssl.keystore.type": "PEM", f"{prefix}ssl.keystore.location": str(key_file)}
    if trust_file is not None:
        keys[f"{prefix}ssl.truststore.type"] = "PEM"
        keys[f"{prefix}ssl.truststore.location"] = str(trust_file)
    return keys


def mechanisms(listener: str, names: str) -> Mapping[str, str]:
    """Return the keys with which a listener lets the user in by each of the mechanisms."""
    prefix = f"listener.name.{listener}."
    configs = {
        "PLAIN": jaas("plain.PlainLoginModule", **{f"user_{USER}": PASSWORD}),
        "SCRAM-SHA-256": jaas("scram.ScramLoginModule"),
        "SCRAM-SHA-512": jaas("scram.ScramLoginModule"),
        "OAUTHBEARER": TOKEN_JAAS,
    }
    return {
        f"{prefix}sasl.enabled.mechanisms": names,
        **{
            f"{prefix}{name.lower()}.sasl.jaas.config": in_property_file(configs[name])
            for name in names.split(",")
        },
    }


def in_property_file(value: str) -> str:
    """Return a value as it is written into a property file."""
    return value.replace("\\", "\\\\")


def add_users(node: Node) -> None:
    """Give the users SCRAM credentials, over the listener without security."""
    with WireClient(client_settings({"bootstrap.servers": node.bootstrap})) as client:
        for user in (USER, ODD_USER):
            for mechanism in ScramMechanism:
                alter_user(
                    client, user, [NewCredential(mechanism, 4096, PASSWORD, b"salt" * 8)], []
                )
