"""Producer ids from the controller's blocks."""

import asyncio
from typing import Any

from spindle.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from spindle.serving.producer_ids import ProducerIds


class SlowController:
    """Allocates blocks of two producer ids, when both requests for one are under way."""

    def __init__(self) -> None:
        self.asked = 0
        self.both = asyncio.Event()

    async def request(self, *_: Any) -> AllocateProducerIdsResponse:
        self.asked += 1
        start = 2 * self.asked
        if self.asked == 2:
            self.both.set()
        await self.both.wait()
        return AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=2)


def test_a_block_that_comes_at_once_with_another_replaces_nothing() -> None:
    async def taken() -> list[int]:
        ids = ProducerIds(1, SlowController())  # type: ignore[arg-type]
        both = await asyncio.gather(ids.take(), ids.take())
        return [*both, ids.take_now(), ids.take_now()]

    assert sorted(asyncio.run(taken())) == [2, 3, 4, 5]
