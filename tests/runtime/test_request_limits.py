"""How many connections there may be, in all and from one address."""

from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.runtime.network.request_limits import RequestLimits

PROPERTIES = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "h1:9093",
}


def limits(**changed: int) -> RequestLimits:
    numbers = {
        "max_connections": 10,
        "max_connections_per_ip": 3,
        "max_descriptors": 100,
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
    some = limits(max_connections=2**31, max_descriptors=1)
    assert some.admit("10.0.1.1") is None
    assert some.admit("10.0.1.2") == "RLIMIT_NOFILE leaves room for 1 connections"


def test_new_values_of_the_limits_count_for_the_next_connection() -> None:
    node = NodeConfig.from_properties(PROPERTIES)
    some = RequestLimits.of(node, 100)
    assert [some.admit("10.0.0.1") for _ in range(3)] == [None] * 3
    some.update(BrokerValues(node, cluster={"max.connections.per.ip": "4"}))
    assert [some.admit("10.0.0.1") for _ in range(2)] == [None, "max.connections.per.ip=4"]
    overrides = {"max.connections.per.ip.overrides": "10.0.0.1:5"}
    some.update(BrokerValues(node, broker=overrides))
    assert [some.admit("10.0.0.1") for _ in range(2)] == [
        None,
        "max.connections.per.ip.overrides=5",
    ]
    some.update(BrokerValues(node, cluster={"max.connections": "5"}))
    assert some.admit("10.0.0.2") == "max.connections=5"
    some.leave("10.0.0.1")
    assert some.admit("10.0.0.2") is None


def test_without_a_limit_nothing_is_ever_full() -> None:
    some = limits()
    some.hold(1 << 50)
    assert not some.is_full
