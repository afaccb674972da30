"""TCP ports of the loopback interface."""

import socket
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Final

HOST: Final = "127.0.0.1"
MAX_PORT: Final = 65535


def free_ports(count: int) -> list[int]:
    """Return different ports on which nobody listens now."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((HOST, 0))
        return [probe.getsockname()[1] for probe in probes]


def reserve_ports(count: int) -> list[socket.socket]:
    """Return sockets that are bound to free ports and do not listen.

    While they are open, the system gives their ports to no one, and a node can listen there,
    because both sides reuse the address. So clusters that start at the same time never get the same
    ports.
    """
    with ExitStack() as stack:
        sockets = []
        for _ in range(count):
            reserved = stack.enter_context(socket.socket())
            reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            reserved.bind((HOST, 0))
            sockets.append(reserved)
        stack.pop_all()
        return sockets


def obstacle(port: int) -> str | None:
    """Return the reason why a port is not free, as text after its number; None if it is free."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except PermissionError:
            return "may be used only by root"
        except OSError:
            return "is in use"
    return None


def taken_ports(ports: Sequence[int]) -> list[int]:
    """Return the ports on which a process listens."""
    return [port for port in ports if obstacle(port)]
