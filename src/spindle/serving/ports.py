"""Ports through which handlers use the runtime, which implements them over asyncio."""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias, TypeVar, TypeVarTuple

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.config.node_config import NodeConfig
from spindle.metadata.image import MetadataImage
from spindle.protocol.message import Message
from spindle.serving.context import RequestContext
from spindle.serving.permissions import Guarded

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Timer(Protocol):
    """A call that was scheduled and can be cancelled."""

    def cancel(self) -> None: ...


class EventLoop(Protocol):
    """The part of the event loop that handlers use."""

    def create_future(self) -> Any: ...
    def create_task(self, work: Coroutine[Any, Any, None], /) -> Any: ...
    def call_later(self, delay_s: float, callback: Callable[..., Any], *args: Any) -> Timer: ...
    def call_exception_handler(self, context: dict[str, Any], /) -> None: ...


class ControllerChannel(Protocol):
    """Sends requests to the active controller, in this process or on another node."""

    def request(self, message: Message, context: RequestContext | None = None) -> Awaitable[Any]:
        """Return the controller's response.

        Raises:
            ApiError: NOT_CONTROLLER or REQUEST_TIMED_OUT if no controller responds in time.
        """
        ...


class TransactionVerification(Protocol):
    """Verifies with the transactions' coordinators, for the leaders of partitions (KIP-890)."""

    async def verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        adds: bool,
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Return for each partition NONE if it belongs to the producer's open transaction.

        The other codes are those of the coordinator, with PRODUCER_FENCED as
        INVALID_PRODUCER_EPOCH. COORDINATOR_NOT_AVAILABLE and NETWORK_EXCEPTION mean that no
        coordinator answered.

        Args:
            adds: add the partitions to the transaction, and begin it if it is not open.
        """
        ...


LatestOffsets: TypeAlias = Callable[
    [Sequence[TopicIdPartition]], Awaitable[Mapping[TopicIdPartition, int]]
]
"""Asks the leaders of partitions for their high watermarks; returns those that are known."""

CATCH_UP_S: Final = 5.0
"""How long a request waits for replicas that are being created."""


class HasImage(Protocol):
    """Returns the newest committed image."""

    @property
    def image(self) -> MetadataImage: ...


class DescribedNode(Guarded, Protocol):
    """A node whose configuration can be described: a broker or a controller."""

    @property
    def node_id(self) -> int: ...
    @property
    def config(self) -> NodeConfig: ...
    @property
    def metadata(self) -> HasImage: ...
