"""The port to other nodes: one request, one response. `PeerLinks` and `PeerPool` use TCP."""

from collections.abc import Awaitable
from typing import Protocol

from spindle.common.promise import Promise
from spindle.protocol.message import Message
from spindle.raft.ready import Destination


class PeerUnavailable(Exception):
    """A peer did not respond: it cannot be reached, was too slow, or closed the connection."""


class PeerGone(PeerUnavailable):
    """No process listens at the peer's address: it has ended."""


class PeerLacksVersion(Exception):
    """The peer supports no version of the request that has all its fields."""


class Peers(Protocol):
    """Connections to other nodes of the cluster."""

    def request(self, destination: Destination, message: Message) -> Awaitable[Message]:
        """Send a request and return the response.

        Raises:
            PeerUnavailable: there is no response.
            PeerLacksVersion: the peer does not support the request.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class PromptPeers(Peers, Protocol):
    """Connections that deliver responses as they arrive, without an iteration of the event loop."""

    def request(self, destination: Destination, message: Message) -> Promise[Message]:
        """See `Peers`; the promise fails with what `Peers` raises."""
        ...
