"""A broker's session at the controller, with a controller in the hands of the test."""

import asyncio
from random import Random
from typing import Any

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.broker_registration import BrokerRegistrationResponse
from spindle.runtime.broker.lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    LifecycleTimes,
)

LIMIT_S = 60


class Controller:
    """Accepts the registration and answers heartbeats with what the test gives it."""

    def __init__(self, *answers: object) -> None:
        self.answers = list(answers)

    async def request(self, message: Any, context: Any = None) -> Any:
        if not isinstance(message, BrokerHeartbeatRequest):
            return BrokerRegistrationResponse(broker_epoch=7)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def test_an_unexpected_answer_to_a_heartbeat_does_not_end_the_session() -> None:
    async def run() -> None:
        mistakes: list[str] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: mistakes.append(context["message"]))
        controller = Controller(object(), BrokerHeartbeatResponse(is_caught_up=True))
        lifecycle = BrokerLifecycle(
            BrokerIdentity(1, "c", b"i" * 16, tuple, {}, None, tuple, -1),
            LifecycleTimes(1, 1000, 1000, 1000),
            controller,
            lambda: 0,
            lambda epoch: None,
            mistakes.append,
            Random(1),
        )
        lifecycle.start()
        await asyncio.wait_for(lifecycle.caught_up, LIMIT_S)
        await lifecycle.stop()
        assert lifecycle.broker_epoch == 7
        assert mistakes == ["broker lifecycle: unexpected failure"]

    asyncio.run(run())


HEALTHY = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)


class TalkingController:
    """Keeps the heartbeats and answers each with `answer`, which may be an error."""

    def __init__(self, answer: BrokerHeartbeatResponse | ApiError) -> None:
        self.answer = answer
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.asked = asyncio.Event()

    async def request(self, message: Any, context: Any = None) -> Any:
        if not isinstance(message, BrokerHeartbeatRequest):
            return BrokerRegistrationResponse(broker_epoch=7)
        self.heartbeats.append(message)
        self.asked.set()
        if isinstance(self.answer, ApiError):
            raise self.answer
        return self.answer

    async def next_heartbeat(self) -> BrokerHeartbeatRequest:
        self.asked.clear()
        await asyncio.wait_for(self.asked.wait(), LIMIT_S)
        return self.heartbeats[-1]


def lifecycle_at(controller: TalkingController, *, session_timeout_ms: int) -> BrokerLifecycle:
    return BrokerLifecycle(
        BrokerIdentity(1, "c", b"i" * 16, tuple, {}, None, tuple, -1),
        LifecycleTimes(1, session_timeout_ms, 1000, 1000),
        controller,
        lambda: 0,
        lambda epoch: None,
        lambda reason: None,
        Random(1),
    )


def test_cordoned_directories_are_unknown_until_the_configuration_is() -> None:
    """An empty list instead would uncordon the broker until the next heartbeat."""

    async def run() -> None:
        controller = TalkingController(HEALTHY)
        lifecycle = lifecycle_at(controller, session_timeout_ms=9000)
        cordoned: list[Uuid] = [bytes(16), bytes([1] * 16)]
        lifecycle.start()
        await asyncio.wait_for(lifecycle.caught_up, LIMIT_S)
        await controller.next_heartbeat()
        lifecycle.set_cordoned(cordoned)
        while (await controller.next_heartbeat()).cordoned_log_dirs is None:
            pass
        await lifecycle.stop()
        told = [h.cordoned_log_dirs for h in controller.heartbeats]
        assert told[:2] == [None, None]
        assert [each for each in told if each is not None] == [cordoned] * (
            len(told) - told.count(None)
        )

    asyncio.run(run())


@pytest.mark.parametrize("before_the_stop", [True, False])
def test_a_stop_does_not_wait_for_a_controller_that_cannot_answer(before_the_stop: bool) -> None:
    """Apache Kafka hangs in its controlled shutdown without a quorum."""

    async def run() -> None:
        controller = TalkingController(HEALTHY)
        lifecycle = lifecycle_at(controller, session_timeout_ms=30)
        lifecycle.start()
        lifecycle.set_ready()
        await asyncio.wait_for(lifecycle.unfenced, LIMIT_S)
        controller.answer = ApiError(ErrorCode.NOT_CONTROLLER)
        if before_the_stop:
            lost_s = asyncio.get_running_loop().time()
            while asyncio.get_running_loop().time() - lost_s < 0.05:
                await controller.next_heartbeat()
        assert not await lifecycle.controlled_shutdown(LIMIT_S)
        await lifecycle.stop()

    asyncio.run(run())


def test_the_stop_of_an_unregistered_broker_waits_for_nobody() -> None:
    async def run() -> None:
        controller = TalkingController(HEALTHY)
        lifecycle = lifecycle_at(controller, session_timeout_ms=86_400_000)
        lifecycle.start()
        lifecycle.set_ready()
        await asyncio.wait_for(lifecycle.unfenced, LIMIT_S)
        controller.answer = ApiError(ErrorCode.STALE_BROKER_EPOCH)
        assert not await asyncio.wait_for(lifecycle.controlled_shutdown(86_400), LIMIT_S)
        assert lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
        await lifecycle.stop()

    asyncio.run(run())
