"""The port to other nodes: one request, one answer. `PeerLinks` and `PeerPool` are over TCP."""

from collections.abc import Awaitable
from typing import Protocol

from spindle.common.promise import Promise
from spindle.protocol.message import Message
from spindle.raft.ready import Destination


class PeerUnavailable(Exception):
    """A peer gave no answer: it cannot be reached, was too slow, or closed the connection."""


class PeerGone(PeerUnavailable):
    """No process listens at the peer's address: it has ended."""


class PeerLacksVersion(Exception):
    """A peer knows no version of the request that could carry it."""


class Peers(Protocol):
    """Connections to other nodes of the cluster."""

    def request(self, destination: Destination, message: Message) -> Awaitable[Message]:
        """Send and wait for the answer.

        Raises:
            PeerUnavailable: no answer will come.
            PeerLacksVersion: the peer cannot be asked that.
        """
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


class PromptPeers(Peers, Protocol):
    """Connections that report responses as soon as they arrive, without a turn of the loop."""

    def request(self, destination: Destination, message: Message) -> Promise[Message]:
        """See `Peers`; the promise fails with what `Peers` raises."""
        ...
