"""A node with TLS, all SASL mechanisms and an authorizer, in its own process."""

import secrets
import ssl
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives import serialization

from spindle.config.authorizer import STANDARD_AUTHORIZER
from spindle.local.security import new_certificates
from spindle.security.mechanism_names import LOGIN_MODULES, MECHANISMS, OAUTHBEARER, PLAIN
from spindle.security.scram import SCRAM_MECHANISMS
from verification.fuzz.secured.login_messages import WRONG_PASSWORD
from verification.fuzz.secured.secret_texts import SecretTexts
from verification.fuzz.secured.users import ADMIN, FuzzUsers
from verification.fuzz.target import TargetNode

_LISTENER: Final = "SECURED"
_PREFIX: Final = f"listener.name.{_LISTENER.lower()}."
_BETWEEN_BROKERS: Final = "SCRAM-SHA-512"
_TOKEN_HANDLER: Final = (
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
)
_SESSION_MS: Final = 3_000
"""Sessions of PLAIN end, those of SCRAM do not, and those of OAUTHBEARER end with the token."""


class SecuredNode(TargetNode):
    """A combined node whose one listener for clients has SASL_SSL.

    Args:
        folder: an empty folder for its directories, its log, and its stores.
        overrides: further keys of the property file.
    """

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None) -> None:
        self.users = FuzzUsers()
        self.token_secret = secrets.token_urlsafe(24)
        key_password = secrets.token_urlsafe(18)
        self.secret_texts = SecretTexts()
        for user, password in self.users.passwords.items():
            self.secret_texts.add(f"the password of {user}", password.text)
            signature = self.users.issuer.token(user).rpartition(".")[2]
            self.secret_texts.add(f"the signature of a bearer token of {user}", signature)
        self.secret_texts.add("delegation.token.secret.key", self.token_secret)
        self.secret_texts.add("ssl.key.password", key_password)
        self.secret_texts.add("a password that an attacker has tried", WRONG_PASSWORD)
        self._folder = folder
        _write_stores(folder, key_password)
        (folder / "jwks.json").write_text(self.users.issuer.key_set())
        super().__init__(
            folder,
            {**self._keys(key_password), **(overrides or {})},
            client_listener=_LISTENER,
            format_options=_scram_options(self.users),
        )
        self._scanned_to = 0

    def client_context(self) -> ssl.SSLContext:
        """Return the TLS context of a client that trusts the node's certificate."""
        return ssl.create_default_context(cafile=str(self._folder / "ca.pem"))

    def check(self) -> None:
        """Check process and log as for any node, and that the log has no secret."""
        super().check()
        self.secret_texts.check_text(f"the log {self.output}", self._unscanned())

    def check_whole_log(self) -> None:
        """Check the log from its beginning: secrets may have become known after their lines.

        Raises:
            Finding: it has a secret.
        """
        self._scanned_to = 0
        self.check()

    def hidden_texts(self) -> tuple[bytes, ...]:
        """Return texts that no request of an attacker contains, and no answer may contain."""
        return (str(self._folder).encode(),)

    def _unscanned(self) -> bytes:
        """Return the log from the last line of the previous call on, because it may have grown."""
        with self.output.open("rb") as log:
            log.seek(self._scanned_to)
            news = log.read()
        self._scanned_to += news.rfind(b"\n") + 1
        return news

    def _keys(self, key_password: str) -> dict[str, str]:
        plain_users = " ".join(
            f'user_{user}="{password.text}"' for user, password in self.users.passwords.items()
        )
        admin = f'username="{ADMIN}" password="{self.users.passwords[ADMIN].text}"'
        return {
            "listener.security.protocol.map": f"{_LISTENER}:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": _LISTENER,
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "sasl.mechanism.inter.broker.protocol": _BETWEEN_BROKERS,
            f"{_PREFIX}{_BETWEEN_BROKERS.lower()}.sasl.jaas.config": (
                f"{LOGIN_MODULES[_BETWEEN_BROKERS]} required {admin};"
            ),
            f"{_PREFIX}plain.sasl.jaas.config": f"{LOGIN_MODULES[PLAIN]} required {plain_users};",
            f"{_PREFIX}plain.connections.max.reauth.ms": str(_SESSION_MS),
            f"{_PREFIX}oauthbearer.sasl.jaas.config": f"{LOGIN_MODULES[OAUTHBEARER]} required;",
            f"{_PREFIX}oauthbearer.sasl.server.callback.handler.class": _TOKEN_HANDLER,
            f"{_PREFIX}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": (
                (self._folder / "jwks.json").as_uri()
            ),
            f"{_PREFIX}oauthbearer.sasl.oauthbearer.allow.unverified.audience": "true",
            f"{_PREFIX}oauthbearer.sasl.oauthbearer.allow.unverified.issuer": "true",
            "connection.failed.authentication.delay.ms": "20",
            "delegation.token.secret.key": self.token_secret,
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._folder / "node.pem"),
            "ssl.key.password": key_password,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._folder / "ca.pem"),
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{ADMIN};User:CN=spindle-node",
        }


def _scram_options(users: FuzzUsers) -> list[str]:
    """Return all users as `storage format` takes them."""
    return [
        option
        for mechanism in SCRAM_MECHANISMS
        for user, password in users.passwords.items()
        for option in ("--add-scram", f"{mechanism}=[name={user},password={password.text}]")
    ]


def _write_stores(folder: Path, key_password: str) -> None:
    """Write the authority's certificate, and the node's certificate with its encrypted key."""
    texts = new_certificates()
    key = serialization.load_pem_private_key(texts["node.pem"].encode(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(key_password.encode()),
    )
    certificate = texts["node.pem"][texts["node.pem"].index("-----BEGIN CERTIFICATE") :]
    (folder / "ca.pem").write_text(texts["ca.pem"])
    (folder / "node.pem").write_text(encrypted.decode() + certificate)
