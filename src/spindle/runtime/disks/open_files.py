"""The division of the process's file descriptors between log directories and connections.

A node that cannot open files for 10 s ends: its disks are healthy, and a restart frees all
descriptors. Any client can open connections, so connections must never use the descriptors that the
files need.
"""

import resource
from typing import Final, NamedTuple

from spindle.common.errors import ConfigError
from spindle.log.open_files import DEFAULT_OPEN_FILES

_OTHERS: Final = 128
"""Descriptors for connections to other nodes, for files that are open briefly, for pipes, for two
of each directory's thread (`socket_poller`), and for sockets that connections lend
(`network.sendfile_socket`).
"""
_MIN_FILES: Final = 16
_MIN_CONNECTIONS: Final = 64
_MAX_TO_CONTROLLERS: Final = 1024
_ENOUGH: Final = 4096
_UNLIMITED: Final = 2**20
_HOW_TO_RAISE: Final = "raise it with `ulimit -n` or LimitNOFILE"


class OpenFiles(NamedTuple):
    """The shares of the descriptors of a process.

    Attributes:
        limit: descriptors of the process, RLIMIT_NOFILE.
        by_directory: files of one log directory.
        by_brokers_clients: connections to the broker's listeners, all together.
        by_controllers_clients: connections to the controller's listeners, all together.
    """

    limit: int
    by_directory: int
    by_brokers_clients: int
    by_controllers_clients: int


def share_out(
    limit: int, directory_count: int, *, is_broker: bool, is_controller: bool
) -> OpenFiles:
    """Divide the descriptors: at most half for files, the others for connections.

    A controller beside a broker gets a quarter of the connections.

    Raises:
        ConfigError: the limit is too low for a node.
    """
    fewest = _OTHERS + directory_count * _MIN_FILES + _MIN_CONNECTIONS
    if limit < fewest:
        raise ConfigError(
            f"the limit of open files (RLIMIT_NOFILE) is {limit}, a node with {directory_count} "
            f"log directories needs at least {fewest}; {_HOW_TO_RAISE}"
        )
    left = limit - _OTHERS
    by_directory = max(min(left // 2 // directory_count, DEFAULT_OPEN_FILES), _MIN_FILES)
    connections = left - by_directory * directory_count
    to_controllers = connections if is_controller else 0
    if is_broker:
        to_controllers = min(to_controllers // 4, _MAX_TO_CONTROLLERS)
    return OpenFiles(limit, by_directory, connections - to_controllers, to_controllers)


def scarcity(shares: OpenFiles) -> str | None:
    """Return a warning for the operator if the process has few descriptors, else None."""
    if shares.limit >= _ENOUGH:
        return None
    connections = shares.by_brokers_clients + shares.by_controllers_clients
    return (
        f"the limit of open files (RLIMIT_NOFILE) is {shares.limit}: at most {connections} "
        f"connections are taken, and {shares.by_directory} files of a log directory are open at a "
        f"time; {_HOW_TO_RAISE}"
    )


def open_files_limit() -> int:
    """Return the limit of file descriptors of this process."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _UNLIMITED if soft == resource.RLIM_INFINITY else soft


def raise_limit() -> None:
    """Raise the limit of descriptors to the system's maximum for this process, as the JVM does."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):  # some systems report a maximum that they do not accept
        return
