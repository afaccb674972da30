"""Distinguished names are written as Java writes them, and dates are read.

The names are those of Java 17's `X500Principal.getName()` for the same certificates, which
`tests/interop/test_tls_clients.py` compares again.
"""

from datetime import UTC, datetime, timedelta

import pytest
from certificates import CERTIFICATE_NAMES, certified, named
from cryptography.hazmat.primitives.serialization import Encoding

from spindle.security.certificates import read_certificate


@pytest.mark.parametrize("expected", CERTIFICATE_NAMES)
def test_a_distinguished_name_is_written_as_java_writes_it(expected: str) -> None:
    der = named(CERTIFICATE_NAMES[expected]).public_bytes(Encoding.DER)
    assert read_certificate(der).subject == expected


@pytest.mark.parametrize(
    "der",
    [
        b"",
        b"\x30",
        b"\x30\x80\x00\x00",
        b"\x30\x82\x01",
        b"\x30\x05\x30\x03\x02\x01\x01",
        b"\x1f\x81\x01\x00",
        b"\x30\x00\x30\x00",
    ],
)
def test_an_encoding_that_is_not_der_is_refused(der: bytes) -> None:
    with pytest.raises(ValueError, match=r"element|field|unpack"):
        read_certificate(der)


def test_dates_and_alternative_names_are_read() -> None:
    made = certified("broker", hosts=("127.0.0.1", "localhost"), days=3)
    read = read_certificate(made.certificate.public_bytes(Encoding.DER))
    assert read.alternative_names == {b"\x87\x04\x7f\x00\x00\x01", b"\x82\x09localhost"}
    assert read.not_after == made.certificate.not_valid_after_utc
    assert read.not_before < datetime.now(UTC) < read.not_after < datetime.now(UTC) + timedelta(4)
