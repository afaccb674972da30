"""What the broker needs of the runtime. The runtime implements these over asyncio and threads."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeVar, TypeVarTuple

from spindle.broker.context import RequestContext
from spindle.common.errors import LogDirectoryFailed
from spindle.config.node_config import NodeConfig
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class DirectoryExecutor(Protocol):
    """The I/O thread of one log directory: work runs there in the order of submission."""

    failure: LogDirectoryFailed | None

    def call(
        self,
        callback: Callable[[Any, BaseException | None], None] | None,
        function: Callable[..., Any],
        *args: Any,
    ) -> None:
        """Run there, then call back on the event loop with (result, None) or (None, error)."""
        ...

    def submit(self, function: Callable[[*Ts], T], *args: *Ts) -> Awaitable[T]: ...
    def submit_nowait(self, function: Callable[..., Any], *args: Any) -> None: ...
    def note(self, function: Callable[..., Any], *args: Any) -> None:
        """Run before whatever is submitted next, which is all that needs to know it."""
        ...

    def fail(self, cause: BaseException | str) -> LogDirectoryFailed:
        """Take the directory offline."""
        ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """The part of the event loop that handlers use."""

    def create_future(self) -> Any: ...
    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer: ...


class ControllerChannel(Protocol):
    """The way to the active controller, in this process or elsewhere."""

    def request(self, message: Message, context: RequestContext | None = None) -> Awaitable[Any]:
        """The controller's answer.

        Raises:
            ApiError: NOT_CONTROLLER or REQUEST_TIMED_OUT when no controller answers in time.
        """
        ...


CATCH_UP_S: Final = 5.0
"""How long a request waits for replicas that are being made."""


class HasImage(Protocol):
    """Gives the newest committed image."""

    @property
    def image(self) -> MetadataImage: ...


class DescribedNode(Protocol):
    """What a description needs to know; brokers and controllers have it."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def metadata(self) -> HasImage: ...


class MetadataView(Protocol):
    """The committed image as this broker has it."""

    image: MetadataImage
    """The newest committed image."""

    @property
    def is_behind(self) -> bool:
        """Replicas of `image` are still being made or taken down."""
        ...

    def when_applied(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the replicas have followed another image."""
        ...

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call it any more."""
        ...

    async def catch_up(self, timeout_s: float) -> bool:
        """Return when the replicas are as `image` wants them; False if that takes longer."""
        ...

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Return when the replicas have followed such an image; False if that takes longer."""
        ...
