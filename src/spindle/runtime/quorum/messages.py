"""The messages of the local quorum member: requests to peers, and responses to their requests."""

import asyncio
import logging
from collections.abc import Callable

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.log_throttle import LogThrottle
from spindle.protocol.message import Message
from spindle.raft.ready import Event, Reply, Request, RequestFailed, ResponseReceived
from spindle.raft.requests import is_pre_vote
from spindle.runtime import background
from spindle.runtime.peers.port import PeerGone, PeerLacksVersion, Peers, PeerUnavailable
from spindle.runtime.quorum.disk import FoundBytes, add_bytes
from spindle.runtime.quorum.quorum_counters import QuorumHistory

logger = logging.getLogger(__name__)


class QuorumMessages:
    """The open requests in both directions.

    Args:
        report: called with the response of a peer, or its failure, as an event of the quorum.
    """

    def __init__(
        self, peers: Peers, history: QuorumHistory, report: Callable[[Event], None]
    ) -> None:
        self._peers = peers
        self._history = history
        self._report = report
        self._refusals = LogThrottle(lambda: int(asyncio.get_running_loop().time() * 1000))
        self._answers: dict[int, asyncio.Future[Message]] = {}
        self._next_token = 0
        self._exchanges: dict[asyncio.Task[None], None] = {}

    # -- requests to peers

    def send(self, request: Request) -> None:
        """Send a request; its response is reported later."""
        task = background.run_once(self._exchange(request), "request to the quorum")
        self._exchanges[task] = None
        task.add_done_callback(lambda done: self._exchanges.pop(done, None))

    async def _exchange(self, request: Request) -> None:
        event: Event
        try:
            response = await self._peers.request(request.destination, request.message)
        except PeerUnavailable as error:
            logger.debug("%s: %s", request.destination, error)
            event = RequestFailed(request.request_id, is_refused=isinstance(error, PeerGone))
        except PeerLacksVersion as error:
            self._warn(request.message, str(error))
            event = RequestFailed(request.request_id, is_unsupported_version=True)
        else:
            self._history.answered(request.destination, response)
            event = ResponseReceived(request.request_id, response)
        self._report(event)

    def _warn(self, message: Message, reason: str) -> None:
        """Warn that a peer of another release cannot be asked; a vote takes a pre-vote's place."""
        if not is_pre_vote(message) and self._refusals.allow(reason):
            logger.warning("cannot ask another controller: %s", reason)

    # -- requests of others

    def expect_answer(self) -> tuple[int, "asyncio.Future[Message]"]:
        """Return a token for a received request, and the future of its response."""
        self._next_token += 1
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._answers[self._next_token] = future
        return self._next_token, future

    def answer(self, reply: Reply, found: FoundBytes) -> None:
        """Answer a request, with the bytes read for it."""
        if reply.read is not None:
            add_bytes(reply.response, reply.read, found)
        future = self._answers.pop(reply.token, None)
        if future is not None and not future.done():
            future.set_result(reply.response)

    def close(self) -> None:
        """Cancel the requests of this node, and refuse those that it has not answered."""
        for exchange in list(self._exchanges):
            exchange.cancel()
        self.refuse()

    def refuse(self) -> None:
        """Refuse the received requests that have no answer yet."""
        for future in self._answers.values():
            if not future.done():
                future.set_exception(
                    ApiError(ErrorCode.BROKER_NOT_AVAILABLE, "the node leaves the quorum")
                )
        self._answers.clear()
