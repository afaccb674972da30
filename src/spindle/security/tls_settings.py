"""The `ssl.*` properties of Kafka as plain values; no file is read here."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, Literal, NamedTuple

from spindle.common.errors import ConfigError
from spindle.security.principal_rules import PrincipalRules
from spindle.security.secret import Secret

PEM: Final = "PEM"
PKCS12: Final = "PKCS12"
JKS: Final = "JKS"
_STORE_TYPES: Final = (PEM, PKCS12, JKS)
_VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_REFUSED: Final = ("ssl.engine.factory.class", "ssl.provider", "security.providers")
_SUITES_OF_TLS_1_3: Final = (
    "TLS_AES_256_GCM_SHA384",
    "TLS_CHACHA20_POLY1305_SHA256",
    "TLS_AES_128_GCM_SHA256",
)
_SUITE: Final = re.compile(
    r"TLS_(ECDHE_ECDSA|ECDHE_RSA|DHE_RSA|RSA)_WITH_"
    r"(?:AES_(128|256)_(GCM|CBC)_(SHA|SHA256|SHA384)|(CHACHA20_POLY1305)_SHA256)"
)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """A trust store or a key store, as the properties name it.

    Attributes:
        prefix: `ssl.truststore` or `ssl.keystore`, for errors.
        location: The file; None for a store that is written out in the properties.
        certificates: PEM blocks; None for a store in a file.
        key: The private key in PEM; only with the certificates of a key store.
        key_password: The password of the key inside the store.
    """

    prefix: Literal["ssl.truststore", "ssl.keystore"]
    kind: str
    location: str | None = None
    password: Secret | None = None
    certificates: str | None = None
    key: Secret | None = None
    key_password: Secret | None = None


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """How to make TLS connections.

    Attributes:
        trust: The certificates to trust; None for those of the operating system.
        own: The own key and certificates; None for none.
        versions: TLSv1.2, TLSv1.3 or both.
        ciphers: Names of OpenSSL for TLS 1.2; empty for OpenSSL's choice.
        checks_host_name: The certificate of a server must be for the host that is connected to.
    """

    trust: StoreSettings | None = None
    own: StoreSettings | None = None
    versions: tuple[str, ...] = _VERSIONS
    ciphers: tuple[str, ...] = ()
    checks_host_name: bool = True


class ClientAuth(Enum):
    """Whether a server asks its clients for certificates: `ssl.client.auth`."""

    NONE = "none"
    REQUESTED = "requested"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True)
class ServerTlsSettings:
    """How a listener makes TLS connections.

    Attributes:
        tls: `own` is not None; `trust` is not None if certificates of clients are checked.
        principal_rules: from the distinguished name of a client's certificate to its user name.
        allows_dn_changes: A renewed certificate may have another distinguished name.
        allows_san_changes: A renewed certificate may lack alternative names of the one before.
    """

    tls: TlsSettings
    client_auth: ClientAuth
    principal_rules: PrincipalRules
    allows_dn_changes: bool = False
    allows_san_changes: bool = False


def server_tls_settings(properties: Mapping[str, str]) -> ServerTlsSettings:
    """Return the settings of a listener from properties with Kafka's names.

    Raises:
        ConfigError: a property is missing, has no usable value, or contradicts another one.
    """
    settings = tls_settings(properties)
    if settings.own is None:
        raise ConfigError(
            "there is no key: set ssl.keystore.location, or ssl.keystore.key and "
            "ssl.keystore.certificate.chain"
        )
    text = (properties.get("ssl.client.auth") or ClientAuth.NONE.value).strip()
    try:
        client_auth = ClientAuth(text)
    except ValueError:
        known = ", ".join(choice.value for choice in ClientAuth)
        raise ConfigError(f"ssl.client.auth is {text!r}, want one of {known}") from None
    if client_auth is not ClientAuth.NONE and settings.trust is None:
        raise ConfigError(
            f"ssl.client.auth is {text}, but there is no trust store: set ssl.truststore.location "
            "or ssl.truststore.certificates to the authorities of the clients"
        )
    return ServerTlsSettings(
        settings,
        client_auth,
        PrincipalRules(properties.get("ssl.principal.mapping.rules", "DEFAULT")),
        _flag(properties, "ssl.allow.dn.changes"),
        _flag(properties, "ssl.allow.san.changes"),
    )


def _flag(properties: Mapping[str, str], key: str) -> bool:
    text = properties.get(key, "false").strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{key} is {text!r}, want true or false")
    return text == "true"


def tls_settings(properties: Mapping[str, str]) -> TlsSettings:
    """Return the settings of properties with Kafka's names.

    Raises:
        ConfigError: a property has no usable value, or contradicts another one.
    """
    for key in _REFUSED:
        if properties.get(key):
            raise ConfigError(f"{key} is not supported: it names Java code, which cannot run here")
    versions, ciphers = _suites(properties, _versions(properties))
    return TlsSettings(
        trust=_store(properties, _TRUST),
        own=_key_store(properties),
        versions=versions,
        ciphers=ciphers,
        checks_host_name=_checks_host_name(properties),
    )


class _StoreKeys(NamedTuple):
    """The names of the properties of a store."""

    prefix: Literal["ssl.truststore", "ssl.keystore"]
    kind: str
    location: str
    password: str
    certificates: str


_TRUST: Final = _StoreKeys(
    "ssl.truststore",
    "ssl.truststore.type",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.certificates",
)
_OWN: Final = _StoreKeys(
    "ssl.keystore",
    "ssl.keystore.type",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.certificate.chain",
)


def _key_store(properties: Mapping[str, str]) -> StoreSettings | None:
    key = _secret(properties, "ssl.keystore.key")
    chain = properties.get("ssl.keystore.certificate.chain") or None
    if (key is None) != (chain is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise ConfigError(f"{missing} is missing: key and certificate chain belong together")
    store = _store(properties, _OWN)
    if store is None:
        return None
    if store.kind != PEM and store.password is None:
        raise ConfigError(
            f"{store.prefix}.password is missing: the store is of type {store.kind}; "
            f"for a PEM file, set {store.prefix}.type=PEM"
        )
    return StoreSettings(
        store.prefix,
        store.kind,
        store.location,
        store.password,
        store.certificates,
        key,
        _secret(properties, "ssl.key.password"),
    )


def _store(properties: Mapping[str, str], keys: _StoreKeys) -> StoreSettings | None:
    kind = properties.get(keys.kind, JKS).strip().upper()
    if kind not in _STORE_TYPES:
        raise ConfigError(f"{keys.kind} is {kind!r}, want {' or '.join(_STORE_TYPES[:2])}")
    location = properties.get(keys.location) or None
    password = _secret(properties, keys.password)
    certificates = properties.get(keys.certificates) or None
    if certificates is not None and kind != PEM:
        raise ConfigError(f"{keys.certificates} needs {keys.kind}=PEM, it is {kind}")
    if certificates is not None and location is not None:
        raise ConfigError(f"{keys.certificates} and {keys.location} are both set, want one")
    if password is not None and kind == PEM:
        advice = ", use ssl.key.password for an encrypted key" if keys is _OWN else ""
        raise ConfigError(f"{keys.password} is set, but a store of type PEM has none{advice}")
    if certificates is None and location is None:
        if password is not None:
            raise ConfigError(f"{keys.password} is set, but {keys.location} is not")
        return None
    return StoreSettings(keys.prefix, kind, location, password, certificates)


def _versions(properties: Mapping[str, str]) -> tuple[str, ...]:
    """Return the enabled versions in order. `ssl.protocol` is the newest that may be offered."""
    key = "ssl.enabled.protocols"
    enabled = _names(properties.get(key) or ",".join(_VERSIONS))
    newest = properties.get("ssl.protocol") or _VERSIONS[-1]
    for name, source in (*((name, key) for name in enabled), (newest, "ssl.protocol")):
        if name not in _VERSIONS and name != "TLS":
            raise ConfigError(f"{source} has {name!r}, want {' or '.join(_VERSIONS)}")
    usable = _VERSIONS[:1] if newest == _VERSIONS[0] else _VERSIONS
    versions = tuple(version for version in usable if version in enabled)
    if not versions:
        raise ConfigError(f"{key} is {','.join(enabled)}, but ssl.protocol is {newest}")
    return versions


def _suites(
    properties: Mapping[str, str], versions: tuple[str, ...]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the versions with a cipher suite, and OpenSSL's names of the suites of TLS 1.2."""
    key = "ssl.cipher.suites"
    named = _names(properties.get(key) or "")
    if not named:
        return versions, ()
    newer = [name for name in named if name in _SUITES_OF_TLS_1_3]
    if newer and len(newer) < len(_SUITES_OF_TLS_1_3) and _VERSIONS[1] in versions:
        raise ConfigError(
            f"{key} has {', '.join(newer)}: single suites of TLS 1.3 cannot be chosen here. Name "
            f"all of {', '.join(_SUITES_OF_TLS_1_3)}, or none of them for TLS 1.2 alone"
        )
    older = tuple(_openssl_name(name) for name in named if name not in _SUITES_OF_TLS_1_3)
    kept = tuple(version for version in versions if (newer if version == _VERSIONS[1] else older))
    if not kept:
        raise ConfigError(f"{key} has no suite of {' or '.join(versions)}")
    return kept, older


def _openssl_name(name: str) -> str:
    match = _SUITE.fullmatch(name)
    if match is None:
        raise ConfigError(
            f"ssl.cipher.suites has {name!r}, which is not known here. Suites with AES in GCM or "
            "CBC mode and CHACHA20 are, by their names in Java"
        )
    exchange, bits, mode, digest, chacha = match.groups()
    start = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    if chacha:
        return f"{start}CHACHA20-POLY1305"
    return f"{start}AES{bits}-{'GCM-' if mode == 'GCM' else ''}{digest}"


def _checks_host_name(properties: Mapping[str, str]) -> bool:
    key = "ssl.endpoint.identification.algorithm"
    text = properties.get(key, "https").strip()
    if text.lower() not in ("https", ""):
        raise ConfigError(f"{key} is {text!r}, want https, or nothing to switch the check off")
    return bool(text)


def _secret(properties: Mapping[str, str], key: str) -> Secret | None:
    text = properties.get(key)
    return Secret(text) if text else None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]
