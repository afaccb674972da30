"""Cuts between a node and its peers or clients, in the node's own event loop.

A node connects to its peers from a loopback address of its own, so that a peer can tell the
connections of nodes from those of clients.
"""

import asyncio
import errno
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from spindle.testing.faults.choice_enum import ChoiceEnum

_ADDRESSES_PER_NET: Final = 250


class Cut(ChoiceEnum):
    """The state of one direction of a connection."""

    NONE = "none"
    STALL = "stall"
    """Bytes wait until the cut is healed, unnoticed by both sides."""
    BREAK = "break"
    """The connection is broken, and a new one is refused."""


@dataclass(frozen=True, slots=True)
class NetworkFaults:
    """The cuts of one node. A peer that is not named is not cut off.

    Attributes:
        to_peers: of bytes that this node sends to a peer, by node id.
        from_peers: of bytes that this node would receive from a peer, by node id.
        clients: both directions of the connections of clients.
    """

    to_peers: Mapping[int, Cut] = field(default_factory=dict)
    from_peers: Mapping[int, Cut] = field(default_factory=dict)
    clients: Cut = Cut.NONE

    def to_json(self) -> dict[str, Any]:
        """Return the fields as JSON values."""
        return {
            "to_peers": [[peer, cut] for peer, cut in sorted(self.to_peers.items())],
            "from_peers": [[peer, cut] for peer, cut in sorted(self.from_peers.items())],
            "clients": self.clients,
        }

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> "NetworkFaults":
        """Return the faults of `to_json`."""
        to_peers, from_peers = (
            {int(peer): Cut(cut) for peer, cut in fields[name]}
            for name in ("to_peers", "from_peers")
        )
        return cls(to_peers, from_peers, Cut(fields["clients"]))

    def of(self, peer: int | None) -> tuple[Cut, Cut]:
        """Return the cuts (outbound, inbound) of a connection to a peer, or to a client (None)."""
        if peer is None:
            return self.clients, self.clients
        return self.to_peers.get(peer, Cut.NONE), self.from_peers.get(peer, Cut.NONE)


def address_of(node_id: int) -> str:
    """Return the loopback address from which a node connects to its peers."""
    net, host = divmod(node_id, _ADDRESSES_PER_NET)
    return f"127.1.{net}.{host + 1}"


class FaultyNetwork:
    """The connections of one node. It belongs to the node's event loop.

    Args:
        ports: of the listeners of all nodes; values are node ids.
    """

    def __init__(self, node_id: int, ports: Mapping[int, int], faults: NetworkFaults) -> None:
        self.own_address = address_of(node_id)
        self.faults = faults
        self._ports = ports
        self._by_address = {address_of(peer): peer for peer in ports.values()}
        self._connections: dict[Any, None] = {}
        self._changed: asyncio.Event | None = None

    def set(self, faults: NetworkFaults) -> None:
        """Replace the cuts. Connections that stall continue if the new cuts allow it."""
        self.faults = faults
        if self._changed is not None:
            self._changed.set()
            self._changed = None
        for connection in list(self._connections):
            connection.apply()

    def peer_behind(self, port: int | None) -> int | None:
        """Return the node that listens on a port, or None if it is none of the cluster."""
        return None if port is None else self._ports.get(port)

    def peer_from(self, address: str) -> int | None:
        """Return the node that connects from an address, or None for a client."""
        return self._by_address.get(address)

    def add(self, connection: Any) -> None:
        """Apply later cuts to this connection, too."""
        self._connections[connection] = None

    def discard(self, connection: Any) -> None:
        """Forget a connection that has ended."""
        self._connections.pop(connection, None)

    async def wait_passable(self, peer: int) -> None:
        """Return when a connection to the peer can be set up.

        Raises:
            OSError: the network refuses it.
        """
        while self.faults.of(peer) != (Cut.NONE, Cut.NONE):
            if Cut.BREAK in self.faults.of(peer):
                raise OSError(errno.EHOSTUNREACH, os.strerror(errno.EHOSTUNREACH))
            if self._changed is None:
                self._changed = asyncio.Event()
            await self._changed.wait()
