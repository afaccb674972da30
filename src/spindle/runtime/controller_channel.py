"""The way from a broker to the active controller."""

from collections.abc import Awaitable
from typing import Any, Protocol

from spindle.broker.context import RequestContext
from spindle.protocol.message import Message


class LocalController(Protocol):
    """The controller of this process."""

    def handle(
        self, api_key: int, request: Any, context: RequestContext | None
    ) -> Awaitable[Message]: ...


class LocalControllerChannel:
    """For a combined node: the active controller is in this process, or there is none."""

    def __init__(self, controller: LocalController) -> None:
        self._controller = controller

    async def request(
        self, api_key: int, message: Message, context: RequestContext | None = None
    ) -> Any:
        return await self._controller.handle(api_key, message, context)
