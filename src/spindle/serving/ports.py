"""Ports through which handlers use the runtime, which implements them over asyncio."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

from spindle.config.node_config import NodeConfig
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.serving.context import RequestContext

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Timer(Protocol):
    """A call that was scheduled and can be cancelled."""

    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """The part of the event loop that handlers use."""

    def create_future(self) -> Any: ...
    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer: ...


class ControllerChannel(Protocol):
    """The way to the active controller, in this process or elsewhere."""

    def request(self, message: Message, context: RequestContext | None = None) -> Awaitable[Any]:
        """Return the controller's answer.

        Raises:
            ApiError: NOT_CONTROLLER or REQUEST_TIMED_OUT when no controller answers in time.
        """
        ...


CATCH_UP_S: Final = 5.0
"""How long a request waits for replicas that are being created."""


class HasImage(Protocol):
    """Gives the newest committed image."""

    @property
    def image(self) -> MetadataImage: ...


class DescribedNode(Protocol):
    """A node whose configuration can be described: a broker or a controller."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def metadata(self) -> HasImage: ...
