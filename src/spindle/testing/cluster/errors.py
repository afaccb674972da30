"""The errors of clusters for tests."""


class ClusterError(Exception):
    """A cluster or a node did not do what was asked. The text says why, with the log's end."""


class NodeGone(ClusterError):
    """A node does not run, or has ended before it answered."""
