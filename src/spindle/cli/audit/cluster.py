"""The cluster of an audit: the connection to it, and what its brokers report as a table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from spindle.cli.table import narrowed_table_lines
from spindle.common.errors import ErrorCode
from spindle.common.text import size_text

if TYPE_CHECKING:
    from spindle.audit.cluster_audit import ClusterAudit
    from spindle.client.log_dirs import LogDirView

_WAIT_MS = "10000"
"""A broker that hangs is skipped after this time, also the first broker."""


@contextmanager
def audited_cluster(
    servers: str | None, file: str | None, *, fetches_replicas: bool
) -> Iterator["ClusterAudit | None"]:
    """Connect to the cluster of an audit; None without addresses.

    Args:
        servers: addresses of brokers.
        file: the property file of the client.

    Raises:
        ApiError, ClientError, ConfigError, ToolFailed: the cluster cannot be asked.
        ValueError: an option needs a cluster, and there are no addresses.
    """
    if servers is None:
        if fetches_replicas or file is not None:
            option = "--fetch" if fetches_replicas else "--command-config"
            raise ValueError(f"{option} needs a cluster: give --bootstrap-server")
        yield None
        return
    from spindle.audit.cluster_audit import ClusterAudit
    from spindle.cli.tools.bootstrap import connect, properties_of

    properties = {"request.timeout.ms": _WAIT_MS, "default.api.timeout.ms": _WAIT_MS}
    with connect(servers, properties | properties_of(file)) as client:
        yield ClusterAudit(client, fetches_replicas=fetches_replicas)


def cluster_lines(cluster: "ClusterAudit | None", width: int | None = None) -> list[str]:
    """Return a table of the log directories that the brokers report, none without a cluster.

    Args:
        width: columns of the terminal: paths are shortened to fit. None sets no limit.
    """
    if cluster is None:
        return []
    head = ("BROKER", "DIRECTORY", "STATE", "REPLICAS", "SIZE")
    rows = []
    for broker, answer in sorted(cluster.cluster.log_dirs.items()):
        if isinstance(answer, str):
            rows.append((str(broker), "-", "does not answer", "-", "-"))
            continue
        rows += [
            (
                str(broker),
                log_dir.path,
                _state(log_dir),
                str(len(log_dir.replicas)),
                size_text(_size_bytes(log_dir)),
            )
            for log_dir in answer
        ]
    return [*narrowed_table_lines(head, rows, "DIRECTORY", width), ""]


def cluster_documents(cluster: "ClusterAudit | None") -> list[dict[str, Any]]:
    """Return the brokers and their directories for JSON, none without a cluster."""
    if cluster is None:
        return []
    return [
        {
            "id": broker,
            "error": answer if isinstance(answer, str) else None,
            "directories": [] if isinstance(answer, str) else _documents(answer),
        }
        for broker, answer in sorted(cluster.cluster.log_dirs.items())
    ]


def _documents(views: "Sequence[LogDirView]") -> list[dict[str, Any]]:
    return [
        {
            "path": view.path,
            "state": _state(view),
            "replicas": len(view.replicas),
            "bytes": _size_bytes(view),
        }
        for view in views
    ]


def _state(view: "LogDirView") -> str:
    return "online" if view.error is ErrorCode.NONE else "offline"


def _size_bytes(view: "LogDirView") -> int:
    return sum(replica.size_bytes for replica in view.replicas.values())
