"""The errors of nodes and clusters on this machine."""


class LocalError(Exception):
    """Nodes or their directories cannot do what was asked; the text says why."""


class ClusterError(LocalError):
    """A cluster or a node did not do what was asked. The text says why, with the log's end."""


class NodeGone(ClusterError):
    """A node does not run, or has ended before it answered."""


class FormatError(LocalError):
    """Directories cannot be formatted."""
