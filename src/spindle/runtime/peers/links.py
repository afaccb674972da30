"""Connections of the quorum and of fetchers: one request at a time to each node.

A connection is opened on demand and closed after the first failure: the caller then sends its
request again.
"""

import asyncio

from spindle.common.promise import Promise
from spindle.protocol.message import Message
from spindle.raft.ready import Destination
from spindle.runtime.peers.link import LINK_ERRORS, PeerLink, open_link, peer_error
from spindle.runtime.peers.security import NO_SECURITY, PeerSecurity
from spindle.runtime.task_promise import promise_of


class PeerLinks:
    """`Peers` over TCP, with one open request per destination.

    Args:
        client_id: the client id in the requests.
        timeout_s: a request without an answer fails after this time (`request.timeout.ms`).
        security: the security of the listener to connect to.
    """

    def __init__(
        self, client_id: str, timeout_s: float, security: PeerSecurity = NO_SECURITY
    ) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._links: dict[Destination, PeerLink] = {}

    def request(self, destination: Destination, message: Message) -> Promise[Message]:
        """See `PromptPeers`."""
        link = self._idle_link(destination)
        if link is None or link.must_renew:
            return promise_of(self._prepare_and_ask(destination, link, message))
        loop = asyncio.get_running_loop()
        promise: Promise[Message] = Promise(loop)

        def expire() -> None:
            promise.settle(None, peer_error(destination, TimeoutError()))

        def answered(answer: Message | None, error: BaseException | None) -> None:
            timer.cancel()
            if isinstance(error, LINK_ERRORS):
                error = peer_error(destination, error)
            promise.settle(answer, error)

        timer = loop.call_later(self._timeout_s, expire)
        promise.on_cancel = timer.cancel
        link.ask(message, answered)
        return promise

    async def _prepare_and_ask(
        self, destination: Destination, link: PeerLink | None, message: Message
    ) -> Message:
        """Send a request over a new connection, or over one whose session has to be renewed."""
        try:
            async with asyncio.timeout(self._timeout_s):
                if link is None:
                    link = await self._connect(destination)
                else:
                    await link.renew()
                return await link.request(message)
        except LINK_ERRORS as error:
            raise peer_error(destination, error) from error

    def close(self) -> None:
        """Close all connections."""
        for destination in list(self._links):
            self._drop(destination)

    def _idle_link(self, destination: Destination) -> PeerLink | None:
        """Return the connection to a destination. A connection with an open request is closed.

        Either that request failed, or the caller has given it up and sends another one.
        """
        link = self._links.get(destination)
        if link is not None and (link.is_busy or link.is_closed):
            self._drop(destination)
            return None
        return link

    async def _connect(self, destination: Destination) -> PeerLink:
        link = await open_link(destination, self._client_id, self._security)
        self._drop(destination)
        self._links[destination] = link
        return link

    def _drop(self, destination: Destination) -> None:
        link = self._links.pop(destination, None)
        if link is not None:
            link.close()
