"""Requests from a node to the active controller (KIP-590), repeated until one responds.

The active controller is this process or another node, reached at its controller listener. If a
controller has lost its leadership, or its node does not respond, the request goes to the next
active controller, until it times out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.ids import Endpoint
from spindle.protocol.message import Message
from spindle.publication.publishers import MetadataPublisher
from spindle.raft.ready import Destination, LeaderAndEpoch
from spindle.runtime.peers.port import PeerLacksVersion, Peers, PeerUnavailable
from spindle.serving.context import RequestContext
from spindle.serving.forwarding import open_response, seal_request

_TIMEOUT_S: Final = 30.0
_RETRY_S: Final = 0.05


class LocalController(Protocol):
    """The controller of this process."""

    def request(
        self, message: Message, context: RequestContext | None = None
    ) -> Awaitable[Any]: ...


class ActiveControllerChannel(MetadataPublisher):
    """Sends requests to the controller that leads the quorum.

    Args:
        leader_endpoint: returns the endpoint of the quorum's leader, None while it is not known.
        without_quorum: returns the controllers to try in turn after this node has left the quorum
            and learns no more leaders; empty before.
    """

    def __init__(
        self,
        node_id: int,
        local: LocalController,
        leader_endpoint: Callable[[], Endpoint | None],
        without_quorum: Callable[[], Sequence[Destination]],
        peers: Peers,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._node_id = node_id
        self._local = local
        self._leader_endpoint = leader_endpoint
        self._without_quorum = without_quorum
        self._peers = peers
        self._timeout_s = timeout_s
        self._leader = LeaderAndEpoch()
        self._has_leader = asyncio.Event()
        self._attempts: dict[asyncio.Task[Any], None] = {}
        self._turn = 0

    def close(self) -> None:
        self._abandon_attempts()
        self._peers.close()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self._leader = leader
        if leader.leader_id >= 0:
            # The former leader may hang, so do not wait for its responses.
            self._abandon_attempts()
            self._has_leader.set()
        else:
            self._has_leader.clear()

    async def request(self, message: Message, context: RequestContext | None = None) -> Any:
        """Return the controller's response. With a context, the request is a client's.

        Raises:
            ApiError: REQUEST_TIMED_OUT if no controller responds in time, UNSUPPORTED_VERSION if
                the active controller does not serve the request.
        """
        try:
            async with asyncio.timeout(self._timeout_s):
                return await self._ask(message, context)
        except TimeoutError:
            raise ApiError(
                ErrorCode.REQUEST_TIMED_OUT,
                f"no active controller answered within {self._timeout_s:.0f} s",
            ) from None

    async def _ask(self, message: Message, context: RequestContext | None) -> Any:
        while True:
            others = self._without_quorum()
            if not others:
                await self._has_leader.wait()
            asked = self._leader
            try:
                if others:
                    self._turn += 1
                    other = others[self._turn % len(others)]
                    return await self._ask_remote(other, message, context)
                if asked.leader_id == self._node_id:
                    return await self._local.request(message, context)
                return await self._ask_remote(self._destination(asked), message, context)
            except ApiError as error:
                if error.code is not ErrorCode.NOT_CONTROLLER:
                    raise
            except (PeerUnavailable, ProtocolViolation):
                pass
            if self._leader == asked:
                await asyncio.sleep(_RETRY_S)

    def _destination(self, leader: LeaderAndEpoch) -> Destination:
        endpoint = self._leader_endpoint()
        if endpoint is None:
            raise PeerUnavailable(f"the address of controller {leader.leader_id} is not known")
        return Destination(leader.leader_id, endpoint.host, endpoint.port)

    async def _ask_remote(
        self, destination: Destination, message: Message, context: RequestContext | None
    ) -> Any:
        attempt = asyncio.ensure_future(self._exchange(destination, message, context))
        self._attempts[attempt] = None
        try:
            await asyncio.wait((attempt,))
        finally:
            self._attempts.pop(attempt, None)
            attempt.cancel()
        if attempt.cancelled():
            raise PeerUnavailable(f"controller {destination.id} is not the active one any more")
        return attempt.result()

    async def _exchange(
        self, destination: Destination, message: Message, context: RequestContext | None
    ) -> Message:
        request = message if context is None else seal_request(message, context)
        try:
            response = await self._peers.request(destination, request)
        except PeerLacksVersion as error:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from error
        if context is not None:
            return open_response(response, message, context)  # type: ignore[arg-type]
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.NOT_CONTROLLER:
            raise ApiError(ErrorCode.NOT_CONTROLLER)
        return response

    def _abandon_attempts(self) -> None:
        for attempt in self._attempts:
            attempt.cancel()
