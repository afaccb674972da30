"""A broker's session at the controller, with a controller in the hands of the test."""

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any

import pytest
from waiting import until

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.metadata.cluster import BrokerRegistration
from spindle.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from spindle.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from spindle.runtime.broker.lifecycle import (
    BrokerIdentity,
    BrokerLifecycle,
    BrokerState,
    LifecycleTimes,
)
from verification.simulation.loop import SimulatedLoop

LIMIT_S = 60


Answer = BrokerHeartbeatResponse | ApiError | object


class Controller:
    """Accepts the registration and answers heartbeats with what the test gives it."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.heartbeats: list[BrokerHeartbeatRequest] = []
        self.registrations: list[BrokerRegistrationRequest] = []

    async def request(self, message: Any, context: Any = None) -> Any:
        if isinstance(message, BrokerRegistrationRequest):
            self.registrations.append(message)
            return BrokerRegistrationResponse(broker_epoch=7)
        self.heartbeats.append(message)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer


RUNNING = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)
A, B = b"a" * 16, b"b" * 16


class Broker:
    """The lifecycle of a broker with the directories A and B.

    Attributes:
        faults: why the lifecycle wants the node to end.
    """

    def __init__(self, controller: Controller, *, failure_timeout_ms: int = 60_000) -> None:
        self.faults: list[str] = []
        self.online = [A, B]
        self.is_faulty = asyncio.Event()
        self.lifecycle = BrokerLifecycle(
            BrokerIdentity(1, "c", b"i" * 16, tuple, {}, None, lambda: self.online, -1),
            LifecycleTimes(1, 1000, 1000, failure_timeout_ms),
            controller,
            lambda: 0,
            lambda epoch: None,
            self._fail,
            Random(1),
        )

    def _fail(self, reason: str) -> None:
        self.faults.append(reason)
        self.is_faulty.set()

    async def run(self) -> "Broker":
        """Start, and return when the controller has unfenced the broker."""
        self.lifecycle.start()
        self.lifecycle.set_ready()
        await asyncio.wait_for(self.lifecycle.unfenced, LIMIT_S)
        return self

    def lose(self, directory: bytes) -> None:
        self.online.remove(directory)
        self.lifecycle.directory_failed(directory)


def in_virtual_time(scenario: Coroutine[Any, Any, None]) -> None:
    SimulatedLoop().run_until_complete(scenario)


async def test_an_unexpected_answer_to_a_heartbeat_does_not_end_the_session() -> None:
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


async def test_cordoned_directories_are_unknown_until_the_configuration_is() -> None:
    """An empty list instead would uncordon the broker until the next heartbeat."""

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
    assert [items for items in told if items is not None] == [cordoned] * (
        len(told) - told.count(None)
    )


@pytest.mark.parametrize("before_the_stop", [True, False])
async def test_a_stop_does_not_wait_for_a_controller_that_cannot_answer(
    before_the_stop: bool,
) -> None:
    """Apache Kafka hangs in its controlled shutdown without a quorum."""

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


async def test_the_stop_of_an_unregistered_broker_waits_for_nobody() -> None:
    controller = TalkingController(HEALTHY)
    lifecycle = lifecycle_at(controller, session_timeout_ms=86_400_000)
    lifecycle.start()
    lifecycle.set_ready()
    await asyncio.wait_for(lifecycle.unfenced, LIMIT_S)
    controller.answer = ApiError(ErrorCode.STALE_BROKER_EPOCH)
    assert not await asyncio.wait_for(lifecycle.controlled_shutdown(86_400), LIMIT_S)
    assert lifecycle.state is BrokerState.PENDING_CONTROLLED_SHUTDOWN
    await lifecycle.stop()


def test_a_dead_directory_is_in_every_heartbeat_until_the_end() -> None:
    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller).run()
        assert controller.registrations[0].log_dirs == [A, B]
        broker.lose(B)
        sent = len(controller.heartbeats)
        await until(lambda: len(controller.heartbeats) > sent + 3, pause_s=0.001)
        assert {tuple(one.offline_log_dirs) for one in controller.heartbeats[sent + 1 :]} == {(B,)}
        await broker.lifecycle.stop()
        assert broker.faults == []

    in_virtual_time(run())


def test_a_failure_that_no_controller_acknowledges_in_time_ends_the_broker() -> None:
    """log.dir.failure.timeout.ms; an answer with an error acknowledges nothing."""

    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller, failure_timeout_ms=20).run()
        controller.answers = [BrokerHeartbeatResponse(error_code=ErrorCode.NOT_CONTROLLER)]
        broker.lose(A)
        await asyncio.wait_for(broker.is_faulty.wait(), LIMIT_S)
        assert "log.dir.failure.timeout.ms=20" in broker.faults[0]
        assert any(one.offline_log_dirs == [A] for one in controller.heartbeats)
        await broker.lifecycle.stop()

    in_virtual_time(run())


def test_a_failure_that_is_acknowledged_after_refusals_does_not_end_the_broker() -> None:
    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller, failure_timeout_ms=2_000).run()
        refusal = ApiError(ErrorCode.REQUEST_TIMED_OUT)
        controller.answers = [refusal, RUNNING]
        broker.lose(A)
        await until(lambda: len(controller.answers) == 1, pause_s=0.001)
        await asyncio.sleep(2.1)
        assert broker.faults == []
        await broker.lifecycle.stop()

    in_virtual_time(run())


def test_a_stopped_broker_does_not_end_a_second_time() -> None:
    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller, failure_timeout_ms=20).run()
        controller.answers = [ApiError(ErrorCode.REQUEST_TIMED_OUT)]
        broker.lose(A)
        await broker.lifecycle.stop()
        await asyncio.sleep(0.05)
        assert broker.faults == []

    in_virtual_time(run())


def test_a_broker_that_a_fault_ends_asks_to_be_fenced_at_once() -> None:
    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller).run()
        controller.answers = [
            BrokerHeartbeatResponse(is_caught_up=True, is_fenced=True, should_shut_down=True)
        ]
        assert await broker.lifecycle.leave_at_once(LIMIT_S)
        last = controller.heartbeats[-1]
        assert (last.want_fence, last.want_shut_down) == (True, True)
        await broker.lifecycle.stop()

    in_virtual_time(run())


def test_a_renewed_registration_keeps_a_directory_whose_failure_is_not_known_yet() -> None:
    """Without it the controller would not look at the partitions in that directory."""

    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller).run()
        broker.lose(B)
        broker.lifecycle.register_again()
        await until(lambda: len(controller.registrations) == 2, pause_s=0.001)
        assert controller.registrations[1].log_dirs == [A, B]
        assert controller.registrations[1].incarnation_id == b"i" * 16
        sent = len(controller.heartbeats)
        await until(lambda: len(controller.heartbeats) > sent, pause_s=0.001)
        assert controller.heartbeats[sent].offline_log_dirs == [B]
        broker.lifecycle.register_again()
        await until(lambda: len(controller.registrations) == 3, pause_s=0.001)
        assert controller.registrations[2].log_dirs == [A]
        await broker.lifecycle.stop()

    in_virtual_time(run())


def test_a_directory_that_comes_back_is_registered_and_reported_as_offline_no_more() -> None:
    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller, failure_timeout_ms=5_000).run()
        broker.lose(B)
        sent = len(controller.heartbeats)
        await until(lambda: len(controller.heartbeats) > sent, pause_s=0.001)
        broker.online.append(B)
        broker.lifecycle.register_again(B)
        await until(lambda: len(controller.registrations) == 2, pause_s=0.001)
        assert controller.registrations[1].log_dirs == [A, B]
        sent = len(controller.heartbeats)
        await until(lambda: len(controller.heartbeats) > sent + 2, pause_s=0.001)
        assert all(not heartbeat.offline_log_dirs for heartbeat in controller.heartbeats[sent:])
        await asyncio.sleep(10)
        assert broker.faults == []
        await broker.lifecycle.stop()

    in_virtual_time(run())


def test_a_directory_that_a_late_heartbeat_took_out_is_registered_again() -> None:
    async def run() -> None:
        controller = Controller(RUNNING)
        broker = await Broker(controller).run()
        own = BrokerRegistration(
            1, 7, b"i" * 16, (), {}, None, False, False, directories=(A,), cordoned_directories=None
        )
        broker.lifecycle.registration_changed(replace(own, incarnation_id=b"other" + bytes(11)))
        broker.lifecycle.registration_changed(replace(own, directories=(A, B)))
        sent = len(controller.heartbeats)
        await until(lambda: len(controller.heartbeats) > sent + 2, pause_s=0.001)
        assert len(controller.registrations) == 1
        broker.lifecycle.registration_changed(own)
        await until(lambda: len(controller.registrations) == 2, pause_s=0.001)
        assert controller.registrations[1].log_dirs == [A, B]
        await broker.lifecycle.stop()

    in_virtual_time(run())


def test_a_killed_broker_registers_soon_after_its_old_session_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With pauses that double, as in Kafka, the attempt after the 9 s came at 12.7 s."""

    class Remembering(Controller):
        async def request(self, message: Any, context: Any = None) -> Any:
            if isinstance(message, BrokerRegistrationRequest) and loop.time() < session_end_s:
                raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
            return await super().request(message)

    async def run() -> None:
        lifecycle = BrokerLifecycle(
            BrokerIdentity(1, "c", b"i" * 16, tuple, {}, None, tuple, -1),
            LifecycleTimes(2000, 9000, 60_000, 60_000),
            Remembering(RUNNING),
            lambda: 0,
            lambda epoch: None,
            lambda reason: None,
            Random(1),
        )
        lifecycle.start()
        await asyncio.wait_for(lifecycle.caught_up, LIMIT_S)
        assert loop.time() - session_end_s < 0.6
        await lifecycle.stop()

    loop = SimulatedLoop()
    session_end_s = loop.time() + 9
    root = logging.getLogger("spindle")
    root.addHandler(caplog.handler)
    caplog.set_level(logging.INFO, "spindle.runtime.broker.lifecycle")
    try:
        loop.run_until_complete(run())
    finally:
        root.removeHandler(caplog.handler)
    assert list(dict.fromkeys(record.getMessage() for record in caplog.records)) == [
        "the controller still has a session of an earlier process of broker 1; this process "
        "registers when that session has ended, after at most broker.session.timeout.ms=9000",
        "registered broker 1, epoch 7",
    ]
