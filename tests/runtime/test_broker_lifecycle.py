"""A broker's session at the controller, with a controller in the hands of the test."""

import asyncio
from random import Random
from typing import Any

from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.broker_registration import BrokerRegistrationResponse
from spindle.runtime.broker.lifecycle import BrokerIdentity, BrokerLifecycle, LifecycleTimes

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
