"""Hosts of ACLs in CIDR notation (KIP-1276), as Apache Kafka 4.4.0 takes and matches them."""

import re

import pytest

from spindle.authorization.host_patterns import host_matches, is_range, parse_range

VALID = [
    "1.2.3.4/0",
    "1.2.3.4/24",
    "1.2.3.4/32",
    "01.2.3.4/8",
    "1.2.3.4/08",
    "::/0",
    "::1/128",
    "2001:db8::/32",
    "2001:db8::1/032",
    "fe80::1%0/64",
    "[::1]/64",
    "2001:db8:0:0:0:0:0:0/32",
    "::/+8",
    "2001:DB8::/32",
]
REFUSED = {
    "1.2.3.4/33": "Value [33] not in range [0,32]",
    "1.2.3.256/8": "Value [256] not in range [0,255]",
    "1.2.3.4/-1": "Could not parse [1.2.3.4/-1]",
    "1.2.3.4/": "Could not parse [1.2.3.4/]",
    "/24": "Could not parse [/24]",
    "1.2.3.4/024": "Could not parse [1.2.3.4/024]",
    "1.2.3/8": "Could not parse [1.2.3/8]",
    "1.2.3.4/8/9": "Could not parse [1.2.3.4/8/9]",
    "a/b": "Could not parse [a/b]",
    " 1.2.3.4/8": "Could not parse [ 1.2.3.4/8]",
    "1.2.3.4/8 ": "Could not parse [1.2.3.4/8 ]",
    "1.2.3.4/8\n": "Could not parse [1.2.3.4/8\n]",
    "*/8": "Could not parse [*/8]",
    "1.2.3.4/255.0.0.0": "Could not parse [1.2.3.4/255.0.0.0]",
    "::1/129": "Could not parse [::1/129] - prefix length must be between 0 and 128",
    "2001:db8::/": "Could not parse [2001:db8::/] - invalid prefix length",
    "::/ 8": "Could not parse [::/ 8] - invalid prefix length",
    "::1/64/1": "Could not parse [::1/64/1] - invalid prefix length",
    "::ffff:1.2.3.4/96": "Could not parse [::ffff:1.2.3.4] - not an IPv6 address",
    "1:2:3/8": "Could not parse [1:2:3]",
    ":::/8": "Could not parse [:::]",
    "12345::/8": "Could not parse [12345::]",
}


@pytest.mark.parametrize("pattern", VALID)
def test_ranges_that_kafka_takes(pattern: str) -> None:
    assert is_range(pattern)
    parse_range(pattern)


@pytest.mark.parametrize("pattern", REFUSED)
def test_ranges_that_kafka_refuses_match_nobody(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(REFUSED[pattern]) + r"\Z"):
        parse_range(pattern)
    assert not host_matches(pattern, "1.2.3.4")


@pytest.mark.parametrize(
    ("host", "pattern", "is_match"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        ("10.1.2.3", "10.9.9.9/8", True),
        ("10.0.0.0", "10.0.0.0/8", True),
        ("10.255.255.255", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("255.255.255.255", "0.0.0.0/0", True),
        ("1.2.3.4", "1.2.3.4/32", True),
        ("1.2.3.5", "1.2.3.4/31", True),
        ("1.2.3.6", "1.2.3.4/31", False),
        ("0:0:0:0:0:0:0:1", "::/0", True),
        ("0:0:0:0:0:0:0:1", "::1/128", True),
        ("2001:db8:0:0:0:0:0:1", "2001:db8::/32", True),
        ("2001:db9:0:0:0:0:0:1", "2001:db8::/32", False),
        ("2001:db8:8000:0:0:0:0:0", "2001:db8::/33", False),
        ("1.2.3.4", "::/0", False),
        ("0:0:0:0:0:0:0:1", "0.0.0.0/0", False),
        ("fe80:0:0:0:0:0:0:1%2", "fe80::/10", True),
        ("unknown", "0.0.0.0/0", False),
        ("unknown", "unknown", True),
        ("", "10.0.0.0/8", False),
    ],
)
def test_an_address_in_the_range_matches(host: str, pattern: str, is_match: bool) -> None:
    assert host_matches(pattern, host) is is_match
