"""The port to the authorizer, and the authorizer of a node that has none configured."""

from typing import Protocol

from spindle.authorization.operations import OPERATIONS_OF, Operation, ResourceType


class Authorizer(Protocol):
    """Decides what a principal may do.

    A principal is a text such as `User:alice`, a host the address of the client.

    Attributes:
        is_active: False if everything is allowed, so that no check is needed.
    """

    is_active: bool

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        api_key: int = -1,
        is_logged: bool = True,
    ) -> bool:
        """Return whether the principal may do this to the resource.

        Args:
            api_key: the request, for the log.
            is_logged: whether a refusal is written to the authorizer's log. False where the
                principal has not named the resource, as when topics are filtered.

        Raises:
            ApiError: UNKNOWN_SERVER_ERROR while the ACLs are not loaded.
        """
        ...

    def allows_by_resource_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        """Return whether the principal may do this to at least one resource of the type
        (KIP-679)."""
        ...

    def allowed_operations(
        self, principal: str, host: str, resource_type: ResourceType, name: str
    ) -> int:
        """Return the operations that the principal may do to a resource, as a bit for each number
        (KIP-430)."""
        ...


def bits(*operations: Operation) -> int:
    """Return the bit field of operations."""
    return sum(1 << operation for operation in operations)


class NoAuthorizer:
    """Allows everything: no authorizer is configured."""

    is_active = False

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        api_key: int = -1,
        is_logged: bool = True,
    ) -> bool:
        return True

    def allows_by_resource_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return True

    def allowed_operations(
        self, principal: str, host: str, resource_type: ResourceType, name: str
    ) -> int:
        return bits(*OPERATIONS_OF[resource_type])
