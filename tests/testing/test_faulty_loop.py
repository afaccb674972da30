"""Connections that are given up are forgotten by the network."""

import asyncio
import socket
from contextlib import closing, suppress

from spindle.testing.faults.faulty_loop import FaultyLoop
from spindle.testing.faults.network_faults import FaultyNetwork, NetworkFaults


class GivenUp(asyncio.BufferedProtocol):
    """Its connector is cancelled at the moment at which it is connected."""

    connector: asyncio.Task[None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.connector.cancel()


def test_cuts_pass_over_a_connection_that_was_given_up() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        network = FaultyNetwork(1, {port: 2}, NetworkFaults())
        with closing(FaultyLoop(network)) as loop:

            async def connect() -> None:
                await loop.create_connection(GivenUp, "127.0.0.1", port)

            GivenUp.connector = loop.create_task(connect())
            with suppress(asyncio.CancelledError):
                loop.run_until_complete(GivenUp.connector)
            assert GivenUp.connector.cancelled()
            network.set(NetworkFaults())
