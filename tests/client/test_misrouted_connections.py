"""Clients name the broker that they expect, and bootstrap again when told to (KIP-1102, 1242)."""

import threading
from collections.abc import Callable, Iterator

import pytest
from wire_broker import NODE_ID, WireBroker

from spindle.client.admin.cluster import ClusterNode
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import ask_every_broker, log_dirs_of
from spindle.client.blocking.settings import ClientSettings, client_settings
from spindle.client.errors import ConnectionLost, RequestTimedOut
from spindle.client.producing import Appended
from spindle.common.errors import ConfigError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.protocol.records.builder import SimpleRecord, build_batch

T0 = TopicPartition("t", 0)
UNKNOWN = (None, -1)
KNOWN = ("wire-broker", NODE_ID)


@pytest.fixture
def broker() -> Iterator[WireBroker]:
    with WireBroker() as running:
        running.log("t", 0)
        yield running


def settings(broker: WireBroker, **properties: str) -> ClientSettings:
    names = {name.replace("_", "."): value for name, value in properties.items()}
    return client_settings({"bootstrap.servers": broker.address, **names})


@pytest.fixture
def client(broker: WireBroker) -> Iterator[WireClient]:
    with WireClient(settings(broker), sleep=lambda _: None) as made:
        yield made


def named(broker: WireBroker) -> list[tuple[str | None, int]]:
    """Return cluster and node id of the connections to a broker so far."""
    requests = broker.requests[ApiVersionsRequest]
    return [(request.cluster_id, request.node_id) for request in requests]


def bootstrap_again(_: MetadataRequest) -> MetadataResponse:
    return MetadataResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)


def at_port(broker: WireBroker, port: int) -> Callable[[MetadataRequest], Message | bytes | None]:
    """Return an answer to Metadata in which the broker has another port."""

    def answer(request: MetadataRequest) -> Message:
        response = broker.handle(request)
        assert isinstance(response, MetadataResponse)
        response.brokers[0].port = port
        return response

    return answer


def produce(client: WireClient) -> Appended:
    return client.produce(T0, build_batch([SimpleRecord(b"k", b"v", 5)], 0))


def test_cluster_and_node_are_named_once_they_are_known(
    broker: WireBroker, client: WireClient
) -> None:
    client.metadata()
    assert (client.cluster_id, named(broker)) == ("wire-broker", [UNKNOWN])
    produce(client)
    client.open_leader(T0).close()
    assert named(broker) == [UNKNOWN, KNOWN, KNOWN]


def test_a_broker_that_has_another_id_now_makes_the_client_bootstrap_again(
    broker: WireBroker, client: WireClient
) -> None:
    produce(client)
    broker.node_id = 8
    broker.drop_connections()
    assert produce(client).base_offset == 1
    assert named(broker) == [UNKNOWN, KNOWN, KNOWN, UNKNOWN, ("wire-broker", 8)]


def test_an_address_that_another_cluster_has_taken_is_noticed(
    broker: WireBroker, client: WireClient
) -> None:
    with WireBroker() as other:
        other.cluster_id = "other"
        other.log("t", 0)
        broker.interrupt(MetadataRequest, at_port(broker, other.port))
        client.metadata()
        assert client.retrying(client.metadata).cluster_id == "wire-broker"
        assert named(other) == [KNOWN]
        assert not other.requests[MetadataRequest]


def test_an_answer_to_metadata_makes_the_client_bootstrap_again(
    broker: WireBroker, client: WireClient
) -> None:
    client.metadata()
    broker.interrupt(MetadataRequest, bootstrap_again)
    assert client.metadata().brokers
    assert named(broker) == [UNKNOWN, KNOWN, UNKNOWN]


def test_a_bootstrap_server_that_is_down_for_a_moment_is_asked_again(broker: WireBroker) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with WireClient(settings(broker), sleep=sleep, clock=lambda: now[0]) as client:
        client.metadata()
        broker.interrupt(MetadataRequest, bootstrap_again)
        broker.interrupt(ApiVersionsRequest, broker.handle, lambda _: None)
        assert client.metadata().brokers
    assert named(broker) == [UNKNOWN, KNOWN, UNKNOWN, UNKNOWN]


def test_a_broker_that_is_another_one_closes_no_connection_on_which_a_thread_waits(
    broker: WireBroker, client: WireClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_by = []
    close = client.close

    def noting() -> None:
        closed_by.append(threading.current_thread())
        close()

    def with_another(request: MetadataRequest) -> Message:
        response = broker.handle(request)
        assert isinstance(response, MetadataResponse)
        row = MetadataResponse.MetadataResponseBroker
        response.brokers.append(row(node_id=8, host="127.0.0.1", port=broker.port))
        return response

    monkeypatch.setattr(client, "close", noting)
    broker.interrupt(MetadataRequest, broker.handle, with_another)
    client.metadata()
    assert list(client.describe_log_dirs()) == [NODE_ID]
    assert closed_by == [threading.current_thread()]


def test_without_rebootstrap_no_broker_is_named_and_the_known_ones_are_kept() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with WireBroker() as broker:
        some = settings(broker, metadata_recovery_strategy="None", default_api_timeout_ms="1000")
        with WireClient(some, sleep=sleep, clock=lambda: now[0]) as client:
            client.metadata()
            broker.interrupt(MetadataRequest, bootstrap_again)
            client.metadata()
            assert named(broker) == [UNKNOWN]
            broker.interrupt(MetadataRequest, *[bootstrap_again] * 4)
            with pytest.raises(RequestTimedOut, match=r"gave up .*REBOOTSTRAP_REQUIRED"):
                client.metadata()
            broker.interrupt(MetadataRequest, at_port(broker, 1))
            client.metadata()
            with pytest.raises(ConnectionLost, match=r"no broker could be reached: [^;]*:1:"):
                client.versions()


def test_the_check_may_be_switched_off(broker: WireBroker) -> None:
    with WireClient(settings(broker, metadata_cluster_check_enable="false")) as client:
        produce(client)
    assert named(broker) == [UNKNOWN]


def test_an_answer_of_one_broker_is_not_taken_for_that_of_another(
    broker: WireBroker, client: WireClient
) -> None:
    client.metadata()
    nodes = [ClusterNode(n, "127.0.0.1", broker.port, None, False) for n in (NODE_ID, 8)]
    answers = ask_every_broker(client, nodes, log_dirs_of)
    assert not isinstance(answers[NODE_ID], Exception)
    assert "this is not broker 8 of cluster wire-broker" in str(answers[8])


@pytest.mark.parametrize(
    ("key", "value", "limit"),
    [
        ("metadata.recovery.strategy", "later", "want rebootstrap or none"),
        ("metadata.cluster.check.enable", "yes", "want true or false"),
    ],
)
def test_a_property_without_a_usable_value_is_refused(key: str, value: str, limit: str) -> None:
    with pytest.raises(ConfigError, match=f"{key} is {value!r}, {limit}"):
        client_settings({"bootstrap.servers": "a:1", key: value})
