"""The blocking client over real sockets, against a broker with scripted failures."""

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from waiting import wait_until
from wire_broker import NODE_ID, WireBroker

from spindle.cli.wait_notes import wait_text
from spindle.client.admin.groups import committed_offsets, describe_group
from spindle.client.admin.transactions import describe_transaction
from spindle.client.blocking import client as blocking_client
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fetcher import (
    NoProgress,
    PartitionFetcher,
    TopicReplaced,
    whole_batches,
)
from spindle.client.blocking.settings import ClientSettings, HostPort, client_settings
from spindle.client.blocking.transport import BlockingConnection
from spindle.client.errors import (
    ConnectionLost,
    NotInMetadata,
    RequestTimedOut,
    UnsupportedByPeer,
)
from spindle.client.fetching import FetchLimits
from spindle.client.offsets import MAX_TIMESTAMP
from spindle.common.errors import ApiError, CorruptRecords, ErrorCode, ProtocolViolation
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.config.resources import ConfigResourceType
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.sentinels import EARLIEST, LATEST

T0 = TopicPartition("t", 0)


def batch(base_offset: int, count: int, value: bytes = b"v", timestamp_ms: int = 5) -> bytes:
    records = [SimpleRecord(b"k", value, timestamp_ms) for _ in range(count)]
    return build_batch(records, base_offset)


@pytest.fixture
def broker() -> Iterator[WireBroker]:
    with WireBroker() as running:
        log = running.log("t", 0)
        for index in range(5):
            log.append(batch(10 * index, 10, timestamp_ms=index))
        yield running


def settings(broker: WireBroker, **changes: Any) -> ClientSettings:
    return replace(client_settings({"bootstrap.servers": broker.address}), **changes)


@pytest.fixture
def pauses() -> list[float]:
    return []


@pytest.fixture
def client(broker: WireBroker, pauses: list[float]) -> Iterator[WireClient]:
    with WireClient(settings(broker), sleep=pauses.append) as made:
        yield made


# ---------------------------------------------------------------- transport


def test_a_refused_connection_is_reported_without_an_error_number() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    address = HostPort("127.0.0.1", port)
    with pytest.raises(
        ConnectionLost, match=f"cannot connect to 127.0.0.1:{port}: Connection refused$"
    ):
        BlockingConnection.open(address, ClientSettings((address,)))


def test_a_host_that_is_no_host_name_is_a_lost_connection() -> None:
    host = "x" * 70
    with (
        pytest.raises(ConnectionLost, match=f"cannot connect to {host}:1"),
        WireClient(client_settings({"bootstrap.servers": f"{host}:1"})) as client,
    ):
        client.metadata()


