"""Certificates and users of `spindle up --secure`, made for one cluster."""

import ipaddress
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from spindle.common.filesystem import OsFileSystem
from spindle.config.authorizer import STANDARD_AUTHORIZER
from spindle.config.properties import format_properties
from spindle.local.errors import ClusterError
from spindle.local.tcp_ports import HOST
from spindle.security.mechanism_names import LOGIN_MODULES

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CLIENT_LISTENER: Final = "SASL_SSL"
USERS: Final = ("admin", "app")
"""The first may do everything, the second what ACLs allow."""
_FOLDER: Final = "security"
_MECHANISM: Final = "SCRAM-SHA-512"
_NODE_NAME: Final = "spindle-node"
_AUTHORITY_NAME: Final = "spindle up"
_VALIDITY: Final = timedelta(days=3650)


def client_properties_file(folder: Path, user: str) -> Path:
    """Return the path of the property file for a user's clients."""
    return folder / f"{user}.properties"


def python_settings_file(folder: Path, user: str) -> Path:
    """Return the path of the JSON file with the settings of a user for Python clients."""
    return folder / f"{user}.json"


def authority_file(folder: Path) -> Path:
    """Return the path of the CA certificate, with which clients verify the nodes."""
    return folder / _FOLDER / "ca.pem"


@dataclass(frozen=True, slots=True)
class Security:
    """The secrets of one cluster.

    Attributes:
        folder: that of the cluster.
        passwords: by user.
    """

    folder: Path
    passwords: Mapping[str, str]

    @property
    def scram(self) -> tuple[str, ...]:
        """Return the users as `storage format --add-scram` takes them."""
        return tuple(
            f"{_MECHANISM}=[name={user},password={password}]"
            for user, password in self.passwords.items()
        )

    @property
    def node_properties(self) -> dict[str, str]:
        """Return the keys of every node: clients log in, nodes know each other by certificate."""
        admin = USERS[0]
        return {
            "listener.security.protocol.map": f"{CLIENT_LISTENER}:SASL_SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": CLIENT_LISTENER,
            "sasl.enabled.mechanisms": _MECHANISM,
            "sasl.mechanism.inter.broker.protocol": _MECHANISM,
            f"listener.name.{CLIENT_LISTENER.lower()}.{_MECHANISM.lower()}.sasl.jaas.config": (
                self._jaas(admin)
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self._path("node.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self._path("ca.pem")),
            "listener.name.controller.ssl.client.auth": "required",
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": f"User:{admin};User:CN={_NODE_NAME}",
        }

    def write_certificates(self) -> None:
        """Write the certificate of the authority, and key and certificate of the nodes.

        Raises:
            ClusterError: the package for it is not installed, or the files cannot be written.
        """
        for name, text in new_certificates().items():
            self._write(self._path(name), text)

    def write_clients(self, bootstrap_servers: str) -> None:
        """Write the client properties of every user, and the settings for Python clients."""
        for user in self.passwords:
            properties = {
                "bootstrap.servers": bootstrap_servers,
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": _MECHANISM,
                "sasl.jaas.config": self._jaas(user),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self._path("ca.pem")),
            }
            self._write(client_properties_file(self.folder, user), format_properties(properties))
            settings = json.dumps(self._python_settings(bootstrap_servers, user), indent=1)
            self._write(python_settings_file(self.folder, user), f"{settings}\n")

    def _write(self, path: Path, text: str) -> None:
        try:
            path.parent.mkdir(exist_ok=True)
            OsFileSystem().write_atomically(str(path), text.encode())
        except OSError as error:
            raise ClusterError(f"cannot write {path}: {error.strerror}") from None

    def _python_settings(self, bootstrap_servers: str, user: str) -> dict[str, dict[str, str]]:
        """Return the settings of a user, by the name of the client package."""
        authority = str(authority_file(self.folder))
        aiokafka = {
            "bootstrap_servers": bootstrap_servers,
            "security_protocol": CLIENT_LISTENER,
            "sasl_mechanism": _MECHANISM,
            "sasl_plain_username": user,
            "sasl_plain_password": self.passwords[user],
        }
        return {
            "confluent-kafka": {
                "bootstrap.servers": bootstrap_servers,
                "security.protocol": CLIENT_LISTENER,
                "sasl.mechanism": _MECHANISM,
                "sasl.username": user,
                "sasl.password": self.passwords[user],
                "ssl.ca.location": authority,
            },
            "kafka-python": {**aiokafka, "ssl_cafile": authority},
            # It takes the CA certificate as an SSLContext, which JSON cannot hold.
            "aiokafka": aiokafka,
        }

    def _jaas(self, user: str) -> str:
        password = self.passwords[user]
        return f'{LOGIN_MODULES[_MECHANISM]} required username="{user}" password="{password}";'

    def _path(self, name: str) -> Path:
        return self.folder / _FOLDER / name


def new_security(folder: Path) -> Security:
    """Return users with random passwords."""
    return Security(folder, {user: secrets.token_urlsafe(18) for user in USERS})


def new_certificates() -> dict[str, str]:
    """Return PEM texts: `ca.pem`, an authority's certificate, and `node.pem`, key and certificate
    of nodes on this machine.

    Raises:
        ClusterError: the package for it is not installed.
    """
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ClusterError(
            "--secure needs the package cryptography to make certificates: pip install cryptography"
        ) from None
    pem = serialization.Encoding.PEM
    authority_key = ec.generate_private_key(ec.SECP256R1())
    node_key = ec.generate_private_key(ec.SECP256R1())
    authority = _signed(_AUTHORITY_NAME, authority_key, authority_key)
    node = _signed(_NODE_NAME, node_key, authority_key)
    key_text = node_key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    # The authority's key is kept nowhere: nobody can make another node.
    return {
        "ca.pem": authority.public_bytes(pem).decode(),
        "node.pem": (key_text + node.public_bytes(pem)).decode(),
    }


def _signed(
    name: str,
    key: "ec.EllipticCurvePrivateKey",
    authority_key: "ec.EllipticCurvePrivateKey",
) -> "x509.Certificate":
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes

    now, is_authority = datetime.now(UTC), name == _AUTHORITY_NAME
    hosts = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
    builder = (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(_named(_AUTHORITY_NAME))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _VALIDITY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if not is_authority:
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    return builder.sign(authority_key, hashes.SHA256())


def _named(name: str) -> "x509.Name":
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
