"""A connection against a scripted peer: its requests, its answers and its refusals."""

from struct import Struct

import pytest

from spindle.client.connection import (
    ClientConnection,
    ExpectedBroker,
    Negotiated,
    ReceivedAnswer,
    SendAgain,
)
from spindle.client.errors import ClientError, UnsupportedByPeer
from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse

HEADER = Struct(">ihhih")


def split(parts: list[Bytes]) -> tuple[int, int, int, str, bytes]:
    """Return API key, version, correlation id, client id and body of a request."""
    data = b"".join(parts)
    size, key, version, correlation_id, length = HEADER.unpack_from(data)
    assert size == len(data) - 4
    end = HEADER.size + length
    return key, version, correlation_id, data[HEADER.size : end].decode(), data[end:]


def answer(correlation_id: int, response: Message, version: int, *, flexible: bool) -> memoryview:
    tags = b"\x00" if flexible else b""
    return memoryview(correlation_id.to_bytes(4, "big") + tags + encode(response, version))


def table(**ranges: tuple[int, int]) -> ApiVersionsResponse:
    keys = {"metadata": 3, "api_versions": 18, "produce": 0}
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=keys[name], min_version=low, max_version=high)
            for name, (low, high) in ranges.items()
        ]
    )


def negotiated(**ranges: tuple[int, int]) -> ClientConnection:
    connection = ClientConnection("tester")
    connection.opening()
    event = connection.receive_frame(answer(0, table(**ranges), 4, flexible=False))
    assert isinstance(event, Negotiated)
    return connection


def test_the_opening_names_the_software() -> None:
    connection = ClientConnection("tester", software_name="probe", software_version="1.2")
    key, version, correlation_id, client_id, body = split(connection.opening())
    assert (key, version, correlation_id, client_id) == (18, 5, 0, "tester")
    assert body[0] == 0  # no tagged fields in the header
    request, _ = decode(ApiVersionsRequest, 5, body, 1)
    assert request == ApiVersionsRequest(
        client_software_name="probe", client_software_version="1.2"
    )


def test_an_old_broker_is_asked_again_in_its_own_version() -> None:
    connection = ClientConnection("tester")
    connection.opening()
    refusal = table(api_versions=(0, 2))
    refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
    event = connection.receive_frame(answer(0, refusal, 0, flexible=False))
    assert isinstance(event, SendAgain)
    key, version, correlation_id, _, body = split(event.parts)
    assert (key, version, correlation_id, body) == (18, 2, 1, b"")
    done = connection.receive_frame(answer(1, table(metadata=(0, 5)), 2, flexible=False))
    assert isinstance(done, Negotiated)


def test_a_refusal_without_a_range_falls_back_to_version_0() -> None:
    connection = ClientConnection("tester")
    connection.opening()
    refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    event = connection.receive_frame(answer(0, refusal, 0, flexible=False))
    assert isinstance(event, SendAgain)
    assert split(event.parts)[1] == 0


def test_a_broker_that_refuses_the_version_it_asked_for() -> None:
    connection = ClientConnection("tester")
    connection.opening()
    refusal = table(api_versions=(0, 5))
    refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
    with pytest.raises(UnsupportedByPeer):
        connection.receive_frame(answer(0, refusal, 0, flexible=False))


def test_a_broker_that_refuses_api_versions_fails_the_connection() -> None:
    connection = ClientConnection("tester")
    connection.opening()
    refusal = ApiVersionsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED"):
        connection.receive_frame(answer(0, refusal, 4, flexible=False))


def test_nothing_is_sent_before_versions_are_agreed_on() -> None:
    connection = ClientConnection("tester")
    with pytest.raises(ClientError, match="not agreed"):
        connection.request(MetadataRequest(), MetadataResponse)


@pytest.mark.parametrize(("last", "flexible"), [(13, True), (8, False)])
def test_requests_are_answered_in_order(last: int, flexible: bool) -> None:
    connection = negotiated(metadata=(0, last))
    ids = []
    for name in ("a", "b"):
        topic = MetadataRequest.MetadataRequestTopic(name=name)
        correlation_id, parts = connection.request(
            MetadataRequest(topics=[topic]), MetadataResponse
        )
        key, version, sent_id, _, body = split(parts)
        assert (key, version, sent_id) == (3, last, correlation_id)
        request, end = decode(MetadataRequest, version, body, int(flexible))
        assert request.topics == [topic]
        assert end == len(body)
        ids.append(correlation_id)
    assert connection.in_flight == 2
    for correlation_id in ids:
        response = MetadataResponse(cluster_id=f"c{correlation_id}")
        frame = answer(correlation_id, response, last, flexible=flexible)
        assert connection.receive_frame(frame) == ReceivedAnswer(correlation_id, response)
    assert connection.in_flight == 0


