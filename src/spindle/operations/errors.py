"""The errors of operations."""

from typing import Final

from spindle.client.errors import ClientError
from spindle.common.errors import ApiError, ConfigError, ProtocolViolation


class OperationFailed(Exception):
    """An operation cannot do what it was asked for. The text says why, and what to do."""


class ReplicasMoving(OperationFailed):
    """Replicas are on the move, so sizes and places would be wrong soon."""


CLUSTER_FAILURES: Final = (ApiError, ClientError, ConfigError, OSError, ProtocolViolation)
"""The exceptions of a cluster or a file that cannot be used now."""
