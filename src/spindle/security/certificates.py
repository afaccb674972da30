"""Names and dates in X.509 certificates.

OpenSSL has accepted these certificates, but it is more tolerant: an encoding that is not DER is
refused here, so that a name is never read in two ways.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "550403": "CN",
    "550406": "C",
    "550407": "L",
    "550408": "ST",
    "550409": "STREET",
    "55040a": "O",
    "55040b": "OU",
    "0992268993f22c640119": "DC",
    "0992268993f22c640101": "UID",
}
"""Attributes with a name of their own in RFC 2253, by their object identifiers in DER."""
_STRINGS: Final = frozenset((0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1C, 0x1E))
"""DER's string types. Java reads the bytes of all of them as UTF-8 for this form of a name."""
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_LONG_TAG: Final = 0x1F
_LONG_LENGTH: Final = 0x80
_ENDLESS: Final = 0x80
_VERSION: Final = 0xA0
_VALIDITY: Final = 3
_SUBJECT: Final = 4
"""Positions of fields after the version: serial number, algorithm, issuer, validity, subject."""
_EXTENSIONS: Final = 0xA3
_UTC_TIME: Final = 0x17
_ALTERNATIVE_NAMES: Final = bytes.fromhex("551d11")


class Certificate(NamedTuple):
    """The parts of a certificate that a node reads.

    Attributes:
        subject: the distinguished name by RFC 2253, as Java writes it.
        alternative_names: the subject alternative names, in DER.
    """

    subject: str
    alternative_names: frozenset[bytes]
    not_before: datetime
    not_after: datetime


class _Element(NamedTuple):
    """An element of DER: `encoded` has its tag and length, too."""

    tag: int
    content: bytes
    encoded: bytes


def subject_name(der: bytes) -> str:
    """Return the distinguished name of a certificate by RFC 2253, as Java writes it.

    Raises:
        ValueError: the certificate is not encoded in DER.
    """
    return _name(_fields(der)[_SUBJECT])


def read_certificate(der: bytes) -> Certificate:
    """Return the parts of a certificate.

    Raises:
        ValueError: the certificate is not encoded in DER.
    """
    fields = _fields(der)
    validity, subject = fields[_VALIDITY], fields[_SUBJECT]
    not_before, not_after = map(_time, _elements(validity.content))
    return Certificate(_name(subject), _alternative_names(fields), not_before, not_after)


def _fields(der: bytes) -> list[_Element]:
    """Return the fields of the part that is signed, without the version."""
    (whole,) = _elements(der)
    signed, *_ = _elements(whole.content)
    fields = [field for field in _elements(signed.content) if field.tag != _VERSION]
    if len(fields) <= _SUBJECT:
        raise ValueError("a field is missing")
    return fields


def _elements(data: bytes) -> Iterator[_Element]:
    position = 0
    while position < len(data):
        start, header = position, data[position : position + 2]
        position += 2
        if len(header) < 2 or header[0] & _LONG_TAG == _LONG_TAG or header[1] == _ENDLESS:
            raise ValueError("an element has no tag or length of DER")
        tag, length = header
        if length & _LONG_LENGTH:
            size = length & ~_LONG_LENGTH
            length = int.from_bytes(data[position : position + size], "big")
            position += size
        end = position + length
        if end > len(data):
            raise ValueError("an element is longer than the one around it")
        yield _Element(tag, data[position:end], data[start:end])
        position = end


def _time(element: _Element) -> datetime:
    text = element.content.decode("ascii")
    if element.tag == _UTC_TIME:
        # Two digits stand for 1950 to 2049 (RFC 5280, section 4.1.2.5.1).
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


def _alternative_names(fields: list[_Element]) -> frozenset[bytes]:
    for field in fields:
        if field.tag != _EXTENSIONS:
            continue
        (extensions,) = _elements(field.content)
        for extension in _elements(extensions.content):
            identifier, *_, value = _elements(extension.content)
            if identifier.content == _ALTERNATIVE_NAMES:
                (names,) = _elements(value.content)
                return frozenset(name.encoded for name in _elements(names.content))
    return frozenset()


def _name(subject: _Element) -> str:
    relative = [
        "+".join(map(_attribute, _elements(element.content)))
        for element in _elements(subject.content)
    ]
    return ",".join(reversed(relative))


def _attribute(element: _Element) -> str:
    identifier, value = _elements(element.content)
    keyword = _KEYWORDS.get(identifier.content.hex())
    if keyword is None or value.tag not in _STRINGS:
        return f"{keyword or _dotted(identifier.content)}=#{value.encoded.hex()}"
    return f"{keyword}={_escaped(value.content.decode('utf-8', 'replace'))}"


def _dotted(identifier: bytes) -> str:
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers:
        raise ValueError("an identifier is empty")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _escaped(text: str) -> str:
    """Escape the characters that RFC 2253 reserves, and blanks at both ends."""
    lead = len(text) - len(text.lstrip(" \r"))
    trail = len(text.rstrip(" \r"))
    return "".join(
        f"\\{c}" if c in _ESCAPED or not lead <= i < trail else "\\00" if c == "\0" else c
        for i, c in enumerate(text)
    )