def test_tagged_fields_in_an_answer_header_are_skipped() -> None:
    connection = negotiated(metadata=(13, 13))
    correlation_id, _ = connection.request(MetadataRequest(), MetadataResponse)
    body = encode(MetadataResponse(controller_id=5), 13)
    tags = b"\x01\x07\x03abc"
    frame = memoryview(correlation_id.to_bytes(4, "big") + tags + body)
    event = connection.receive_frame(frame)
    assert isinstance(event, ReceivedAnswer)
    assert event.response == MetadataResponse(controller_id=5)


@pytest.mark.parametrize("tail", [b"", b"\x01\x07\x7f", b"\xff\xff\xff\xff\xff\xff"])
def test_a_header_that_does_not_fit_its_frame(tail: bytes) -> None:
    connection = negotiated(metadata=(13, 13))
    correlation_id, _ = connection.request(MetadataRequest(), MetadataResponse)
    with pytest.raises(ProtocolViolation):
        connection.receive_frame(memoryview(correlation_id.to_bytes(4, "big") + tail))


def test_an_answer_to_another_request_is_refused() -> None:
    connection = negotiated(metadata=(8, 8))
    connection.request(MetadataRequest(), MetadataResponse)
    with pytest.raises(ProtocolViolation, match=r"answered request 77 instead of request 1"):
        connection.receive_frame(answer(77, MetadataResponse(), 8, flexible=False))


def test_an_answer_to_nothing_is_refused() -> None:
    connection = negotiated(metadata=(8, 8))
    with pytest.raises(ProtocolViolation, match="no request"):
        connection.receive_frame(answer(1, MetadataResponse(), 8, flexible=False))


def test_a_limit_on_open_requests() -> None:
    connection = ClientConnection("tester", max_in_flight=1)
    connection.opening()
    connection.receive_frame(answer(0, table(metadata=(8, 8)), 4, flexible=False))
    connection.request(MetadataRequest(), MetadataResponse)
    with pytest.raises(ClientError, match="1 requests are open"):
        connection.request(MetadataRequest(), MetadataResponse)


def test_large_record_sets_are_sent_by_reference() -> None:
    connection = negotiated(produce=(3, 9))
    records = bytes(100_000)
    data = ProduceRequest.TopicProduceData.PartitionProduceData(records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    _, parts = connection.request(ProduceRequest(topic_data=[topic]), ProduceResponse)
    assert any(part is records for part in parts)
    assert split(parts)[:2] == (0, 9)


def test_a_request_without_answer_leaves_nothing_open() -> None:
    connection = negotiated(produce=(3, 9))
    parts = connection.request_without_answer(ProduceRequest(acks=0))
    assert split(parts)[2] == 1
    assert connection.in_flight == 0


def test_the_expected_broker_is_named_from_version_5_on() -> None:
    connection = ClientConnection("tester", expected=ExpectedBroker("ours", 3))
    request, _ = decode(ApiVersionsRequest, 5, split(connection.opening())[4], 1)
    assert (request.cluster_id, request.node_id) == ("ours", 3)
    refusal = table(api_versions=(0, 4))
    refusal.error_code = ErrorCode.UNSUPPORTED_VERSION
    again = connection.receive_frame(answer(0, refusal, 0, flexible=False))
    assert isinstance(again, SendAgain)
    _, version, _, _, body = split(again.parts)
    assert version == 4
    request, _ = decode(ApiVersionsRequest, 4, body, 1)
    assert (request.cluster_id, request.node_id) == (None, -1)


def test_a_peer_that_is_another_broker_is_refused_with_the_expected_one() -> None:
    connection = ClientConnection("tester", expected=ExpectedBroker("ours", 3))
    connection.opening()
    refusal = ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
    with pytest.raises(ApiError, match="this is not broker 3 of cluster ours") as raised:
        connection.receive_frame(answer(0, refusal, 5, flexible=False))
    assert raised.value.code is ErrorCode.REBOOTSTRAP_REQUIRED


def test_apis_and_tags_of_an_unknown_release_are_passed_over() -> None:
    connection = ClientConnection("tester")
    connection.opening()
    rows = table(metadata=(0, 32767), api_versions=(0, 99))
    rows.api_keys.append(ApiVersionsResponse.ApiVersion(api_key=999, min_version=3, max_version=9))
    body = encode(rows, 5)
    assert body[-1] == 0  # the count of tagged fields
    tagged = body[:-1] + b"\x01" + b"\x63\x03abc"
    assert isinstance(connection.receive_frame(memoryview(bytes(4) + tagged)), Negotiated)
    assert connection.versions.pick(MetadataRequest) == MetadataRequest.LAST_VERSION
    assert connection.versions.served(999) == (3, 9)


def test_a_peer_that_knows_later_versions_only_is_refused_by_their_range() -> None:
    connection = negotiated(metadata=(40, 41))
    limit = MetadataRequest.LAST_VERSION
    with pytest.raises(
        UnsupportedByPeer,
        match=f"serves Metadata in versions 40 to 41, this request needs 0 to {limit}",
    ):
        connection.request(MetadataRequest(), MetadataResponse)
