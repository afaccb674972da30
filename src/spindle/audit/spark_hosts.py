"""The hosts that have the log directories of an audit, by all names that Spark may use."""

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from spindle.audit.log_directory import list_log_directory
from spindle.audit.reported_cluster import ReportedCluster

LOCALITY_CONF: Final = {"spark.locality.wait": "10min"}
"""Spark's setting for the wait of a task for a core on the host of its disk."""


def hosts_of_directories(
    cluster: ReportedCluster, roots: Sequence[Path]
) -> dict[Path, tuple[str, ...]]:
    """Return the names of the brokers' hosts, by log directory.

    Directories of nodes that are no brokers of the cluster are left out.
    """
    hosts = {}
    for root in roots:
        properties = list_log_directory(root).properties
        node_id = None if properties is None else properties.node_id
        node = None if node_id is None else cluster.nodes.get(node_id)
        if node is not None:
            hosts[root] = names_of_host(node.host)
    return hosts


def names_of_host(name: str) -> tuple[str, ...]:
    """Return a host's name and addresses: Spark knows an executor by one of them."""
    try:
        result = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except OSError:
        result = []
    addresses: Mapping[str, None] = dict.fromkeys(str(item[4][0]) for item in result)
    return (name, *(address for address in addresses if address != name))
