"""Tells the controller in which directories this broker's replicas really are (KIP-858)."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from spindle.broker.assignments import Assignments
from spindle.broker.ports import ControllerChannel
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from spindle.runtime.backoff import Backoff

log = logging.getLogger(__name__)

_INITIAL_RETRY_MS: Final = 100
_MAX_RETRY_MS: Final = 10_000


class AssignmentSender:
    """One request at a time; what gathers meanwhile goes into the next."""

    def __init__(
        self,
        assignments: Assignments,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        is_current: Callable[[Uuid, int], bool],
        random: Random,
    ) -> None:
        self._assignments = assignments
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._is_current = is_current
        self._backoff = Backoff(_INITIAL_RETRY_MS, _MAX_RETRY_MS, random.random)
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="directory assignments")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def add(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> None:
        self._assignments.add(topic_id, partition, directory_id)
        self._wake.set()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._assignments.has_ready:
                await self._send()

    async def _send(self) -> None:
        request = self._assignments.next_request(self._broker_epoch(), self._is_current)
        if request is None:
            return
        try:
            response: AssignReplicasToDirsResponse = await self._channel.request(request)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except ApiError as error:
            log.info("assigning replicas to directories failed: %s", error)
            self._assignments.failed()
            await asyncio.sleep(self._backoff.next_ms() / 1000)
            return
        self._assignments.answered(response)
        if self._assignments.has_ready:
            await asyncio.sleep(self._backoff.next_ms() / 1000)
        else:
            self._backoff.reset()
