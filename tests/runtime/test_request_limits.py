"""How many connections there may be, in all and from one address."""

import pytest

from spindle.common.errors import ConfigError
from spindle.runtime.network.request_limits import RequestLimits, per_ip_overrides


def limits(**changed: int) -> RequestLimits:
    numbers = {
        "max_connections": 10,
        "max_connections_per_ip": 3,
        "most_descriptors": 100,
        **changed,
    }
    return RequestLimits(
        max_request_bytes=1000,
        per_ip_overrides={"10.0.0.9": 5, "10.0.0.8": 0},
        max_idle_ms=1000,
        max_held_bytes=-1,
        **numbers,
    )


def test_connections_of_one_address() -> None:
    some = limits()
    assert [some.admit("10.0.0.1") for _ in range(4)] == [None] * 3 + ["max.connections.per.ip=3"]
    assert some.admit("10.0.0.2") is None
    some.leave("10.0.0.1")
    assert some.admit("10.0.0.1") is None


def test_some_addresses_have_limits_of_their_own() -> None:
    some = limits()
    assert [some.admit("10.0.0.9") for _ in range(6)][4:] == [
        None,
        "max.connections.per.ip.overrides=5",
    ]
    assert some.admit("10.0.0.8") == "max.connections.per.ip.overrides=0"


def test_connections_of_all_addresses_together() -> None:
    some = limits(max_connections=2)
    assert [some.admit(f"10.0.1.{number}") for number in range(3)] == [
        None,
        None,
        "max.connections=2",
    ]
    some.leave("10.0.1.0")
    assert some.admit("10.0.1.7") is None


def test_connections_take_no_descriptors_that_files_need() -> None:
    some = limits(max_connections=2**31, most_descriptors=1)
    assert some.admit("10.0.1.1") is None
    assert some.admit("10.0.1.2") == "RLIMIT_NOFILE leaves room for 1 connections"


def test_overrides_are_pairs() -> None:
    assert per_ip_overrides("") == {}
    assert per_ip_overrides("10.0.0.1:7, ::1:20") == {"10.0.0.1": 7, "::1": 20}


@pytest.mark.parametrize("text", ["10.0.0.1", "10.0.0.1:", ":5", "a:b", "a:-1"])
def test_what_is_no_pair_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match=r"max\.connections\.per\.ip\.overrides: '.*' is not"):
        per_ip_overrides(text)


def test_without_a_limit_nothing_is_ever_full() -> None:
    some = limits()
    some.hold(1 << 50)
    assert not some.is_full
