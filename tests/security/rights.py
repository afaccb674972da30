"""An authorizer for tests of what handlers do with its answers."""

from spindle.authorization.authorizer import NoAuthorizer, bits
from spindle.authorization.operations import OPERATIONS_OF, Operation, ResourceType


class Rights(NoAuthorizer):
    """Allows what it is told, to everybody."""

    is_active = True

    def __init__(self, *allowed: tuple[Operation, str]) -> None:
        self.allowed = {*allowed}

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
        return (operation, name) in self.allowed

    def allows_by_resource_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return any(allowed == operation for allowed, _ in self.allowed)

    def allowed_operations(
        self, principal: str, host: str, resource_type: ResourceType, name: str
    ) -> int:
        return bits(*(o for o in OPERATIONS_OF[resource_type] if (o, name) in self.allowed))
