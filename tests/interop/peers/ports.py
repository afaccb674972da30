"""TCP ports for nodes that are stopped and started again during a test."""

from __future__ import annotations

import itertools
import os
import socket

_FIRST = 12_000
_COUNT = 2_000
"""The ports of a process that runs tests. They lie below those of outgoing connections."""


def _own_ports() -> itertools.cycle[int]:
    """Return the ports of this process; others that run tests at the same time have others."""
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
    ports = range(_FIRST + number * _COUNT, _FIRST + (number + 1) * _COUNT)
    start = os.getpid() % _COUNT
    return itertools.cycle((*ports[start:], *ports[:start]))


_ports = _own_ports()


def free_ports(count: int) -> list[int]:
    """Return `count` ports of the loopback interface on which nobody listens.

    No outgoing connection and no later call gets one of them while its node is down.
    """
    return list(itertools.islice(filter(_is_free, _ports), count))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