def test_a_peer_that_says_nothing(broker: WireBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = HostPort("127.0.0.1", silent.getsockname()[1])
        with pytest.raises(RequestTimedOut, match="did not answer within 50 ms"):
            BlockingConnection.open(address, ClientSettings((address,), request_timeout_ms=50))


def test_a_broker_that_hangs_is_asked_once_and_then_after_the_others(broker: WireBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.setblocking(False)
        servers = f"127.0.0.1:{silent.getsockname()[1]},{broker.address}"
        hurried = replace(client_settings({"bootstrap.servers": servers}), request_timeout_ms=50)
        with WireClient(hurried) as client:
            for _ in range(3):
                client.ask(MetadataRequest(topics=[]), MetadataResponse)
            silent.accept()
            with pytest.raises(BlockingIOError):
                silent.accept()


@pytest.fixture
def silent() -> Iterator[HostPort]:
    """Yield an address that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield HostPort("127.0.0.1", listener.getsockname()[1])


def test_a_first_broker_that_hangs_does_not_cost_the_time_limit_of_a_request(
    broker: WireBroker, silent: HostPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_client, "_FIRST_TRY_MS", 20)
    servers = client_settings({"bootstrap.servers": f"{silent},{broker.address}"})
    assert servers.request_timeout_ms == 30_000
    with WireClient(servers) as client:
        assert client.metadata().cluster_id == "wire-broker"
        assert client.silent_addresses(0) == []


def test_a_slow_broker_gets_the_time_limit_of_a_request_after_the_others(
    broker: WireBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocking_client, "_FIRST_TRY_MS", 20)
    with socket.create_server(("127.0.0.1", 0)) as other:
        other_address = f"127.0.0.1:{other.getsockname()[1]}"

        def answer_after_the_other_was_tried(request: ApiVersionsRequest) -> Message:
            other.accept()[0].close()
            return broker.handle(request)

        broker.interrupt(ApiVersionsRequest, answer_after_the_other_was_tried)
        servers = client_settings({"bootstrap.servers": f"{broker.address},{other_address}"})
        with WireClient(servers) as client:
            assert client.metadata().cluster_id == "wire-broker"


def test_a_peer_that_hangs_up_is_named(broker: WireBroker) -> None:
    connection = BlockingConnection.open(HostPort("127.0.0.1", broker.port), settings(broker))
    broker.interrupt(MetadataRequest, lambda _: None)
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{broker.port} closed the connection"):
        connection.request(MetadataRequest(), MetadataResponse)
    assert not connection.is_open


@pytest.mark.parametrize("junk", [b"", b"\x00\x00", b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x00"])
def test_junk_closes_the_connection(broker: WireBroker, junk: bytes) -> None:
    connection = BlockingConnection.open(HostPort("127.0.0.1", broker.port), settings(broker))
    broker.interrupt(MetadataRequest, lambda _: junk)
    with pytest.raises(ProtocolViolation, match=f"^127.0.0.1:{broker.port}: "):
        connection.request(MetadataRequest(), MetadataResponse)
    assert not connection.is_open


def test_requests_may_be_sent_ahead(broker: WireBroker) -> None:
    connection = BlockingConnection.open(HostPort("127.0.0.1", broker.port), settings(broker))
    for names in (["t"], []):
        topics = [MetadataRequest.MetadataRequestTopic(name=n) for n in names]
        connection.send(MetadataRequest(topics=topics), MetadataResponse)
    first, second = connection.receive(), connection.receive()
    assert isinstance(first, MetadataResponse)
    assert isinstance(second, MetadataResponse)
    assert [len(first.topics), len(second.topics)] == [1, 0]
    connection.close()


# ---------------------------------------------------------------- waits


def test_a_client_shows_which_broker_it_waits_for(broker: WireBroker) -> None:
    seen: list[str] = []

    def answer(request: MetadataRequest) -> Message:
        wait_until(lambda: wait_text(asking, 0))
        seen.extend((wait_text(asking, 0), wait_text(asking, 60)))
        return broker.handle(request)

    broker.interrupt(MetadataRequest, answer)
    with WireClient(settings(broker)) as asking:
        asking.metadata()
        assert seen == [f"waiting for {broker.address} to answer", ""]
        assert wait_text(asking, 0) == ""


def test_a_client_shows_why_it_repeats_a_request(broker: WireBroker) -> None:
    seen: list[str] = []
    with WireClient(settings(broker), sleep=lambda _: seen.append(wait_text(asking, 0))) as asking:
        refusal = ListOffsetsResponse(
            topics=[
                ListOffsetsResponse.ListOffsetsTopicResponse(
                    name="t",
                    partitions=[
                        ListOffsetsResponse.ListOffsetsTopicResponse.ListOffsetsPartitionResponse(
                            partition_index=0, error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER
                        )
                    ],
                )
            ]
        )
        broker.interrupt(ListOffsetsRequest, lambda _: refusal)
        asking.list_offsets({T0: LATEST})
        assert len(seen) == 1
        assert seen[0].startswith("trying again: ")
        assert wait_text(asking, 0) == ""


# ---------------------------------------------------------------- coordinators


NO_COORDINATOR = FindCoordinatorResponse(
    coordinators=[
        FindCoordinatorResponse.Coordinator(
            key="k", node_id=-1, port=-1, error_code=ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
    ]
)


def test_without_a_topic_of_the_coordinators_there_is_no_group_and_no_transactional_id(
    broker: WireBroker, client: WireClient, pauses: list[float]
) -> None:
    broker.interrupt(FindCoordinatorRequest, *[lambda _: NO_COORDINATOR] * 3)
    with pytest.raises(ApiError) as refused:
        describe_transaction(client, "k")
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    with pytest.raises(ApiError) as refused:
        describe_group(client, "k")
    assert refused.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert committed_offsets(client, "k") == {}
    assert pauses == []


def test_a_coordinator_that_is_absent_for_a_while_is_awaited(
    broker: WireBroker, client: WireClient, pauses: list[float]
) -> None:
    broker.log("__transaction_state", 0)
    refused = FindCoordinatorResponse(
        coordinators=[
            FindCoordinatorResponse.Coordinator(
                key="k", error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            )
        ]
    )
    broker.interrupt(FindCoordinatorRequest, lambda _: NO_COORDINATOR, lambda _: refused)
    with pytest.raises(ApiError):
        describe_transaction(client, "k")
    assert len(pauses) == 1


# ---------------------------------------------------------------- cluster


def test_first_contact_fails_at_once_and_names_every_address(pauses: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    servers = (HostPort("127.0.0.1", port), HostPort("127.0.0.2", port))
    with (
        WireClient(ClientSettings(servers), sleep=pauses.append) as client,
        pytest.raises(ConnectionLost, match=rf"127\.0\.0\.1:{port}.*127\.0\.0\.2:{port}"),
    ):
        client.metadata()
    assert pauses == []


def test_a_dead_bootstrap_server_is_passed_over(broker: WireBroker) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        dead = server.getsockname()[1]
    servers = client_settings({"bootstrap.servers": f"127.0.0.1:{dead},{broker.address}"})
    with WireClient(servers) as client:
        assert client.metadata().cluster_id == "wire-broker"


def test_a_controller_in_place_of_a_broker_is_named(broker: WireBroker) -> None:
    def answer(request: ApiVersionsRequest) -> Message:
        versions = broker.handle(request)
        assert isinstance(versions, ApiVersionsResponse)
        versions.api_keys = [k for k in versions.api_keys if k.api_key != MetadataRequest.API_KEY]
        return versions

    broker.interrupt(ApiVersionsRequest, answer)
    with (
        WireClient(settings(broker)) as client,
        pytest.raises(ConnectionLost, match=f"{broker.address} is a controller: give the address"),
    ):
        client.metadata()


def test_offsets_by_position_and_time(client: WireClient) -> None:
    assert client.list_offsets({T0: EARLIEST})[T0].offset == 0
    assert client.list_offsets({T0: LATEST})[T0].offset == 50
    assert client.list_offsets({T0: 3})[T0].offset == 30
    assert client.list_offsets({T0: 99})[T0].offset == -1


def test_a_moved_leader_is_found_again(
    client: WireClient, broker: WireBroker, pauses: list[float]
) -> None:
    client.list_offsets({T0: LATEST})

    def not_leader(_: ListOffsetsRequest) -> ListOffsetsResponse:
        topic = ListOffsetsResponse.ListOffsetsTopicResponse
        partition = topic.ListOffsetsPartitionResponse(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return ListOffsetsResponse(topics=[topic(name="t", partitions=[partition])])

    asked_before = len(broker.requests[MetadataRequest])
    broker.interrupt(ListOffsetsRequest, not_leader, not_leader)
    assert client.list_offsets({T0: LATEST})[T0].offset == 50
    assert pauses == [0.1, 0.2]
    assert len(broker.requests[MetadataRequest]) == asked_before + 2


def test_a_lost_connection_is_made_again(
    client: WireClient, broker: WireBroker, pauses: list[float]
) -> None:
    assert client.list_offsets({T0: LATEST})[T0].offset == 50
    broker.drop_connections()
    assert client.list_offsets({T0: LATEST})[T0].offset == 50
    assert len(pauses) == 1


def test_an_error_that_lasts_is_raised_with_its_reason(broker: WireBroker) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with WireClient(
        settings(broker, api_timeout_ms=1000), sleep=sleep, clock=lambda: now[0]
    ) as client:
        client.metadata()
        with pytest.raises(RequestTimedOut, match="gave up after 1000 ms: UNKNOWN_TOPIC"):
            client.list_offsets({TopicPartition("nope", 0): LATEST})
    assert 0.5 < now[0] <= 1.0


def test_a_topic_that_nobody_knows_is_given_up_after_seconds(broker: WireBroker) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with WireClient(settings(broker), sleep=sleep, clock=lambda: now[0]) as client:
        for call in (
            lambda: client.list_offsets({TopicPartition("nope", 0): LATEST}),
            lambda: client.list_offsets({TopicPartition("t", 5): LATEST}),
            lambda: client.wait_for_topic("nope"),
        ):
            began = now[0]
            with pytest.raises(NotInMetadata, match=r"^UNKNOWN_TOPIC_OR_PARTITION: "):
                call()
            assert 2 < now[0] - began <= 5
        known = "there is no partition t-5; t has the partitions 0 to 0"
        with pytest.raises(NotInMetadata, match=known):
            client.list_offsets({TopicPartition("t", 5): LATEST})


def test_a_topic_that_has_just_been_created_is_waited_for(
    broker: WireBroker, pauses: list[float]
) -> None:
    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            broker.log("new", 0).append(batch(0, 10))

    with WireClient(settings(broker), sleep=sleep) as client:
        assert client.list_offsets({TopicPartition("new", 0): LATEST}) != {}
    assert len(pauses) == 3


def test_a_topic_is_waited_for_after_other_failures_as_well(broker: WireBroker) -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def attempt() -> str:
        if now[0] < 10:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, "partition t-0")
        if now[0] < 13:
            raise NotInMetadata(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "topic 't'")
        return "found"

    with WireClient(settings(broker), sleep=sleep, clock=lambda: now[0]) as client:
        assert client.retrying(attempt) == "found"


def test_a_permanent_error_is_not_retried(
    client: WireClient, broker: WireBroker, pauses: list[float]
) -> None:
    def denied(_: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    broker.interrupt(MetadataRequest, denied)
    with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED"):
        client.metadata()
    assert pauses == []


def test_an_old_broker_cannot_find_the_newest_timestamp() -> None:
    with WireBroker(last_versions={ListOffsetsRequest: 5}) as old:
        old.log("t", 0)
        with (
            WireClient(settings(old)) as client,
            pytest.raises(UnsupportedByPeer, match="needs 7"),
        ):
            client.list_offsets({T0: MAX_TIMESTAMP})


def test_the_client_describes_directories_and_configurations(client: WireClient) -> None:
    (directory,) = client.describe_log_dirs({"t": [0]})[NODE_ID]
    assert directory.replicas[T0].size_bytes > 0
    assert client.describe_configs(ConfigResourceType.TOPIC, ["t"]) == {"t": {"k": "v"}}
    assert client.describe_configs(ConfigResourceType.BROKER, [str(NODE_ID)]) == {
        str(NODE_ID): {"k": "v"}
    }


@pytest.mark.parametrize("last", [ProduceRequest.LAST_VERSION, 12])
def test_produce_by_id_and_by_name(last: int) -> None:
    with WireBroker(last_versions={ProduceRequest: last}) as broker:
        log = broker.log("t", 0)
        with WireClient(settings(broker)) as client:
            assert client.produce(T0, batch(0, 3)).base_offset == 0
            assert client.produce(T0, batch(3, 2)).base_offset == 3
        assert log.end_offset == 5
        assert broker.versions[ProduceRequest] == last


# ---------------------------------------------------------------- fetching


def fetcher(client: WireClient, broker: WireBroker, **changes: Any) -> PartitionFetcher:
    arguments: dict[str, Any] = {
        "topic_id": broker.topic_ids["t"],
        "isolation_level": 0,
        "limits": FetchLimits(250, max_wait_ms=1),
        "stall_timeout_ms": 200,
    } | changes
    return PartitionFetcher(client, T0, arguments.pop("topic_id"), **arguments)


def runs(of: PartitionFetcher, start: int, end: int) -> list[tuple[int, int, int]]:
    """Return start, next offset and size of every run."""
    return [
        (run.start_offset, run.next_offset, len(run.batches.records)) for run in of.runs(start, end)
    ]


def test_runs_are_whole_batches_without_gap(client: WireClient, broker: WireBroker) -> None:
    fetched = runs(fetcher(client, broker), 0, 50)
    assert [(start, end) for start, end, _ in fetched] == [
        (0, 10),
        (10, 20),
        (20, 30),
        (30, 40),
        (40, 50),
    ]
    assert {size for *_, size in fetched} == {len(batch(0, 10))}
    assert broker.versions[FetchRequest] == FetchRequest.LAST_VERSION


def test_nothing_is_fetched_beyond_the_end(client: WireClient, broker: WireBroker) -> None:
    assert runs(fetcher(client, broker), 15, 25) == [
        (15, 20, len(batch(0, 10))),
        (20, 30, len(batch(0, 10))),
    ]
    assert len(broker.requests[FetchRequest]) == 2


def test_the_next_run_is_asked_for_before_this_one_is_used(
    client: WireClient, broker: WireBroker
) -> None:
    asked_again = threading.Event()

    def second(request: FetchRequest) -> Message:
        asked_again.set()
        return broker.handle(request)

    broker.interrupt(FetchRequest, broker.handle, second)
    reading = fetcher(client, broker).runs(0, 50)
    next(reading)
    assert asked_again.wait(5)
    assert broker.requests[FetchRequest][1].topics[0].partitions[0].fetch_offset == 10
    reading.close()


def test_a_broker_without_topic_ids_is_read_by_name() -> None:
    with WireBroker(last_versions={FetchRequest: 11, MetadataRequest: 9}) as old:
        old.log("t", 0).append(batch(0, 4))
        with WireClient(settings(old)) as client:
            assert len(runs(fetcher(client, old, topic_id=ZERO_UUID), 0, 4)) == 1
        assert old.versions[FetchRequest] == 11


def test_a_connection_lost_between_runs(client: WireClient, broker: WireBroker) -> None:
    reading = fetcher(client, broker, sleep=lambda _: None).runs(0, 50)
    got = [next(reading).next_offset]
    broker.drop_connections()
    got += [run.next_offset for run in reading]
    assert got == [10, 20, 30, 40, 50]


def refusal(code: ErrorCode) -> FetchResponse:
    topic = FetchResponse.FetchableTopicResponse
    data = topic.PartitionData(error_code=code)
    return FetchResponse(responses=[topic(partitions=[data])])


def test_a_leader_that_moved_is_followed(client: WireClient, broker: WireBroker) -> None:
    broker.interrupt(FetchRequest, lambda _: refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert len(runs(fetcher(client, broker, sleep=lambda _: None), 0, 50)) == 5


def test_a_client_beyond_its_quota_waits_as_long_as_the_broker_says(
    client: WireClient, broker: WireBroker
) -> None:
    broker.interrupt(FetchRequest, lambda _: FetchResponse(throttle_time_ms=1500))
    pauses: list[float] = []
    assert len(runs(fetcher(client, broker, sleep=pauses.append), 0, 50)) == 5
    assert pauses == [1.5]


def test_an_offset_out_of_range_is_for_the_reader_to_judge(
    client: WireClient, broker: WireBroker
) -> None:
    broker.log("t", 0).log_start_offset = 20
    with pytest.raises(ApiError, match="OFFSET_OUT_OF_RANGE"):
        runs(fetcher(client, broker), 0, 50)


def test_a_topic_that_was_created_again_is_not_taken_for_the_old_one(
    client: WireClient, broker: WireBroker
) -> None:
    with pytest.raises(TopicReplaced, match="deleted and created again"):
        runs(fetcher(client, broker, topic_id=b"an older topic.."), 0, 50)
    broker.logs.clear()
    with pytest.raises(TopicReplaced, match="does not exist any more"):
        runs(fetcher(client, broker), 0, 50)


def test_records_that_never_come(client: WireClient, broker: WireBroker) -> None:
    with pytest.raises(NoProgress, match="t-0 returned no records at offset 50 for 20 ms"):
        runs(fetcher(client, broker, stall_timeout_ms=20), 50, 51)


def test_records_that_come_late(client: WireClient, broker: WireBroker) -> None:
    def append(_: float) -> None:
        broker.log("t", 0).append(batch(50, 1))

    assert runs(fetcher(client, broker, sleep=append), 50, 51)[0][:2] == (50, 51)


def test_whole_batches_at_the_front() -> None:
    first, second = batch(0, 3), batch(3, 4)
    assert whole_batches(first + second) == (len(first + second), 7)
    assert whole_batches(first + second[:-1]) == (len(first), 3)
    assert whole_batches(first[:60]) == (0, -1)
    assert whole_batches(b"") == (0, -1)


def test_batches_that_cannot_be_followed() -> None:
    good = bytearray(batch(0, 3))
    old = good.copy()
    old[16] = 1
    with pytest.raises(CorruptRecords, match="message format 1"):
        whole_batches(old)
    good[8:12] = (10).to_bytes(4, "big")
    with pytest.raises(CorruptRecords, match="length of 10"):
        whole_batches(good)
