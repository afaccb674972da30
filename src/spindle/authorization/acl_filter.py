"""Filters of ACLs, as DescribeAcls and DeleteAcls have them (KIP-140, KIP-290)."""

from enum import IntEnum
from typing import Protocol, TypeVar

from spindle.authorization.acl_index import ANY_NAME
from spindle.authorization.operations import Operation, PatternType, Permission, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.metadata.security import AccessControlEntry

E = TypeVar("E", bound=IntEnum)


class AclFilter(Protocol):
    """A filter of a request. A name, principal or host that is None matches all."""

    @property
    def resource_type_filter(self) -> int: ...
    @property
    def resource_name_filter(self) -> str | None: ...
    @property
    def pattern_type_filter(self) -> int: ...
    @property
    def principal_filter(self) -> str | None: ...
    @property
    def host_filter(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...


def enum_or_unknown(kind: type[E], number: int) -> E:
    """Return the member with this number, UNKNOWN if there is none."""
    try:
        return kind(number)
    except ValueError:
        return kind(0)


def check_filter(wanted: AclFilter) -> None:
    """Refuse a filter with a number that this release does not know.

    Raises:
        ApiError: INVALID_REQUEST.
    """
    if not (
        enum_or_unknown(ResourceType, wanted.resource_type_filter)
        and enum_or_unknown(PatternType, wanted.pattern_type_filter)
    ):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if not (
        enum_or_unknown(Operation, wanted.operation)
        and enum_or_unknown(Permission, wanted.permission_type)
    ):
        raise ApiError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")


def matches(wanted: AclFilter, acl: AccessControlEntry) -> bool:
    """Return whether an ACL falls under a filter."""
    return (
        wanted.resource_type_filter in (ResourceType.ANY, acl.resource_type)
        and _pattern_matches(wanted, acl)
        and wanted.principal_filter in (None, acl.principal)
        and wanted.host_filter in (None, acl.host)
        and wanted.operation in (Operation.ANY, acl.operation)
        and wanted.permission_type in (Permission.ANY, acl.permission_type)
    )


def _pattern_matches(wanted: AclFilter, acl: AccessControlEntry) -> bool:
    name, pattern_type = wanted.resource_name_filter, wanted.pattern_type_filter
    if pattern_type not in (PatternType.ANY, PatternType.MATCH, acl.pattern_type):
        return False
    if name is None or name == acl.resource_name:
        return True
    if pattern_type != PatternType.MATCH:
        return False
    if acl.pattern_type == PatternType.LITERAL:
        return acl.resource_name == ANY_NAME
    return name.startswith(acl.resource_name)
