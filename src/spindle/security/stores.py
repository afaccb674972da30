"""Read trust stores and key stores: PEM and PKCS12, from files or properties.

A Java key store (JKS) is not read; the error has the `keytool` line that converts it. Kafka's
default type is JKS, and Java reads PKCS12 files under this name as well, so this module does.
"""

import os
import re
import shlex
import socket
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.security.bounded_read import read_small_file
from spindle.security.secret import Secret
from spindle.security.tls_settings import PEM, StoreSettings

_JKS_MAGIC: Final = b"\xfe\xed\xfe\xed"
_PKCS12_START: Final = b"\x30"
"""The tag of an ASN.1 sequence."""
CERTIFICATE_START: Final = b"-----BEGIN CERTIFICATE-----"
_KEY_END: Final = b"PRIVATE KEY-----"
_BLOCK: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)
_LINE_CHARACTERS: Final = 64


class KeyMaterial(NamedTuple):
    """A private key with its certificates, in PEM. Do not log or raise it."""

    pem: bytes
    password: Secret | None

    def __repr__(self) -> str:
        return "KeyMaterial([hidden])"


class StoreStamp(NamedTuple):
    """The state of a store's file, which differs after a change; all 0 if it cannot be found.

    Attributes:
        changed_ns: the time of the last change of content, owner or mode.
    """

    inode: int
    size_bytes: int
    modified_ns: int
    changed_ns: int


def store_stamp(path: str | None) -> StoreStamp:
    """Return the state of a store's file, which is not read; `None` is a store without a file."""
    try:
        stat = os.stat(path or "")
    except OSError:
        return StoreStamp(0, 0, 0, 0)
    return StoreStamp(stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def trusted_certificates(store: StoreSettings) -> str:
    """Return the certificates of a trust store, in PEM.

    Raises:
        ConfigError: the store cannot be read, or has no certificate.
    """
    if store.certificates is not None:
        pem = _in_lines(store.certificates.encode())
    elif store.kind == PEM:
        pem = _in_lines(_contents(store))
    else:
        pem = _from_pkcs12(store, _contents(store))[1]
    if CERTIFICATE_START not in pem:
        raise ConfigError(f"{_name(store)} has no certificate")
    return pem.decode("ascii", "replace")


def own_key(store: StoreSettings) -> KeyMaterial:
    """Return the private key of a key store and its certificates.

    Raises:
        ConfigError: the store cannot be read, or has no key or no certificate.
    """
    password = store.key_password
    if store.certificates is not None and store.key is not None:
        pem = _in_lines(f"{store.key.text}\n{store.certificates}".encode())
    elif store.kind == PEM:
        pem = _in_lines(_contents(store))
    else:
        key, certificates = _from_pkcs12(store, _contents(store))
        pem, password = key + certificates, None
    if _KEY_END not in pem:
        raise ConfigError(f"{_name(store)} has no private key")
    if CERTIFICATE_START not in pem:
        raise ConfigError(f"{_name(store)} has no certificate")
    return KeyMaterial(pem, password)


def _name(store: StoreSettings) -> str:
    if store.location is None:
        return f"the store in the properties {store.prefix}.*"
    return f"{store.prefix}.location {store.location}"


def _contents(store: StoreSettings) -> bytes:
    """Read a store and check its declared type."""
    assert store.location is not None
    try:
        data = read_small_file(store.location)
    except OSError as error:
        raise ConfigError(
            f"{_name(store)} cannot be read on {socket.gethostname()}: {error.strerror}. The file "
            "has to be on every machine that uses it"
        ) from None
    if data.startswith(_JKS_MAGIC):
        raise ConfigError(_conversion(store))
    if store.kind == PEM and CERTIFICATE_START not in data and _KEY_END not in data:
        raise ConfigError(f"{_name(store)} is not PEM: check {store.prefix}.type")
    if store.kind != PEM and not data.startswith(_PKCS12_START):
        advice = f"; set {store.prefix}.type=PEM" if CERTIFICATE_START in data else ""
        raise ConfigError(f"{_name(store)} is not a PKCS12 store{advice}")
    return data


def _in_lines(pem: bytes) -> bytes:
    """Return the blocks of a PEM text, each cut into lines.

    In a property file a block may be one long line with blanks in it, which Kafka reads and OpenSSL
    does not.
    """
    return b"".join(map(_block_in_lines, _BLOCK.finditer(pem)))


def _block_in_lines(match: re.Match[bytes]) -> bytes:
    label, body = match[1], match[2]
    if b":" in body:  # headers of an encrypted key in the old form, which need their lines
        return match[0] + b"\n"
    body = b"".join(body.split())
    starts = range(0, len(body), _LINE_CHARACTERS)
    lines = b"".join(body[start : start + _LINE_CHARACTERS] + b"\n" for start in starts)
    return b"-----BEGIN %b-----\n%b-----END %b-----\n" % (label, lines, label)


def _conversion(store: StoreSettings) -> str:
    source = str(store.location)
    target = source.removesuffix(".jks") + ".p12"
    return (
        f"{_name(store)} is a Java key store (JKS), which only Java reads. Convert it with "
        f"`keytool -importkeystore -srckeystore {shlex.quote(source)} -srcstoretype JKS "
        f"-destkeystore {shlex.quote(target)} -deststoretype PKCS12`, then set "
        f"{store.prefix}.type=PKCS12 and {store.prefix}.location={target}"
    )


def _from_pkcs12(store: StoreSettings, data: bytes) -> tuple[bytes, bytes]:
    """Return the key and the certificates, both in PEM; the key is empty if there is none."""
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise ConfigError(
            f"{_name(store)} is of type PKCS12, which needs a package that is not installed: pip "
            "install cryptography, or use a store of type PEM"
        ) from None
    if store.password is None:
        raise ConfigError(f"{store.prefix}.password is missing: the store is of type PKCS12")
    try:
        read = pkcs12.load_pkcs12(data, store.password.text.encode())
    except ValueError:
        raise ConfigError(
            f"{_name(store)} cannot be opened: {store.prefix}.password is wrong, or the file is "
            "damaged"
        ) from None
    key = b""
    if read.key is not None:
        key = read.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    own = [read.cert] if read.cert is not None else []
    certificates = [certificate.certificate for certificate in (*own, *read.additional_certs)]
    return key, b"".join(certificate.public_bytes(Encoding.PEM) for certificate in certificates)
