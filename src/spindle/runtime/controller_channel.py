"""The way from a broker to the active controller (KIP-590): waits for one, and asks again.

On a combined node the active controller is this process. A request that meets a controller which
has just lost its leadership is sent again to the next one, until the time is over.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any, Final, Protocol

from spindle.broker.context import RequestContext
from spindle.common.errors import ApiError, ErrorCode
from spindle.metadata.loader import Publication
from spindle.protocol.message import Message
from spindle.raft.listener import LeaderAndEpoch

_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.05


class LocalController(Protocol):
    """The controller of this process."""

    def request(
        self, api_key: int, message: Message, context: RequestContext | None = None
    ) -> Awaitable[Any]: ...


class ControllerChannel:
    """Sends requests to the controller that leads the quorum. An image consumer."""

    def __init__(self, controller: LocalController, timeout_s: float = _TIMEOUT_S) -> None:
        self._controller = controller
        self._timeout_s = timeout_s
        self._has_leader = asyncio.Event()

    def on_publication(self, publication: Publication) -> None:
        """Only the leader matters here."""

    def on_committed(self, last_offset: int) -> None:
        """Only the leader matters here."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id >= 0:
            self._has_leader.set()
        else:
            self._has_leader.clear()

    async def request(
        self, api_key: int, message: Message, context: RequestContext | None = None
    ) -> Any:
        """The controller's answer.

        Raises:
            ApiError: REQUEST_TIMED_OUT when no controller answers in time.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(api_key, message, context)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no active controller answered within {self._timeout_s:.0f} s",
            ) from None

    async def _ask(self, api_key: int, message: Message, context: RequestContext | None) -> Any:
        while True:
            await self._has_leader.wait()
            try:
                return await self._controller.request(api_key, message, context)
            except ApiError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
            await asyncio.sleep(_RETRY_S)
