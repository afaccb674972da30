"""DescribeAcls and DescribeUserScramCredentials (KIP-133, KIP-554).

Spindle has no authorizer: ACLs are refused as Kafka refuses them where none is configured.
"""

from collections import Counter
from typing import Final

from spindle.authorization.operations import Operation
from spindle.common.errors import ErrorCode
from spindle.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from spindle.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from spindle.serving.context import RequestContext
from spindle.serving.permissions import CLUSTER_DENIED, may_use_cluster
from spindle.serving.ports import DescribedNode

NO_AUTHORIZER: Final = "No Authorizer is configured on the broker"

Result = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult


def describe_acls(
    node: DescribedNode, context: RequestContext, request: DescribeAclsRequest
) -> DescribeAclsResponse:
    """Refuse DescribeAcls: there is no authorizer."""
    return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)


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
