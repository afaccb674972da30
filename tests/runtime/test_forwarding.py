"""Envelopes, and the channel that looks for the active controller."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.ids import Endpoint
from spindle.protocol.message import Message
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from spindle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from spindle.raft.ready import Destination, LeaderAndEpoch
from spindle.runtime.controller.channel import ActiveControllerChannel
from spindle.runtime.peers.port import PeerUnavailable
from spindle.serving.context import RequestContext
from spindle.serving.forwarding import open_request, open_response, seal_request, seal_response

REQUEST = CreateTopicsRequest(topics=[CreateTopicsRequest.CreatableTopic(name="t")])
ANSWER = CreateTopicsResponse(
    topics=[CreateTopicsResponse.CreatableTopicResult(name="t", error_code=36)]
)


def client(api_key: int = 19, version: int = 5, address: str = "10.1.2.3") -> RequestContext:
    return RequestContext(api_key, version, 77, "app", address, "PLAINTEXT", "User:alice")


def unlimited(api_key: int) -> int:
    return 1000


@pytest.mark.parametrize("address", ["10.1.2.3", "fe80::1"])
def test_an_envelope_brings_the_request_and_the_answer_across(address: str) -> None:
    context = client(address=address)
    envelope = seal_request(REQUEST, context)
    request, seen = open_request(envelope, lambda key: True, unlimited)
    assert request == REQUEST
    assert (seen.api_version, seen.client_id, seen.correlation_id) == (5, "app", 77)
    assert (seen.client_address, seen.principal) == (address, "User:alice")
    assert open_response(seal_response(ANSWER, seen), REQUEST, context) == ANSWER


def test_a_request_on_behalf_of_another_one_goes_in_its_newest_version() -> None:
    metadata = client(api_key=3, version=12)
    _, seen = open_request(seal_request(REQUEST, metadata), lambda key: True, unlimited)
    assert (seen.api_key, seen.api_version) == (19, CreateTopicsRequest.LAST_VERSION)


def _damaged(**fields: Any) -> EnvelopeRequest:
    envelope = seal_request(REQUEST, client())
    for name, value in fields.items():
        setattr(envelope, name, value)
    return envelope


@pytest.mark.parametrize(
    ("envelope", "code"),
    [
        (_damaged(client_host_address=b"123"), ErrorCode.INVALID_REQUEST),
        (_damaged(request_principal=None), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (_damaged(request_principal=b"\0\7abc"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (_damaged(request_principal=b"\0\0\x50a"), ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (_damaged(request_data=b"\0\x13\x7f\xff" + bytes(8)), ErrorCode.UNSUPPORTED_VERSION),
        (_damaged(request_data=b"\0\x3a\0\0" + bytes(8)), ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_damaged_envelope_is_refused(envelope: EnvelopeRequest, code: ErrorCode) -> None:
    with pytest.raises(ApiError) as refusal:
        open_request(envelope, lambda key: True, unlimited)
    assert refusal.value.code is code


def test_a_request_that_is_cut_off_is_no_request() -> None:
    data = seal_request(REQUEST, client()).request_data
    with pytest.raises(ProtocolViolation):
        open_request(_damaged(request_data=data[:-2]), lambda key: True, unlimited)


def test_an_answer_to_another_request_is_refused() -> None:
    _, seen = open_request(seal_request(REQUEST, client()), lambda key: True, unlimited)
    seen.correlation_id += 1
    with pytest.raises(ProtocolViolation, match="78"):
        open_response(seal_response(ANSWER, seen), REQUEST, client())


class Controllers:
    """Controllers 2 and 3 in other nodes, and the local one, 1; answers by the test's choice."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers: dict[int, list[Any]] = {1: [], 2: [], 3: []}
        self.hangs = asyncio.Event()
        self.local = LocalController(self)

    async def request(self, destination: Destination, message: Message) -> Message:
        return await self.answer(destination.id)

    async def answer(self, node: int) -> Message:
        self.asked.append(node)
        answer = self.answers[node].pop(0)
        if answer == "hang":
            self.hangs.set()
            await asyncio.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        assert isinstance(answer, Message)
        return answer

    def close(self) -> None:
        """Nothing is open."""


class LocalController:
    """Controller 1, in this node."""

    def __init__(self, controllers: Controllers) -> None:
        self._controllers = controllers

    async def request(self, message: Message, context: RequestContext | None = None) -> Message:
        return await self._controllers.answer(1)


def channel(
    controllers: Controllers, timeout_s: float = 5, *, without_quorum: Sequence[Destination] = ()
) -> ActiveControllerChannel:
    return ActiveControllerChannel(
        1,
        controllers.local,
        lambda: Endpoint("CONTROLLER", "host", 9),
        lambda: without_quorum,
        controllers,
        timeout_s,
    )


async def test_a_node_that_has_left_the_quorum_asks_all_controllers_for_the_active_one() -> None:
    """Its own controller led until the disk of the metadata failed."""

    controllers = Controllers()
    refusal = BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)
    controllers.answers[2] = [refusal, PeerUnavailable("down")]
    controllers.answers[3] = [refusal, BrokerHeartbeatResponse(is_caught_up=True)]
    others = [Destination(node, "host", 9) for node in (2, 3)]
    asking = channel(controllers, without_quorum=others)
    asking.on_leader_change(LeaderAndEpoch(1, 1))
    assert (await asking.request(BrokerHeartbeatRequest())).is_caught_up
    assert controllers.asked == [3, 2, 3]


async def test_the_channel_asks_again_until_the_active_controller_answers() -> None:
    controllers = Controllers()
    controllers.answers[2] = [
        PeerUnavailable("down"),
        BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER),
        BrokerHeartbeatResponse(is_caught_up=True),
    ]
    asking = channel(controllers)
    asking.on_leader_change(LeaderAndEpoch(2, 1))
    answer = await asking.request(BrokerHeartbeatRequest())
    assert answer.is_caught_up
    assert controllers.asked == [2, 2, 2]


async def test_a_hanging_controller_is_left_when_another_one_leads() -> None:
    controllers = Controllers()
    controllers.answers[2] = ["hang"]
    controllers.answers[1] = [ApiError(ErrorCode.NOT_CONTROLLER), BrokerHeartbeatResponse()]
    asking = channel(controllers)
    asking.on_leader_change(LeaderAndEpoch(2, 1))
    answer = asyncio.ensure_future(asking.request(BrokerHeartbeatRequest()))
    await controllers.hangs.wait()
    asking.on_leader_change(LeaderAndEpoch(-1, 2))
    asking.on_leader_change(LeaderAndEpoch(1, 2))
    assert await answer == BrokerHeartbeatResponse()
    assert controllers.asked == [2, 1, 1]


async def test_a_refused_envelope_is_sent_to_the_next_controller() -> None:
    controllers = Controllers()
    _, seen = open_request(seal_request(REQUEST, client()), lambda key: True, unlimited)
    controllers.answers[3] = [
        EnvelopeResponse(error_code=ErrorCode.NOT_CONTROLLER),
        seal_response(ANSWER, seen),
    ]
    asking = channel(controllers)
    asking.on_leader_change(LeaderAndEpoch(3, 1))
    assert await asking.request(REQUEST, client()) == ANSWER


async def test_without_a_controller_the_time_is_over_at_last() -> None:
    with pytest.raises(ApiError) as refusal:
        await channel(Controllers(), timeout_s=0.01).request(BrokerHeartbeatRequest())
    assert refusal.value.code is ErrorCode.REQUEST_TIMED_OUT
