"""The hosts that have the log directories of an audit, as Spark may call them."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spindle.audit.log_directory import list_log_directory
from spindle.audit.reported_cluster import ReportedCluster

LOCALITY_CONF: Final = {"spark.locality.wait": "10min"}
"""How long a task waits for a core on the host of its disk, if an executor runs there."""


def hosts_of_directories(
    cluster: ReportedCluster, roots: Sequence[Path]
) -> dict[Path, tuple[str, ...]]:
    """Return the names of the hosts of brokers, by the log directories that are theirs.

    A directory of a node that is no broker of the cluster is left out.
    """
    found = {}
    for root in roots:
        properties = list_log_directory(root).properties
        node_id = None if properties is None else properties.node_id
        node = None if node_id is None else cluster.nodes.get(node_id)
        if node is not None:
            found[root] = names_of_host(node.host)
    return found


def names_of_host(name: str) -> tuple[str, ...]:
    """Return a host's name and addresses: Spark knows an executor by one of them."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        found = []
    addresses: Mapping[str, None] = dict.fromkeys(str(each[4][0]) for each in found)
    return (name, *(each for each in addresses if each != name))
