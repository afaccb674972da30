"""Nodes on this machine: `from spindle.local import Cluster`.

`Cluster` starts real processes for scripts, notebooks and demonstrations. `spindle.testing.Cluster`
is the same with faults. `spindle up` supervises the same node processes in its own process, and
`spindle storage format` formats with `spindle.local.formatting`.
"""

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spindle.local.cluster import Cluster
    from spindle.local.errors import ClusterError
    from spindle.local.node import NodeHandle

_MODULES: Final = {
    "Cluster": "spindle.local.cluster",
    "ClusterError": "spindle.local.errors",
    "NodeHandle": "spindle.local.node",
}

__all__ = ["Cluster", "ClusterError", "NodeHandle"]


def __getattr__(name: str) -> Any:
    """Import a public class when it is first used: each command imports the errors only."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES[name]), name)
