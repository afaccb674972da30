"""The errors of operations."""

from typing import Final

from spindle.client.errors import ClientError
from spindle.common.errors import ApiError, ConfigError, ProtocolViolation


class OperationFailed(Exception):
    """An operation failed. The text gives the reason and a remedy."""


class ReplicasMoving(OperationFailed):
    """Replicas are moving, so sizes and places would soon be wrong."""


CLUSTER_FAILURES: Final = (ApiError, ClientError, ConfigError, OSError, ProtocolViolation)
"""The exceptions of a cluster or a file that cannot be used now."""
