"""Clusters for tests: `from spindle.testing import Cluster`; checks in `spindle.testing.histories`.

`faults` has the faults of disks and networks, and `filesystem` a file system in memory.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spindle.local.errors import ClusterError
    from spindle.testing.cluster.cluster import Cluster
    from spindle.testing.cluster.node import Disk, NodeHandle

_MODULES: Final = {
    "Cluster": "spindle.testing.cluster.cluster",
    "ClusterError": "spindle.local.errors",
    "NodeHandle": "spindle.testing.cluster.node",
    "Disk": "spindle.testing.cluster.node",
}

__all__ = ["Cluster", "ClusterError", "Disk", "NodeHandle"]


def __getattr__(name: str) -> Any:
    """Import a public class when it is first used: pytest imports this package at every start."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
