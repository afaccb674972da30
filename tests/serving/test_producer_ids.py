"""Producer ids from the controller's blocks."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from spindle.serving.producer_ids import ProducerIds


class SlowController:
    """Allocates blocks of two producer ids, or refuses, each time when `answer` is released."""

    def __init__(self) -> None:
        self.asked = 0
        self.answer = asyncio.Semaphore(0)
        self.is_down = False

    async def request(self, *_: Any) -> AllocateProducerIdsResponse:
        self.asked += 1
        start = 2 * self.asked
        await self.answer.acquire()
        if self.is_down:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=2)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def producer_ids() -> AsyncIterator[tuple[ProducerIds, SlowController]]:
    controller = SlowController()
    ids = ProducerIds(1, controller, asyncio.get_running_loop())
    yield ids, controller


async def test_one_block_at_a_time_is_asked_for() -> None:
    async with producer_ids() as (ids, controller):
        taking = [asyncio.ensure_future(ids.take()) for _ in range(5)]
        for asked in (1, 2, 3):
            await settle()
            assert controller.asked == asked
            controller.answer.release()
        assert sorted(await asyncio.gather(*taking)) == [2, 3, 4, 5, 6]
        assert ids.take_now() == 7
        assert controller.asked == 3


async def test_a_refusal_reaches_all_who_wait() -> None:
    async with producer_ids() as (ids, controller):
        controller.is_down = True
        taking = [asyncio.ensure_future(ids.take()) for _ in range(3)]
        await settle()
        controller.answer.release()
        for task in taking:
            with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS: NOT_CONTROLLER"):
                await task
        assert controller.asked == 1


async def test_another_asks_when_the_first_is_cancelled() -> None:
    async with producer_ids() as (ids, controller):
        taking = [asyncio.ensure_future(ids.take()) for _ in range(3)]
        await settle()
        taking[0].cancel()
        taking[1].cancel()
        await settle()
        assert controller.asked == 2
        controller.answer.release()
        assert await taking[2] == 4
