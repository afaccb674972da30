"""Certificates for tests: an authority, and certificates of servers and clients that it signs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

PASSWORD = "store secret"
SIGNED_WITH_SHA1 = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgC3J4Vz5NpFF5NkZr
wWn0n1lRSZkIRARiKDv0i31nOCyhRANCAAQzxBXzkNuHzDZOEisyZEqoq21fVOlo
2tGHyHzNneKF2bspA/YniHOZn3drzAVzC4opjMFvKAVGZqstu8PXCyrr
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBFTCBvgIUJBEJNpL2tQckqOv/8U+JxBTzhq8wCQYHKoZIzj0EATANMQswCQYD
VQQDDAJjYTAgFw0yNjExMjcwOTA1NDVaGA8yMTI2MTEwMzA5MDU0NVowDzENMAsG
A1UEAwwEd2VhazBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABDPEFfOQ24fMNk4S
KzJkSqirbV9U6Wja0YfIfM2d4oXZuykD9ieIc5mfd2vMBXMLiimMwW8oBUZmqy27
w9cLKuswCQYHKoZIzj0EAQNHADBEAiAz5vMZMoEaOgexZTFLRtnqhhsCwctbcD/X
FNZBS2LYmQIgWHRBncS6U6T6fjxN0g0+cCQFw3hT+J5ctce8f7xuajk=
-----END CERTIFICATE-----
"""
"""A key of these tests and a certificate; the library does not sign with this digest."""

PrivateKey: TypeAlias = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey


@dataclass(frozen=True)
class Certified:
    """A private key and its certificate, with the certificate of the authority."""

    key: PrivateKey
    certificate: x509.Certificate
    authority: x509.Certificate

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def authority_pem(self) -> str:
        return self.authority.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str = "") -> str:
        encryption: KeySerializationEncryption = NoEncryption()
        if password:
            encryption = BestAvailableEncryption(password.encode())
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def key_store_pem(self, password: str = "") -> str:
        return self.key_pem(password) + self.certificate_pem

    def key_store_pkcs12(self) -> bytes:
        return pkcs12.serialize_key_and_certificates(
            b"own",
            self.key,
            self.certificate,
            [self.authority],
            BestAvailableEncryption(PASSWORD.encode()),
        )

    def trust_store_pkcs12(self) -> bytes:
        return pkcs12.serialize_java_truststore(
            [pkcs12.PKCS12Certificate(self.authority, b"ca")],
            BestAvailableEncryption(PASSWORD.encode()),
        )

    def write(self, folder: Path, name: str) -> Path:
        """Write key and certificate into one file and return its path."""
        path = folder / f"{name}.pem"
        path.write_text(self.key_store_pem())
        return path


@cache
def _authority(name: str) -> Certified:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(name, days=365)
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    return Certified(key, certificate, certificate)


def certified(
    name: str,
    *,
    hosts: tuple[str, ...] = (),
    days: int = 365,
    authority: str = "test authority",
) -> Certified:
    """Return a key with a certificate for these host names and addresses.

    Args:
        days: How long it is valid from now; negative if it has expired.
        authority: The name of its authority, which is made when it is used first.
    """
    signer = _authority(authority)
    key = ec.generate_private_key(ec.SECP256R1())
    builder = (
        _builder(name, days=days)
        .issuer_name(signer.certificate.subject)
        .public_key(key.public_key())
    )
    if hosts:
        alternatives = x509.SubjectAlternativeName([_general_name(host) for host in hosts])
        builder = builder.add_extension(alternatives, critical=False)
    return Certified(key, builder.sign(signer.key, hashes.SHA256()), signer.certificate)


def self_signed(name: str, *, hosts: tuple[str, ...], key: PrivateKey | None = None) -> Certified:
    """Return a key with a certificate that it signed itself."""
    key = key or ec.generate_private_key(ec.SECP256R1())
    certificate = (
        _builder(name, days=365)
        .issuer_name(_name(name))
        .public_key(key.public_key())
        .add_extension(
            x509.SubjectAlternativeName([_general_name(host) for host in hosts]), critical=False
        )
        .sign(key, hashes.SHA256())
    )
    return Certified(key, certificate, certificate)


def _of(*attributes: x509.NameAttribute[str]) -> x509.Name:
    return x509.Name(list(attributes))


def _attribute(oid: x509.ObjectIdentifier, text: str, kind: _ASN1Type | None = None) -> Any:
    return x509.NameAttribute(oid, text, kind) if kind else x509.NameAttribute(oid, text)


CERTIFICATE_NAMES = {
    "CN=alice": _of(_attribute(NameOID.COMMON_NAME, "alice")),
    'CN=broker\\, 1\\+2,OU=a\\=b,O=\\#x \\<y\\>\\;\\"z\\\\,L=here,ST=there,C=DE': _of(
        _attribute(NameOID.COUNTRY_NAME, "DE"),
        _attribute(NameOID.STATE_OR_PROVINCE_NAME, "there"),
        _attribute(NameOID.LOCALITY_NAME, "here"),
        _attribute(NameOID.ORGANIZATION_NAME, '#x <y>;"z\\'),
        _attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "a=b"),
        _attribute(NameOID.COMMON_NAME, "broker, 1+2"),
    ),
    "CN=\\ \\ two\\ \\ \\ ,DC=example,DC=org": _of(
        _attribute(NameOID.DOMAIN_COMPONENT, "org"),
        _attribute(NameOID.DOMAIN_COMPONENT, "example"),
        _attribute(NameOID.COMMON_NAME, "  two   "),
    ),
    "1.2.840.113549.1.9.1=#1603614062,UID=u1,STREET=Weg 1,CN=Jürgen": _of(
        _attribute(NameOID.COMMON_NAME, "Jürgen"),
        _attribute(NameOID.STREET_ADDRESS, "Weg 1"),
        _attribute(NameOID.USER_ID, "u1"),
        _attribute(NameOID.EMAIL_ADDRESS, "a@b", _ASN1Type.IA5String),
    ),
    "CN=N-,2.5.4.5=#130431323334": _of(
        _attribute(NameOID.SERIAL_NUMBER, "1234", _ASN1Type.PrintableString),
        _attribute(NameOID.COMMON_NAME, "\u4e2d", _ASN1Type.BMPString),
    ),
    "CN=a+OU=b,O=c": x509.Name(
        [
            x509.RelativeDistinguishedName([_attribute(NameOID.ORGANIZATION_NAME, "c")]),
            x509.RelativeDistinguishedName(
                [
                    _attribute(NameOID.COMMON_NAME, "a"),
                    _attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "b"),
                ]
            ),
        ]
    ),
}
"""Subjects of certificates by their distinguished names as Java writes them."""


def named(subject: x509.Name, authority: str = "test authority") -> x509.Certificate:
    """Return a certificate for any subject; nobody has kept its key."""
    signer = _authority(authority)
    return (
        _dated(days=365)
        .subject_name(subject)
        .issuer_name(signer.certificate.subject)
        .public_key(signer.key.public_key())
        .sign(signer.key, hashes.SHA256())
    )


def _builder(name: str, *, days: int) -> x509.CertificateBuilder:
    return _dated(days=days).subject_name(_name(name))


def _dated(*, days: int) -> x509.CertificateBuilder:
    end = datetime.now(UTC) + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(end, datetime.now(UTC)) - timedelta(days=1))
        .not_valid_after(end)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
