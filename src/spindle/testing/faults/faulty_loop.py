"""The event loop of a node whose connections can be cut: uvloop's, or asyncio's without uvloop."""

import asyncio
from typing import TYPE_CHECKING, Any

from spindle.testing.faults.faulty_connection import FaultyConnection
from spindle.testing.faults.network_faults import FaultyNetwork

if TYPE_CHECKING:
    _EventLoop = asyncio.SelectorEventLoop
else:
    try:
        from uvloop import Loop as _EventLoop
    except ImportError:
        _EventLoop = asyncio.SelectorEventLoop


class FaultyLoop(_EventLoop):
    """Puts a `FaultyConnection` between the node's protocols of bytes and their transports.

    Connections to others than nodes, and protocols of streams (the metrics), stay as they are.
    """

    def __init__(self, network: FaultyNetwork) -> None:
        super().__init__()
        self._network = network

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, **options: Any
    ) -> Any:
        network = self._network
        peer = network.peer_behind(port)
        if peer is None:
            return await super().create_connection(protocol_factory, host, port, **options)
        await network.wait_passable(peer)
        options["local_addr"] = (network.own_address, 0)
        begun: list[FaultyConnection] = []

        def make() -> FaultyConnection:
            begun.append(FaultyConnection(protocol_factory(), network, peer))
            return begun[-1]

        try:
            _, made = await super().create_connection(make, host, port, **options)
        except BaseException:
            # If the caller gives up just as the connection is made, uvloop does not call
            # connection_lost.
            for connection in begun:
                network.discard(connection)
            raise
        return made, made.inner

    async def create_server(self, protocol_factory: Any, *args: Any, **options: Any) -> Any:
        def make() -> Any:
            inner = protocol_factory()
            if isinstance(inner, asyncio.BufferedProtocol):
                return FaultyConnection(inner, self._network)
            return inner

        return await super().create_server(make, *args, **options)
