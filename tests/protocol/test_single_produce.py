"""Produce with one partition is read and answered as the general codec does it."""

import random
from typing import Any

import pytest

from spindle.common.errors import ProtocolViolation
from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Message
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.requests import read_request
from spindle.protocol.single_produce import read_single_produce, write_single_produced

Topic = ProduceRequest.TopicProduceData
Partition = Topic.PartitionProduceData
Answer = ProduceResponse.TopicProduceResponse
PartitionAnswer = Answer.PartitionProduceResponse
VERSIONS = range(ProduceRequest.FIRST_VERSION, ProduceRequest.LAST_VERSION + 1)
NAMES = ("", "t", "orders", "ä€", "n" * 126, "n" * 127, "n" * 249)


def values_of(message: Any) -> Any:
    if isinstance(message, Message):
        return {field.name: values_of(getattr(message, field.name)) for field in message.FIELDS}
    if isinstance(message, list):
        return [values_of(part) for part in message]
    return bytes(message) if isinstance(message, memoryview) else message


def read_by_codec(version: int, data: memoryview) -> Any:
    try:
        return values_of(decode(ProduceRequest, version, data)[0])
    except ProtocolViolation as violation:
        return str(violation)


def read_by_api(version: int, data: memoryview) -> Any:
    try:
        return values_of(read_request(0, version, data, 0, 10_000))
    except ProtocolViolation as violation:
        return str(violation)


def random_request(rng: random.Random) -> ProduceRequest:
    def topic() -> Topic:
        sizes = (0, 1, 90, 126, 127, 128, 5000, 20_000)
        return Topic(
            name=rng.choice(NAMES),
            topic_id=rng.randbytes(16),
            partition_data=[
                Partition(
                    index=rng.randrange(-2, 5),
                    records=rng.choice((None, rng.randbytes(rng.choice(sizes)))),
                )
                for _ in range(rng.choice((1, 1, 1, 0, 2)))
            ],
        )

    return ProduceRequest(
        transactional_id=rng.choice((None, None, None, "", "id")),
        acks=rng.choice((-1, 0, 1, 7)),
        timeout_ms=rng.choice((0, -1, 30_000, 2**31 - 1)),
        topic_data=[topic() for _ in range(rng.choice((1, 1, 1, 0, 2)))],
    )


def damaged(rng: random.Random, data: bytearray) -> bytearray:
    """Change bytes, most often those of the fields before the records; cut, or add some."""
    for _ in range(rng.randrange(1, 4)):
        match rng.randrange(4):
            case 0:
                del data[rng.randrange(len(data) + 1) :]
            case 1:
                data += rng.randbytes(rng.randrange(1, 5))
            case 2 if data:
                data[-rng.randrange(1, min(len(data), 5) + 1)] = rng.randrange(256)
            case _ if data:
                data[rng.randrange(min(len(data), 40))] = rng.choice((0, 1, 2, 3, 127, 128, 255))
    return data


@pytest.mark.parametrize("version", VERSIONS)
def test_random_requests_are_read_as_by_the_codec(version: int) -> None:
    rng = random.Random(version)
    for _ in range(600):
        data = memoryview(bytearray(encode(random_request(rng), version)))
        assert read_by_api(version, data) == read_by_codec(version, data)


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_are_read_or_refused_as_by_the_codec(version: int) -> None:
    rng = random.Random(1000 + version)
    for _ in range(2000):
        data = memoryview(damaged(rng, bytearray(encode(random_request(rng), version))))
        assert read_by_api(version, data) == read_by_codec(version, data), bytes(data[:60])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_short_way_takes_the_common_request_of_flexible_versions(version: int) -> None:
    records = bytes(1024)
    request = ProduceRequest(
        acks=1,
        timeout_ms=30_000,
        topic_data=[Topic(name="t", partition_data=[Partition(index=3, records=records)])],
    )
    data = memoryview(bytearray(b"head" + encode(request, version)))
    single = read_single_produce(version, data, 4)
    assert (single is not None) == (version >= ProduceRequest.FLEXIBLE_FROM)
    if single is not None:
        taken = single.topic_data[0].partition_data[0].records
        assert isinstance(taken, memoryview)
        assert taken.obj is data.obj, "the records are no copy"


def random_response(rng: random.Random) -> ProduceResponse:
    def part() -> PartitionAnswer:
        answer = PartitionAnswer(
            index=rng.randrange(5),
            base_offset=rng.choice((-1, 0, 2**40)),
            log_append_time_ms=rng.choice((-1, 1_700_000_000_000)),
            log_start_offset=rng.choice((-1, 0, 17)),
        )
        match rng.randrange(10):
            case 0:
                answer.error_code = 6
            case 1:
                answer.error_message = rng.choice(("", "no"))
            case 2:
                answer.current_leader = PartitionAnswer.LeaderIdAndEpoch(
                    leader_id=rng.choice((-1, 1)), leader_epoch=rng.choice((-1, 0))
                )
            case 3:
                answer.record_errors = [PartitionAnswer.BatchIndexAndErrorMessage(batch_index=1)]
        return answer

    response = ProduceResponse(
        throttle_time_ms=rng.choice((0, 0, 250)),
        responses=[
            Answer(
                name=rng.choice(NAMES),
                topic_id=rng.randbytes(16),
                partition_responses=[part() for _ in range(rng.choice((1, 1, 1, 0, 2)))],
            )
            for _ in range(rng.choice((1, 1, 1, 0, 2)))
        ],
    )
    if rng.randrange(10) == 0:
        response.node_endpoints = [ProduceResponse.NodeEndpoint(node_id=1, host="h", port=9092)]
    return response


@pytest.mark.parametrize("version", VERSIONS)
def test_random_answers_are_written_as_by_the_codec(version: int) -> None:
    rng = random.Random(version)
    taken = 0
    for _ in range(600):
        response = random_response(rng)
        out = bytearray(b"head")
        if write_single_produced(response, version, out):
            taken += 1
            assert out == encode(response, version, b"head")
        else:
            assert out == b"head"
    assert (taken > 50) == (version >= ProduceResponse.FLEXIBLE_FROM)
