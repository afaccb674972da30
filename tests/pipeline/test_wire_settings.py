"""Client properties: Kafka's names and defaults, and errors that name unusable values."""

import socket

import pytest

from spindle.client.blocking.settings import HostPort, client_settings
from spindle.common.errors import ConfigError

SERVERS = {"bootstrap.servers": "a:1"}


def test_defaults_are_kafkas() -> None:
    settings = client_settings(SERVERS)
    assert settings.bootstrap_servers == (HostPort("a", 1),)
    assert settings.request_timeout_ms == 30_000
    assert settings.api_timeout_ms == 60_000
    assert settings.fetch_max_wait_ms == 500
    assert settings.isolation_level == 0


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("a:1, b:2 ,", (HostPort("a", 1), HostPort("b", 2))),
        ("[::1]:9092", (HostPort("::1", 9092),)),
        ("PLAINTEXT://h:65535", (HostPort("h", 65535),)),
        (" a:1\n", (HostPort("a", 1),)),
        ("::1:9092", (HostPort("::1", 9092),)),
    ],
)
def test_bootstrap_servers_are_parsed(text: str, servers: tuple[HostPort, ...]) -> None:
    assert client_settings({"bootstrap.servers": text}).bootstrap_servers == servers


@pytest.mark.parametrize(
    "text",
    ["", " , ", "host", "host:", ":1", "h:0", "h:65536", "h:x", "h:1:2", "a b:1", "a :1", "a: 1"],
)
def test_malformed_bootstrap_servers_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers"):
        client_settings({"bootstrap.servers": text})


def test_a_malformed_address_of_a_controller_is_named_by_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^bootstrap\.controllers has 'host', want host:port"):
        client_settings({"bootstrap.controllers": "host"})


def test_addresses_with_spaces_between_them_are_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match="put commas between addresses"):
        client_settings({"bootstrap.servers": "a:1 b:2"})


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("request.timeout.ms", "soon", "'soon', want an integer"),
        ("request.timeout.ms", "0", "is 0, want 1 to 2147483647"),
        ("fetch.max.bytes", "5", "is 5, want 1024 to 2147483647"),
        ("isolation.level", "serializable", "want read_uncommitted or read_committed"),
    ],
)
def test_bad_values_are_named(key: str, value: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words) as raised:
        client_settings(SERVERS | {key: value})
    assert key in str(raised.value)


def test_a_time_that_is_a_long_in_kafka_may_be_as_long_as_one_likes() -> None:
    given = {"socket.connection.setup.timeout.ms": str(2**63 - 1)}
    timeout_ms = client_settings(SERVERS | given).connect_timeout_ms
    with socket.socket() as opened:
        opened.settimeout(timeout_ms / 1000)


def test_properties_of_groups_and_deserializers_are_ignored() -> None:
    given = SERVERS | {"group.id": "g", "max.poll.records": "1", "session.timeout.ms": "10"}
    assert client_settings(given) == client_settings(SERVERS)


def test_an_ipv6_address_reads_back() -> None:
    assert str(HostPort("::1", 9)) == "[::1]:9"
    assert str(HostPort("h", 9)) == "h:9"
