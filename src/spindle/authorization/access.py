"""A request's sender, with the authorizer that decides about it."""

from typing import Final, NamedTuple

from spindle.authorization.authorizer import Authorizer, NoAuthorizer
from spindle.authorization.operations import CLUSTER_NAME, Operation, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.api import ApiKey


class Access(NamedTuple):
    """The rights of the sender of one request.

    Attributes:
        principal: a text such as `User:alice`.
        host: the address of the client.
        api_key: that of the request, for texts and the log; -1 without a request.
    """

    authorizer: Authorizer
    principal: str
    host: str
    api_key: int

    def allows(
        self,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the sender may do this to the resource."""
        return self.authorizer.allows(
            self.principal,
            self.host,
            operation,
            resource_type,
            name,
            api_key=self.api_key,
            is_logged=is_logged,
        )

    def check_cluster(self, operation: Operation) -> None:
        """Refuse a sender that may not do this to the cluster.

        Raises:
            ApiError: CLUSTER_AUTHORIZATION_FAILED.
        """
        if not self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME):
            raise ApiError(
                ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
                f"Request {ApiKey(self.api_key).name} needs {operation.name} permission.",
            )


FULL_ACCESS: Final = Access(NoAuthorizer(), "", "", -1)
"""The access of a node to its own controller."""
