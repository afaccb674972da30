"""CreateAcls and DeleteAcls (KIP-290, KIP-801)."""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.controller.decision import ControllerContext, Decision
from spindle.metadata.image import MetadataImage
from spindle.metadata.security import AccessControlEntry
from spindle.protocol.message import Message
from spindle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from spindle.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from spindle.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

ANY: Final = 1
"""In a filter: all values of the field."""
MATCH: Final = 2
"""In a filter: all patterns that would apply to the resource."""
LITERAL: Final = 3
PREFIXED: Final = 4
WILDCARD: Final = "*"
_RESOURCE_TYPES: Final = range(2, 8)
_OPERATIONS: Final = range(2, 16)
_PERMISSIONS: Final = (2, 3)

_Creation = CreateAclsRequest.AclCreation
_Filter = DeleteAclsRequest.DeleteAclsFilter
_FilterResult = DeleteAclsResponse.DeleteAclsFilterResult


def create_acls(
    image: MetadataImage, request: CreateAclsRequest, context: ControllerContext
) -> Decision[CreateAclsResponse]:
    """Add ACLs; one that exists already is accepted and not written again.

    Raises:
        ApiError: SECURITY_DISABLED without an authorizer.
    """
    _check_authorizer(context)
    existing = dict.fromkeys(image.security.acls.values())
    records: list[Message] = []
    results: list[CreateAclsResponse.AclCreationResult] = []
    for creation in request.creations:
        code, text = ErrorCode.NONE, None
        try:
            entry = _entry(creation)
            if entry not in existing:
                existing[entry] = None
                records.append(_record(context.new_uuid(), entry))
        except ApiError as error:
            code, text = error.code, error.message
        results.append(CreateAclsResponse.AclCreationResult(error_code=code, error_message=text))
    return Decision(CreateAclsResponse(results=results), records, is_atomic=True)


def delete_acls(
    image: MetadataImage, request: DeleteAclsRequest, context: ControllerContext
) -> Decision[DeleteAclsResponse]:
    """Remove all ACLs that match a filter.

    Raises:
        ApiError: SECURITY_DISABLED without an authorizer.
    """
    _check_authorizer(context)
    gone: dict[Uuid, None] = {}
    results: list[_FilterResult] = []
    for wanted in request.filters:
        matching: list[_FilterResult.DeleteAclsMatchingAcl] = []
        for acl_id, entry in image.security.acls.items():
            if matches(wanted, entry):
                gone[acl_id] = None
                matching.append(
                    _FilterResult.DeleteAclsMatchingAcl(error_message=None, **entry._asdict())
                )
        results.append(_FilterResult(error_message=None, matching_acls=matching))
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
    return Decision(DeleteAclsResponse(filter_results=results), records, is_atomic=True)


def matches(wanted: _Filter, entry: AccessControlEntry) -> bool:
    """Return whether an ACL falls under a filter."""
    return (
        wanted.resource_type_filter in (ANY, entry.resource_type)
        and _pattern_matches(wanted, entry)
        and wanted.principal_filter in (None, entry.principal)
        and wanted.host_filter in (None, entry.host)
        and wanted.operation in (ANY, entry.operation)
        and wanted.permission_type in (ANY, entry.permission_type)
    )


def _pattern_matches(wanted: _Filter, entry: AccessControlEntry) -> bool:
    name = wanted.resource_name_filter
    if wanted.pattern_type_filter not in (ANY, MATCH, entry.pattern_type):
        return False
    if name is None or name == entry.resource_name:
        return True
    if wanted.pattern_type_filter != MATCH:
        return False
    if entry.pattern_type == LITERAL:
        return entry.resource_name == WILDCARD
    return name.startswith(entry.resource_name)


def _check_authorizer(context: ControllerContext) -> None:
    if not context.settings.has_authorizer:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _entry(creation: _Creation) -> AccessControlEntry:
    def refuse(what: str, value: object) -> ApiError:
        return ApiError(ErrorCode.INVALID_REQUEST, f"Invalid {what} in ACL: {value}")

    if creation.resource_type not in _RESOURCE_TYPES:
        raise refuse("resource type", creation.resource_type)
    if creation.resource_pattern_type not in (LITERAL, PREFIXED):
        raise refuse("pattern type", creation.resource_pattern_type)
    if creation.operation not in _OPERATIONS:
        raise refuse("operation", creation.operation)
    if creation.permission_type not in _PERMISSIONS:
        raise refuse("permission type", creation.permission_type)
    if not creation.resource_name:
        raise refuse("resource name", "it is empty")
    if ":" not in creation.principal:
        raise refuse("principal", creation.principal)
    return AccessControlEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _record(acl_id: Uuid, entry: AccessControlEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=acl_id, **entry._asdict())
