"""Producer ids, handed out from blocks that the controller allocates (KIP-730)."""

from collections import deque
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from spindle.serving.ports import ControllerChannel


class NoProducerId(ApiError):
    """This broker has no unused producer id at the moment."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is left")


class ProducerIds:
    """The rest of the blocks that the controller allocated to this broker."""

    def __init__(self, broker_id: int, controller: ControllerChannel) -> None:
        self._broker_epoch = -1
        self._broker_id = broker_id
        self._controller = controller
        self._blocks: deque[range] = deque()

    def begin_epoch(self, broker_epoch: int) -> None:
        """Ask for further blocks in this epoch of the broker."""
        self._broker_epoch = broker_epoch

    async def take(self) -> int:
        """Return a producer id that no other producer of the cluster has.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS while the controller allocates no block; clients
                ask again.
        """
        await self.prepare()
        return self.take_now()

    def take_now(self) -> int:
        """Return a producer id that no other producer of the cluster has.

        Raises:
            NoProducerId: none is left; `prepare` asks for more.
        """
        if not self._blocks:
            raise NoProducerId
        block = self._blocks.popleft()
        if len(block) > 1:
            self._blocks.appendleft(block[1:])
        return block[0]

    async def prepare(self) -> None:
        """Ask the controller for a block if no producer id is left.

        Raises:
            ApiError: as `take`.
        """
        while not self._blocks:
            await self._allocate()

    async def _allocate(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch
        )
        try:
            response: AllocateProducerIdsResponse = await self._controller.request(request)
        except ApiError as error:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error)) from error
        if response.error_code:
            raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        self._use(response)

    def _use(self, block: Any) -> None:
        # Two requests may be under way: the later block is used after the earlier one.
        if block.producer_id_len > 0:
            start = block.producer_id_start
            self._blocks.append(range(start, start + block.producer_id_len))
