"""DescribeAcls and DescribeUserScramCredentials (KIP-140, KIP-554)."""

from collections import Counter
from typing import Final

from spindle.authorization.access import Access
from spindle.authorization.acl_filter import check_filter, matches
from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ErrorCode
from spindle.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from spindle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import CLUSTER_DENIED, may_use_cluster
from spindle.serving.ports import DescribedNode

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"

_Resource = DescribeAclsResponse.DescribeAclsResource
Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def describe_acls(
    node: DescribedNode, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Describe the ACLs that match a filter, by resource pattern."""
    try:
        access = Access(node.authorizer, context.principal, context.client_address, context.api_key)
        access.check_cluster(Operation.DESCRIBE)
        if not node.authorizer.is_active:
            raise ApiError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
        check_filter(request)
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.code, error_message=error.message)
    resources: dict[tuple[int, str, int], _Resource] = {}
    for acl in node.metadata.image.security.acls.values():
        if not matches(request, acl):
            continue
        pattern = (acl.resource_type, acl.resource_name, acl.pattern_type)
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = _Resource(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
            )
        resource.acls.append(
            _Resource.AclDescription(
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission_type,
            )
        )
    return DescribeAclsResponse(error_message="", resources=list(resources.values()))


def describe_user_scram_credentials(
    node: DescribedNode,
    context: RequestContext,
    request: DescribeUserScramCredentialsRequest,
) -> DescribeUserScramCredentialsResponse:
    """Describe mechanisms and iteration counts, never the credentials."""
    if not may_use_cluster(node, context, Operation.DESCRIBE):
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message=CLUSTER_DENIED
        )
    known: dict[str, list[Result.CredentialInfo]] = {}
    for user, credential in node.metadata.image.security.scram.items():
        known.setdefault(user.name, []).append(
            Result.CredentialInfo(mechanism=user.mechanism, iterations=credential.iterations)
        )
    asked = [u.name for u in request.users] if request.users else sorted(known)
    results = []
    for name, times in Counter(asked).items():
        if times > 1:
            code, text = ErrorCode.DUPLICATE_RESOURCE, f"Cannot describe user twice: {name}"
        elif name not in known:
            code = ErrorCode.RESOURCE_NOT_FOUND
            text = f"Attempt to describe a user credential that does not exist: {name}"
        else:
            infos = sorted(known[name], key=lambda info: info.mechanism)
            results.append(Result(user=name, error_message="", credential_infos=infos))
            continue
        results.append(Result(user=name, error_code=code, error_message=text))
    return DescribeUserScramCredentialsResponse(error_message="", results=results)
