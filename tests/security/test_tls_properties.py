"""The ssl.* properties: contradictions are named, Java's suites get OpenSSL's names."""

import pytest

from spindle.common.errors import ConfigError
from spindle.security.tls_settings import TlsSettings, tls_settings

FILE = {"ssl.keystore.location": "k", "ssl.keystore.password": "p"}


def test_the_defaults_are_kafkas() -> None:
    assert tls_settings({}) == TlsSettings(None, None, ("TLSv1.2", "TLSv1.3"), (), True)


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"ssl.truststore.type": "BKS"}, "ssl.truststore.type is 'BKS', want PEM or PKCS12"),
        ({"ssl.truststore.certificates": "x"}, "needs ssl.truststore.type=PEM, it is JKS"),
        ({"ssl.truststore.password": "x"}, "ssl.truststore.location is not"),
        (
            {"ssl.truststore.type": "PEM", "ssl.truststore.password": "x"},
            "a store of type PEM has none",
        ),
        (
            {
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": "x",
                "ssl.truststore.location": "y",
            },
            "are both set",
        ),
        ({"ssl.keystore.key": "x"}, "ssl.keystore.certificate.chain is missing"),
        ({"ssl.keystore.certificate.chain": "x"}, "ssl.keystore.key is missing"),
        ({"ssl.keystore.location": "k"}, "for a PEM file, set ssl.keystore.type=PEM"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "ssl.enabled.protocols has 'TLSv1.1'"),
        ({"ssl.protocol": "SSLv3"}, "ssl.protocol has 'SSLv3'"),
        (
            {"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
            "but ssl.protocol is TLSv1.2",
        ),
        ({"ssl.endpoint.identification.algorithm": "ldaps"}, "want https, or nothing"),
        ({"ssl.cipher.suites": "TLS_AES_256_GCM_SHA384"}, "single suites of TLS 1.3"),
        ({"ssl.cipher.suites": "TLS_NULL_WITH_NULL_NULL"}, "is not known here"),
        ({"ssl.engine.factory.class": "x.Y"}, "names Java code"),
    ],
)
def test_a_contradiction_is_named(properties: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError) as raised:
        tls_settings(properties)
    assert words in str(raised.value)


def test_a_key_store_has_its_passwords_and_hides_them() -> None:
    settings = tls_settings(FILE | {"ssl.key.password": "hush"})
    assert settings.own is not None
    assert settings.own.password is not None
    assert settings.own.password.text == "p"
    assert "hush" not in repr(settings)


def test_suites_choose_the_versions_that_have_one() -> None:
    older = tls_settings({"ssl.cipher.suites": "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"})
    assert older.versions == ("TLSv1.2",)
    newer = "TLS_AES_256_GCM_SHA384,TLS_CHACHA20_POLY1305_SHA256,TLS_AES_128_GCM_SHA256"
    assert tls_settings({"ssl.cipher.suites": newer}).versions == ("TLSv1.3",)
    assert tls_settings({"ssl.protocol": "TLSv1.2"}).versions == ("TLSv1.2",)


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384", "ECDHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256", "ECDHE-ECDSA-AES128-SHA256"),
        ("TLS_DHE_RSA_WITH_AES_256_CBC_SHA256", "DHE-RSA-AES256-SHA256"),
        ("TLS_RSA_WITH_AES_128_GCM_SHA256", "AES128-GCM-SHA256"),
        ("TLS_RSA_WITH_AES_256_CBC_SHA", "AES256-SHA"),
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
    ],
)
def test_javas_suites_get_the_names_of_openssl(java: str, openssl: str) -> None:
    assert tls_settings({"ssl.cipher.suites": java}).ciphers == (openssl,)
