"""Tells the controller which in-sync replicas the leaders of this broker propose (KIP-497)."""

import asyncio
import logging
from collections.abc import Callable
from random import Random
from typing import Final

from spindle.broker.isr_changes import IsrChanges
from spindle.broker.partition import Partition
from spindle.broker.ports import ControllerChannel
from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.alter_partition import AlterPartitionResponse
from spindle.replication.leader_state import IsrProposal
from spindle.runtime.backoff import Backoff

log = logging.getLogger(__name__)

_RETRY_MS: Final = 50
_MAX_RETRY_MS: Final = 1_000


class IsrSender:
    """One request at a time, and the look at who has fallen behind every half `max_lag_ms`."""

    def __init__(
        self,
        changes: IsrChanges,
        channel: ControllerChannel,
        broker_epoch: Callable[[], int],
        check_isrs: Callable[[], None],
        max_lag_ms: int,
        random: Random,
    ) -> None:
        self._changes = changes
        self._channel = channel
        self._broker_epoch = broker_epoch
        self._check_isrs = check_isrs
        self._period_s = max(max_lag_ms / 2000, 0.001)
        self._backoff = Backoff(_RETRY_MS, _MAX_RETRY_MS, random.random)
        self._wake = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._tasks = [
            asyncio.create_task(self._run(), name="ISR changes"),
            asyncio.create_task(self._watch(), name="ISR expiration"),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, partition: Partition, proposal: IsrProposal) -> None:
        self._changes.add(partition, proposal)
        self._wake.set()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._period_s)
            self._check_isrs()

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._changes.has_ready:
                await self._send()

    async def _send(self) -> None:
        request = self._changes.next_request(self._broker_epoch())
        if request is None:
            return
        try:
            response: AlterPartitionResponse = await self._channel.request(request)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except ApiError as error:
            log.info("changing in-sync replicas failed: %s", error)
            self._changes.failed()
            await asyncio.sleep(self._backoff.next_ms() / 1000)
            return
        has_failed = any(p.error_code for t in response.topics for p in t.partitions)
        self._changes.answered(response)
        if has_failed:
            # What is proposed again at once would meet the same state of the controller.
            await asyncio.sleep(self._backoff.next_ms() / 1000)
        else:
            self._backoff.reset()
