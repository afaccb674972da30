"""CreateAcls and DeleteAcls (KIP-140, KIP-290, KIP-801, KIP-1276)."""

from typing import Final

from spindle.authorization.acl_filter import check_filter, enum_or_unknown, matches
from spindle.authorization.host_patterns import is_range, parse_range
from spindle.authorization.operations import (
    CLUSTER_NAME,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid
from spindle.controller.decision import (
    MAX_RECORDS_PER_OPERATION,
    ControllerContext,
    Decision,
    OperationContext,
)
from spindle.metadata.features import CIDR_HOSTS_LEVEL
from spindle.metadata.security import AccessControlEntry
from spindle.protocol.message import Message
from spindle.protocol.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from spindle.protocol.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from spindle.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)

_PATTERNS: Final = (PatternType.LITERAL, PatternType.PREFIXED)
_PERMISSIONS: Final = (Permission.DENY, Permission.ALLOW)

_Creation = CreateAclsRequest.AclCreation
_Filter = DeleteAclsRequest.DeleteAclsFilter
_FilterResult = DeleteAclsResponse.DeleteAclsFilterResult


def create_acls(
    given: OperationContext, request: CreateAclsRequest
) -> Decision[CreateAclsResponse]:
    """Add ACLs; one that exists already is accepted and not written again.

    Raises:
        ApiError: SECURITY_DISABLED without an authorizer, POLICY_VIOLATION for more than 10,000
            new ACLs.
    """
    _check_authorizer(given.context)
    existing = dict.fromkeys(given.image.security.acls.values())
    records: list[Message] = []
    results: list[CreateAclsResponse.AclCreationResult] = []
    code: ErrorCode
    text: str | None
    for creation in request.creations:
        code, text = ErrorCode.NONE, ""
        try:
            entry = _entry(creation)
            _check_host(entry.host, given.image.features.metadata_version)
            if entry not in existing:
                existing[entry] = None
                records.append(_record(given.context.new_uuid(), entry))
        except ApiError as error:
            code, text = error.code, error.message
        results.append(CreateAclsResponse.AclCreationResult(error_code=code, error_message=text))
    if len(records) > MAX_RECORDS_PER_OPERATION:
        raise ApiError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )
    return Decision(CreateAclsResponse(results=results), records, is_atomic=True)


def delete_acls(
    given: OperationContext, request: DeleteAclsRequest
) -> Decision[DeleteAclsResponse]:
    """Remove all ACLs that match a filter; each filter has its own result.

    Raises:
        ApiError: SECURITY_DISABLED without an authorizer.
    """
    _check_authorizer(given.context)
    gone: dict[Uuid, None] = {}
    results: list[_FilterResult] = []
    for wanted in request.filters:
        try:
            check_filter(wanted)
            acls = {k: acl for k, acl in given.image.security.acls.items() if matches(wanted, acl)}
            if len(gone.keys() | acls.keys()) > MAX_RECORDS_PER_OPERATION:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete "
                    "operation.",
                )
        except ApiError as error:
            results.append(_FilterResult(error_code=error.code, error_message=error.message))
            continue
        gone |= dict.fromkeys(acls)
        matching = [
            _FilterResult.DeleteAclsMatchingAcl(error_message=None, **acl._asdict())
            for acl in acls.values()
        ]
        results.append(_FilterResult(error_message=None, matching_acls=matching))
    records: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in gone]
    return Decision(DeleteAclsResponse(filter_results=results), records, is_atomic=True)


def _check_authorizer(context: ControllerContext) -> None:
    if not context.settings.has_authorizer:
        raise ApiError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")


def _entry(creation: _Creation) -> AccessControlEntry:
    kind = enum_or_unknown(ResourceType, creation.resource_type)
    pattern = enum_or_unknown(PatternType, creation.resource_pattern_type)
    operation = enum_or_unknown(Operation, creation.operation)
    permission = enum_or_unknown(Permission, creation.permission_type)
    if kind is ResourceType.CLUSTER and creation.resource_name != CLUSTER_NAME:
        raise _refusal(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not creation.resource_name:
        raise _refusal("Invalid empty resource name")
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise _refusal(f"Invalid resourceType {kind.name}")
    if pattern not in _PATTERNS:
        raise _refusal(f"Invalid patternType {pattern.name}")
    if operation in (Operation.UNKNOWN, Operation.ANY):
        raise _refusal(f"Invalid operation {operation.name}")
    if permission not in _PERMISSIONS:
        raise _refusal(f"Invalid permissionType {permission.name}")
    if ":" not in creation.principal:
        raise _refusal(
            f"Could not parse principal from `{creation.principal}` (no colon is present "
            "separating the principal type from the principal name)"
        )
    return AccessControlEntry(
        creation.resource_type,
        creation.resource_name,
        creation.resource_pattern_type,
        creation.principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check_host(host: str, metadata_version_level: int) -> None:
    if not host:
        raise _refusal("Host pattern cannot be null or empty")
    if not is_range(host):
        return
    if metadata_version_level < CIDR_HOSTS_LEVEL:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            "CIDR-based ACL host patterns require metadata version 4.4-IV1 or higher.",
        )
    try:
        parse_range(host)
    except ValueError as error:
        raise _refusal(f"Invalid CIDR notation '{host}': {error}") from None


def _refusal(text: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, text)


def _record(acl_id: Uuid, entry: AccessControlEntry) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(id=acl_id, **entry._asdict())
