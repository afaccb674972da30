"""The buffers of accepted connections."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from node_properties import COMBINED

from spindle.config.node_config import NodeConfig
from spindle.runtime.machine import LocalMachine
from spindle.runtime.network.listener import Listener, bind
from spindle.runtime.network.socket_buffers import SocketBuffers


@contextmanager
def accepted(buffers: SocketBuffers) -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        buffers.set_on(server)
        with socket.create_connection(server.getsockname()):
            own, _ = server.accept()
            with own:
                yield own


@pytest.mark.parametrize(
    ("keys", "send_bytes", "receive_bytes"),
    [
        ({}, 212_992, 0),
        ({"socket.send.buffer.bytes": "102400"}, 102_400, 0),
        ({"socket.send.buffer.bytes": "-1", "socket.receive.buffer.bytes": "-1"}, 0, 0),
        ({"socket.receive.buffer.bytes": "50000"}, 212_992, 50_000),
    ],
)
def test_sizes_come_from_the_file(
    keys: dict[str, str], send_bytes: int, receive_bytes: int
) -> None:
    config = NodeConfig.from_properties(COMBINED | keys)
    assert SocketBuffers.of(config) == (send_bytes, receive_bytes)


def test_connections_inherit_the_buffer_sizes_of_the_listener() -> None:
    with accepted(SocketBuffers(30_000, 40_000)) as own:
        assert 30_000 <= own.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 60_000
        assert 40_000 <= own.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF) <= 80_000


async def test_a_bound_listener_has_them_before_it_is_opened() -> None:
    listener = Listener("PLAINTEXT", "127.0.0.1", 0, {})
    await bind(listener, LocalMachine().listen, SocketBuffers(30_000, 0))
    listening = listener.socket
    try:
        assert 30_000 <= listening.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF) <= 60_000
    finally:
        listening.close()
