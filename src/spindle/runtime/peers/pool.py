"""Connections for many concurrent requests to the same node.

The responses of a connection come in order, and one of them may wait for a commit. So each open
request has its own connection; connections are reused.
"""

import asyncio
from typing import Final

from spindle.protocol.message import Message
from spindle.raft.ready import Destination
from spindle.runtime.peers.link import LINK_ERRORS, PeerLink, open_link, peer_error
from spindle.runtime.peers.security import NO_SECURITY, PeerSecurity

_MAX_LINKS: Final = 16


class PeerPool:
    """`Peers` over TCP. Beyond 16 open requests, further ones wait for their turn."""

    def __init__(
        self, client_id: str, timeout_s: float, security: PeerSecurity = NO_SECURITY
    ) -> None:
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._security = security
        self._turns = asyncio.Semaphore(_MAX_LINKS)
        self._idle: dict[Destination, list[PeerLink]] = {}
        self._is_closed = False

    async def request(
        self, destination: Destination, message: Message, last_version: int | None = None
    ) -> Message:
        """Send a request and return the response.

        Raises:
            PeerUnavailable: there is no response.
            PeerLacksVersion: the peer serves no version of the request.
        """
        async with self._turns:
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await self._ask(destination, message, last_version)
            except LINK_ERRORS as error:
                raise peer_error(destination, error) from error

    async def _ask(
        self, destination: Destination, message: Message, last_version: int | None
    ) -> Message:
        link = self._take(destination) or await open_link(
            destination, self._client_id, self._security
        )
        try:
            if link.must_renew:
                await link.renew()
            answer = await link.request(message, last_version=last_version)
        except BaseException:
            link.close()
            raise
        self._give_back(destination, link)
        return answer

    def close(self) -> None:
        """Close the idle connections now, and each other one after its response."""
        self._is_closed = True
        self.forget(None)

    def forget(self, kept: Destination | None) -> None:
        """Close idle connections, except those to `kept`."""
        for destination in [d for d in self._idle if d != kept]:
            for link in self._idle.pop(destination):
                link.close()

    def _take(self, destination: Destination) -> PeerLink | None:
        links = self._idle.get(destination, [])
        while links:
            link = links.pop()
            if not link.is_closed:
                return link
            link.close()
        return None

    def _give_back(self, destination: Destination, link: PeerLink) -> None:
        if self._is_closed:
            link.close()
        else:
            self._idle.setdefault(destination, []).append(link)
