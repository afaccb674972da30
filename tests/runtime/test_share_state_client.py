"""States of share partitions at their coordinators: here, elsewhere, or nowhere for a while."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import SHARE_STATE_TOPIC, Endpoint
from spindle.coordinator.share.delivery import StateBatch
from spindle.coordinator.share.state_records import ShareKey, Snapshot
from spindle.coordinator.share.state_shard import WrittenState
from spindle.protocol.messages.read_share_group_state import ReadShareGroupStateResponse
from spindle.protocol.messages.write_share_group_state import (
    WriteShareGroupStateRequest,
    WriteShareGroupStateResponse,
)
from spindle.runtime.coordinator.share_state_client import ShareStateClient
from spindle.runtime.peers.port import PeerUnavailable

KEY = ShareKey("g", b"t" * 16, 3)
WRITTEN = WrittenState(1, 2, 5, 0, [StateBatch(5, 6, 2, 1)])


class Peers:
    """Brokers that answer with the next of `answers`; an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[Any] = []
        self.open = self.most = 0

    async def request(self, destination: Any, message: Any) -> Any:
        assert destination.id == 2
        self.requests.append(message)
        self.open += 1
        self.most = max(self.most, self.open)
        await asyncio.sleep(0)
        self.open -= 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


class Local:
    """The coordinator on this broker."""

    def __init__(self) -> None:
        self.written: list[tuple[ShareKey, WrittenState]] = []

    async def write(self, key: ShareKey, written: WrittenState) -> None:
        self.written.append((key, written))


def client(
    peers: Peers, leader: int = 2, local: Local | None = None, *, has_topic: bool = True
) -> ShareStateClient:
    partitions = {0: SimpleNamespace(leader=leader)}
    topics = {SHARE_STATE_TOPIC: SimpleNamespace(partitions=partitions)}
    broker = SimpleNamespace(is_fenced=False, endpoint=lambda name: Endpoint(name, "host2", 9092))
    image = SimpleNamespace(
        topics=SimpleNamespace(by_name=topics if has_topic else {}),
        cluster=SimpleNamespace(brokers={2: broker}),
    )

    async def ensure_topic(_: str) -> None:
        raise AssertionError("the topic exists")

    metadata = cast(Any, SimpleNamespace(image=image))
    return ShareStateClient(
        1, cast(Any, local or Local()), metadata, "PLAINTEXT", cast(Any, peers), ensure_topic
    )


def answer(response_class: Any, **result: Any) -> Any:
    (results,) = [f.type for f in response_class.FIELDS if f.name == "results"]
    (partition,) = [f.type for f in results.FIELDS if f.name == "partitions"]
    return response_class(results=[results(partitions=[partition(partition=3, **result)])])


async def test_a_coordinator_on_this_broker_is_called_directly() -> None:
    peers, local = Peers(AssertionError()), Local()
    await client(peers, leader=1, local=local).write(KEY, WRITTEN)
    assert local.written == [(KEY, WRITTEN)]


async def test_another_coordinator_gets_a_request() -> None:
    peers = Peers(answer(WriteShareGroupStateResponse))
    await client(peers).write(KEY, WRITTEN)
    (request,) = peers.requests
    assert isinstance(request, WriteShareGroupStateRequest)
    (part,) = request.topics[0].partitions
    assert (request.group_id, part.partition, part.leader_epoch, part.start_offset) == (
        "g",
        3,
        2,
        5,
    )
    assert (part.state_batches[0].first_offset, part.state_batches[0].delivery_state) == (5, 2)


async def test_without_the_topic_of_the_states_there_are_none() -> None:
    """On fewer brokers than its replication factor it never comes: nobody waits for it."""
    peers = Peers(AssertionError())
    without_topic = client(peers, has_topic=False)
    assert await without_topic.summary(KEY) is None
    await without_topic.delete(KEY)


async def test_a_read_returns_the_state_of_the_other_broker() -> None:
    peers = Peers(answer(ReadShareGroupStateResponse, state_epoch=4, start_offset=9))
    assert await client(peers).read(KEY, 7) == Snapshot(0, 4, 7, 9, -1, 0, 0, ())


@pytest.mark.parametrize(
    "first",
    [
        answer(WriteShareGroupStateResponse, error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        answer(WriteShareGroupStateResponse, error_code=ErrorCode.NOT_COORDINATOR),
        PeerUnavailable("gone"),
    ],
    ids=["loading", "moved", "gone"],
)
async def test_a_write_is_repeated_while_no_coordinator_can_answer(first: Any) -> None:
    peers = Peers(first, answer(WriteShareGroupStateResponse))
    await client(peers).write(KEY, WRITTEN)
    assert len(peers.requests) == 2


@pytest.mark.parametrize(
    ("refusal", "code"),
    [
        (
            answer(WriteShareGroupStateResponse, error_code=ErrorCode.FENCED_STATE_EPOCH),
            ErrorCode.FENCED_STATE_EPOCH,
        ),
        (answer(WriteShareGroupStateResponse, error_code=999), ErrorCode.UNKNOWN_SERVER_ERROR),
        (WriteShareGroupStateResponse(), ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
    ids=["fenced", "unknown code", "no result"],
)
async def test_a_refusal_is_not_repeated(refusal: Any, code: ErrorCode) -> None:
    peers = Peers(refusal)
    with pytest.raises(ApiError) as error:
        await client(peers).write(KEY, WRITTEN)
    assert error.value.code is code
    assert len(peers.requests) == 1


async def test_a_broker_gets_a_limited_number_of_requests_at_a_time() -> None:
    peers = Peers(answer(WriteShareGroupStateResponse))
    store = client(peers)
    await asyncio.gather(*[store.write(KEY, WRITTEN) for _ in range(100)])
    assert len(peers.requests) == 100
    assert peers.most == 16
