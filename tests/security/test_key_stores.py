"""Trust stores and key stores: every form that is read, and errors that say what to do."""

import os
import ssl
import sys
from pathlib import Path

import pytest
from certificates import PASSWORD, SIGNED_WITH_SHA1, certified, self_signed
from cryptography.hazmat.primitives.asymmetric import rsa

from spindle.common.errors import ConfigError
from spindle.security.tls_context import client_context
from spindle.security.tls_settings import tls_settings

OWN = certified("own")


def context(**properties: str) -> ssl.SSLContext:
    """Return a context; in names of properties, `_` stands for a dot."""
    return client_context(
        tls_settings({name.replace("_", "."): value for name, value in properties.items()})
    )


def trouble(**properties: str) -> str:
    with pytest.raises(ConfigError) as raised:
        context(**properties)
    assert PASSWORD not in str(raised.value)
    assert "PRIVATE KEY" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_pkcs12_trust_store_is_read_also_under_the_name_of_the_default(
    tmp_path: Path, kind: str
) -> None:
    (tmp_path / "ca").write_bytes(OWN.trust_store_pkcs12())
    made = context(
        ssl_truststore_type=kind,
        ssl_truststore_location=str(tmp_path / "ca"),
        ssl_truststore_password=PASSWORD,
    )
    assert [certificate["subject"] for certificate in made.get_ca_certs()] == [
        ((("commonName", "test authority"),),)
    ]


def test_a_java_key_store_is_answered_with_the_line_that_converts_it(tmp_path: Path) -> None:
    path = tmp_path / "my store.jks"
    path.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    text = trouble(ssl_truststore_location=str(path), ssl_truststore_password=PASSWORD)
    assert (
        f"`keytool -importkeystore -srckeystore '{path}' -srcstoretype JKS "
        f"-destkeystore '{tmp_path}/my store.p12' -deststoretype PKCS12`"
    ) in text


@pytest.mark.parametrize(
    ("kind", "content", "words"),
    [
        ("PEM", b"hello", "is not PEM"),
        ("PEM", OWN.key_pem().encode(), "has no certificate"),
        ("PEM", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "malformed"),
        ("JKS", OWN.certificate_pem.encode(), "set ssl.truststore.type=PEM"),
        ("PKCS12", b"\x30\x03\x02\x01\x01", "is wrong, or the file is damaged"),
    ],
)
def test_a_trust_store_that_cannot_be_used_is_explained(
    tmp_path: Path, kind: str, content: bytes, words: str
) -> None:
    (tmp_path / "ca").write_bytes(content)
    password = {} if kind == "PEM" else {"ssl_truststore_password": PASSWORD}
    location = str(tmp_path / "ca")
    text = trouble(ssl_truststore_type=kind, ssl_truststore_location=location, **password)
    assert words in text
    assert location in text


def test_a_pkcs12_store_with_another_password_is_named(tmp_path: Path) -> None:
    (tmp_path / "own").write_bytes(OWN.key_store_pkcs12())
    store = {"ssl_keystore_type": "PKCS12", "ssl_keystore_location": str(tmp_path / "own")}
    assert "ssl.keystore.password is wrong" in trouble(**store, ssl_keystore_password="x")
    trust = {name.replace("keystore", "truststore"): value for name, value in store.items()}
    assert "ssl.truststore.password is missing" in trouble(**trust)


def test_a_pkcs12_store_without_the_library_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own").write_bytes(OWN.key_store_pkcs12())
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    text = trouble(ssl_keystore_location=str(tmp_path / "own"), ssl_keystore_password="x")
    assert "pip install cryptography, or use a store of type PEM" in text


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"ssl_keystore_key": OWN.key_pem("pw")}, "ssl.key.password is missing"),
        ({"ssl_keystore_key": OWN.key_pem("pw"), "ssl_key_password": "no"}, "password is wrong"),
        ({"ssl_keystore_key": certified("x").key_pem()}, "does not belong to the first"),
        ({"ssl_keystore_key": "hello"}, "has no private key"),
    ],
    ids=["no password", "wrong password", "other key", "no key"],
)
def test_a_key_that_cannot_be_used_is_explained(properties: dict[str, str], words: str) -> None:
    chain = {"ssl_keystore_type": "PEM", "ssl_keystore_certificate_chain": OWN.certificate_pem}
    assert words in trouble(**chain, **properties)


def test_a_certificate_that_is_too_weak_is_refused_with_what_is_weak(tmp_path: Path) -> None:
    path = tmp_path / "weak.pem"
    path.write_text(SIGNED_WITH_SHA1)
    text = trouble(ssl_keystore_type="PEM", ssl_keystore_location=str(path))
    assert str(path) in text
    assert "signed with SHA-1" in text
    assert "sign it again with SHA-256" in text
    small = tmp_path / "small.pem"
    key = rsa.generate_private_key(65537, 1024)
    certificate = self_signed("small", hosts=("localhost",), key=key)
    small.write_text(certificate.key_store_pem())
    text = trouble(ssl_keystore_type="PEM", ssl_keystore_location=str(small))
    assert "the key of a certificate is too small" in text
    assert "make one of 2048 bits" in text


def test_pem_texts_may_be_one_line_and_have_comments_as_in_kafka(tmp_path: Path) -> None:
    def one_line(text: str) -> str:
        return " ".join(text.split("\n"))

    (tmp_path / "ca.pem").write_text(f"subject=é\r\n{OWN.authority_pem}\n# end")
    made = context(
        ssl_truststore_type="PEM",
        ssl_truststore_location=str(tmp_path / "ca.pem"),
        ssl_keystore_type="PEM",
        ssl_keystore_key=one_line(OWN.key_pem("pw")),
        ssl_key_password="pw",
        ssl_keystore_certificate_chain=one_line(OWN.certificate_pem + OWN.authority_pem),
    )
    assert len(made.get_ca_certs()) == 1


def test_no_file_descriptor_is_left_open() -> None:
    before = os.listdir("/proc/self/fd")
    context(
        ssl_keystore_type="PEM",
        ssl_keystore_key=OWN.key_pem(),
        ssl_keystore_certificate_chain=OWN.certificate_pem,
    )
    assert os.listdir("/proc/self/fd") == before
