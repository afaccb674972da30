"""Decisions as those of Kafka's `StandardAuthorizer` (KIP-801)."""

from collections.abc import Collection, Mapping
from functools import lru_cache
from ipaddress import IPv6Address
from typing import Final

from spindle.authorization.acl_index import AclIndex, FoundRights
from spindle.authorization.authorizer import bits
from spindle.authorization.denials import Denials
from spindle.authorization.operations import OPERATIONS_OF, Operation, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.metadata.security import AccessControlEntry

_REMEMBERED: Final = 20_000
"""Cached decisions; cleared when ACLs change."""
_MAX_REMEMBERED: Final = 300
"""Characters of a name. Topics have 249 at most, but a request may name any 32 KB."""


class StandardAuthorizer:
    """Decides by super users and by the ACLs of the metadata.

    An ACL that denies comes first. Without any ACL of a resource, `allow_everyone` decides. Before
    the metadata is loaded, only super users have access.

    Args:
        super_users: principals that may do everything.
        allow_everyone: `allow.everyone.if.no.acl.found`.
        denials: the log of refusals.
    """

    is_active = True

    def __init__(
        self, super_users: Collection[str], denials: Denials, *, allow_everyone: bool = False
    ) -> None:
        self._super_users = frozenset(super_users)
        self._allow_everyone = allow_everyone
        self._denials = denials
        self._is_loaded = False
        self._by_type: dict[int, AclIndex] = {}
        self._by_id: dict[Uuid, AccessControlEntry] = {}
        self._found: dict[tuple[str, str, int, str], FoundRights] = {}
        self._found_any: dict[tuple[str, str, int, int], bool] = {}

    # -- the ACLs

    def load(self, acls: Mapping[Uuid, AccessControlEntry]) -> None:
        """Replace all ACLs."""
        self._by_type, self._by_id = {}, {}
        self.update(acls)

    def update(self, changes: Mapping[Uuid, AccessControlEntry | None]) -> None:
        """Add ACLs and remove those whose value is None, together."""
        for acl_id, acl in changes.items():
            former = self._by_id.pop(acl_id, None)
            if former is not None:
                self._by_type[former.resource_type].remove(former)
            if acl is not None:
                self._by_id[acl_id] = acl
                self._by_type.setdefault(acl.resource_type, AclIndex()).add(acl)
        self._found.clear()
        self._found_any.clear()

    def complete_load(self) -> None:
        """Decide for all users from now on: all committed ACLs are loaded."""
        self._is_loaded = True

    @property
    def acl_count(self) -> int:
        return len(self._by_id)

    # -- decisions

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
        if principal in self._super_users:
            return True
        rights = self._find(principal, host, resource_type, name)
        bit = 1 << operation
        if rights.allowed & bit and not rights.denied & bit:
            return True
        if self._allow_everyone and not rights.has_acls:
            return True
        if is_logged:
            self._denials.note(principal, host, operation, resource_type, name, api_key)
        return False

    def allows_by_resource_type(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        # Kafka asks for a resource of this name, to let in super users and, if there are no ACLs,
        # all.
        if self.allows(principal, host, operation, resource_type, "hardcode", is_logged=False):
            return True
        key = (principal, host, operation, resource_type)
        answer = self._found_any.get(key)
        if answer is None:
            index = self._by_type.get(resource_type)
            answer = index is not None and index.allows_any(
                principal, java_host_text(host), operation
            )
            if len(self._found_any) >= _REMEMBERED:
                self._found_any.clear()
            self._found_any[key] = answer
        return answer

    def allowed_operations(
        self, principal: str, host: str, resource_type: ResourceType, name: str
    ) -> int:
        operations = bits(*OPERATIONS_OF[resource_type])
        if principal in self._super_users:
            return operations
        rights = self._find(principal, host, resource_type, name)
        if self._allow_everyone and not rights.has_acls:
            return operations
        return operations & rights.allowed & ~rights.denied

    def _find(self, principal: str, host: str, resource_type: int, name: str) -> FoundRights:
        key = (principal, host, resource_type, name)
        rights = self._found.get(key)
        if rights is not None:
            return rights
        if not self._is_loaded:
            raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the ACLs are not loaded yet")
        index = self._by_type.get(resource_type)
        if index is None:
            rights = FoundRights(0, 0, has_acls=False)
        else:
            rights = index.find(principal, java_host_text(host), name)
        if len(name) <= _MAX_REMEMBERED:
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            self._found[key] = rights
        return rights


def java_host_text(address: str) -> str:
    """Return an address as Java writes it, because ACLs contain hosts in this form.

    An IPv6 address has eight groups without leading zeros. An IPv4-mapped IPv6 address is returned
    as IPv4.
    """
    return _ipv6_text(address) if ":" in address else address


@lru_cache(maxsize=4096)
def _ipv6_text(address: str) -> str:
    try:
        parsed = IPv6Address(address.partition("%")[0])
    except ValueError:
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return ":".join(f"{int(group, 16):x}" for group in parsed.exploded.split(":"))
