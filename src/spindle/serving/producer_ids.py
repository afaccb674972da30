"""Producer ids, handed out from blocks that the controller allocates (KIP-730)."""

from collections import deque
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from spindle.serving.ports import ControllerChannel, EventLoop


class NoProducerId(ApiError):
    """This broker currently has no unused producer id."""

    def __init__(self) -> None:
        super().__init__(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "no producer id is left")


class ProducerIds:
    """The unused ids of the blocks that the controller allocated to this broker.

    One request for a block is in flight at a time; all callers that need an id wait for its
    response.
    """

    def __init__(self, broker_id: int, controller: ControllerChannel, loop: EventLoop) -> None:
        self._broker_epoch = -1
        self._broker_id = broker_id
        self._controller = controller
        self._loop = loop
        self._blocks: deque[range] = deque()
        self._is_allocating = False
        self._waiting: list[Any] = []
        """Futures that get None, or the error, when the request in flight has completed."""

    def begin_epoch(self, broker_epoch: int) -> None:
        """Request further blocks with this broker epoch."""
        self._broker_epoch = broker_epoch

    async def take(self) -> int:
        """Return a producer id that no other producer of the cluster has.

        Raises:
            ApiError: COORDINATOR_LOAD_IN_PROGRESS while the controller allocates no block; clients
                retry.
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
            if not self._is_allocating:
                await self._allocate()
                continue
            # A future of its own, because a request that is cancelled cancels what it waits for.
            ended = self._loop.create_future()
            self._waiting.append(ended)
            error: ApiError | None = await ended
            if error is not None:
                raise ApiError(error.code, error.message)

    async def _allocate(self) -> None:
        """Request a block, and wake the waiting callers; one of them retries if it is cancelled."""
        failure: ApiError | None = None
        self._is_allocating = True
        try:
            self._blocks.append(await self._ask())
        except ApiError as error:
            failure = ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, str(error))
            raise failure from error
        finally:
            self._is_allocating = False
            waiting, self._waiting = self._waiting, []
            for ended in waiting:
                if not ended.done():
                    ended.set_result(failure)

    async def _ask(self) -> range:
        """Return a block that the controller has allocated, which is never empty."""
        request = AllocateProducerIdsRequest(
            broker_id=self._broker_id, broker_epoch=self._broker_epoch
        )
        response: AllocateProducerIdsResponse = await self._controller.request(request)
        if response.error_code or response.producer_id_len <= 0:
            raise ApiError(
                ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
                f"the controller allocated no block (error {response.error_code})",
            )
        start = response.producer_id_start
        return range(start, start + response.producer_id_len)
