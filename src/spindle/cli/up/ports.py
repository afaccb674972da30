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


def obstacle(port: int) -> str | None:
    """Return why nobody can listen on a port now, to follow its number; None if one can."""
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
    """Return the ports on which somebody listens."""
    return [port for port in ports if obstacle(port)]
