"""TLS contexts of Python's ssl module, made from settings."""

import os
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.security.certificates import Certificate, read_certificate
from spindle.security.stores import (
    CERTIFICATE_START,
    KeyMaterial,
    own_key,
    trusted_certificates,
)
from spindle.security.tls_settings import (
    ClientAuth,
    ServerTlsSettings,
    StoreSettings,
    TlsSettings,
)

_VERSIONS: Final = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_VERIFY_MODES: Final = {
    ClientAuth.NONE: ssl.CERT_NONE,
    ClientAuth.REQUESTED: ssl.CERT_OPTIONAL,
    ClientAuth.REQUIRED: ssl.CERT_REQUIRED,
}
_FLIGHTS: Final = 3
WEAK_DIGEST: Final = (
    "a certificate is signed with SHA-1 or an older digest, which OpenSSL does not accept: sign it "
    "again with SHA-256"
)
WEAK_KEY: Final = (
    "the key of a certificate is too small for OpenSSL: make one of 2048 bits (RSA) or 256 bits "
    "(EC), or more, and a certificate for it"
)
_WEAKNESSES: Final = {
    "CA_MD_TOO_WEAK": WEAK_DIGEST,
    "EE_KEY_TOO_SMALL": WEAK_KEY,
    "CA_KEY_TOO_SMALL": WEAK_KEY,
}
_CERTIFICATE_END: Final = "-----END CERTIFICATE-----"


def client_context(settings: TlsSettings) -> ssl.SSLContext:
    """Return the context of a client. The files of the stores are read now.

    Raises:
        ConfigError: a store cannot be used, or OpenSSL has none of the cipher suites.
    """
    context = _context(ssl.PROTOCOL_TLS_CLIENT, settings)
    context.check_hostname = settings.checks_host_name
    if settings.trust is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if settings.own is not None:
        _present(context, own_key(settings.own), settings.own)
    return context


class ServerKey(NamedTuple):
    """The TLS context of a listener, from one reading of the files.

    Attributes:
        certificate: the certificate of the server.
    """

    context: ssl.SSLContext
    certificate: Certificate


def server_key(settings: ServerTlsSettings) -> ServerKey:
    """Return the context of a server, and its certificate. The files of the stores are read now.

    Raises:
        ConfigError: a store cannot be used, or OpenSSL has none of the cipher suites.
    """
    context = _context(ssl.PROTOCOL_TLS_SERVER, settings.tls)
    # With renegotiation, a client could cost this side any number of handshakes on one connection.
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.verify_mode = _VERIFY_MODES[settings.client_auth]
    if settings.client_auth is not ClientAuth.NONE:
        # A resumed session would admit a client whose certificate has expired since.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    store = settings.tls.own
    assert store is not None
    material = own_key(store)
    _present(context, material, store)
    first = material.pem[material.pem.index(CERTIFICATE_START) :].decode("ascii", "replace")
    der = ssl.PEM_cert_to_DER_cert(first[: first.index(_CERTIFICATE_END) + len(_CERTIFICATE_END)])
    try:
        return ServerKey(context, read_certificate(der))
    except ValueError as error:
        raise ConfigError(f"{_source(store)} has a malformed certificate: {error}") from None


def check_accepted(server: ServerKey, settings: TlsSettings) -> None:
    """Let a client with these settings shake hands with a server, in memory and for any host.

    Raises:
        ConfigError: one refuses the other.
    """
    client = client_context(replace(settings, checks_host_name=False))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server),
        server.context.wrap_bio(to_server, to_client, server_side=True),
    )
    for end in ends * _FLIGHTS:
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLError as error:
            text = getattr(error, "verify_message", None) or error.reason or str(error)
            raise ConfigError(
                f"brokers with these keys would refuse each other ({text}): ssl.truststore.* must "
                "have the authority of ssl.keystore.*, and the certificate must be valid"
            ) from None


def _context(protocol: int, settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    # As in Java, each certificate of the trust store is an anchor, also one that is no root.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if settings.ciphers:
        _choose_ciphers(context, settings.ciphers)
    if settings.trust is not None:
        _trust(context, settings.trust)
    return context


def _choose_ciphers(context: ssl.SSLContext, ciphers: tuple[str, ...]) -> None:
    try:
        context.set_ciphers(":".join(ciphers))
    except ssl.SSLError:
        raise ConfigError(
            f"ssl.cipher.suites: {ssl.OPENSSL_VERSION} has none of {', '.join(ciphers)}"
        ) from None


def _trust(context: ssl.SSLContext, store: StoreSettings) -> None:
    certificates = trusted_certificates(store)
    try:
        context.load_verify_locations(cadata=certificates)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{_source(store)} has a malformed certificate: {error.reason or error}"
        ) from None


def _present(context: ssl.SSLContext, material: KeyMaterial, store: StoreSettings) -> None:
    """Load the own key and certificates into a context."""

    def password() -> str:
        # Without this function OpenSSL asks on the terminal.
        if material.password is None:
            raise ConfigError(
                f"ssl.key.password is missing: the key in {_source(store)} is encrypted"
            )
        return material.password.text

    try:
        with _file_of(material) as path:
            context.load_cert_chain(path, password=password)
    except ssl.SSLError as error:
        raise ConfigError(f"{_source(store)}: {_key_trouble(error, material)}") from None


def _key_trouble(error: ssl.SSLError, material: KeyMaterial) -> str:
    if error.reason == "KEY_VALUES_MISMATCH":
        return "the private key does not belong to the first certificate"
    if error.reason in _WEAKNESSES:
        return f"{_WEAKNESSES[error.reason]} ({error.reason})"
    if error.reason:
        return f"key or certificate cannot be used ({error.reason})"
    if b"ENCRYPTED" in material.pem:
        return "the private key cannot be decrypted: ssl.key.password is wrong"
    return "the private key or the certificate is malformed"


def _source(store: StoreSettings) -> str:
    return f"{store.prefix}.location {store.location}" if store.location else f"{store.prefix}.*"


@contextmanager
def _file_of(material: KeyMaterial) -> Iterator[str]:
    """Yield the path of a file with the key, which the ssl module takes in no other form.

    The file is in memory where the system has such files. Elsewhere only this user can read it, and
    it is removed at once.
    """
    path = ""
    try:
        descriptor = os.memfd_create("key")
    except (AttributeError, OSError):
        descriptor, path = tempfile.mkstemp()
    try:
        _write(descriptor, material.pem)
        yield path or f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
        if path:
            os.unlink(path)


def _write(descriptor: int, data: bytes) -> None:
    with open(descriptor, "wb", closefd=False) as file:
        file.write(data)
