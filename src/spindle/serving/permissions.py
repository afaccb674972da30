"""The rights of a request's sender: handlers ask the authorizer through these functions only.

Without an authorizer everything is allowed, after one test. For each kind of resource, a `may_...`
function serves the elements of a request. A `check_...` function raises Kafka's error where a whole
request depends on one resource.

`is_logged` is False where Kafka does not log a refusal: the sender has not named the resource, or
another right may suffice.
"""

from typing import Final, Protocol

from spindle.authorization.authorizer import Authorizer
from spindle.authorization.operations import CLUSTER_NAME, Operation, ResourceType
from spindle.common.errors import ApiError, ErrorCode
from spindle.serving.context import RequestContext

NOT_ASKED: Final = -(2**31)
"""The value of the authorized operations if the request did not ask for them."""
TOPIC_DENIED: Final = "Topic authorization failed."
GROUP_DENIED: Final = "Group authorization failed."
CLUSTER_DENIED: Final = "Cluster authorization failed."
TRANSACTIONAL_ID_DENIED: Final = "Transactional Id authorization failed."


class Guarded(Protocol):
    """A node with an authorizer, which allows everything if none is configured."""

    @property
    def authorizer(self) -> Authorizer: ...


def may_use_topic(
    node: Guarded,
    context: RequestContext,
    operation: Operation,
    name: str,
    *,
    is_logged: bool = True,
) -> bool:
    """Return True if the sender may do `operation` with the topic, which need not exist."""
    return _may_use(node, context, operation, ResourceType.TOPIC, name, is_logged=is_logged)


def may_use_group(
    node: Guarded,
    context: RequestContext,
    operation: Operation,
    group_id: str,
    *,
    is_logged: bool = True,
) -> bool:
    """Return True if the sender may do `operation` with the group."""
    return _may_use(node, context, operation, ResourceType.GROUP, group_id, is_logged=is_logged)


def may_use_transactional_id(
    node: Guarded, context: RequestContext, operation: Operation, transactional_id: str
) -> bool:
    """Return True if the sender may do `operation` with the transactional id."""
    kind = ResourceType.TRANSACTIONAL_ID
    return _may_use(node, context, operation, kind, transactional_id, is_logged=True)


def may_use_cluster(
    node: Guarded, context: RequestContext, operation: Operation, *, is_logged: bool = True
) -> bool:
    """Return True if the sender may do `operation` with the cluster."""
    kind = ResourceType.CLUSTER
    return _may_use(node, context, operation, kind, CLUSTER_NAME, is_logged=is_logged)


def may_use_tokens_of(
    node: Guarded,
    context: RequestContext,
    operation: Operation,
    owner: str,
    *,
    is_logged: bool = True,
) -> bool:
    """Return True if the sender may do `operation` with the tokens of a principal (KIP-373)."""
    return _may_use(node, context, operation, ResourceType.USER, owner, is_logged=is_logged)


def may_describe_token(
    node: Guarded, context: RequestContext, token_id: str, owner: str, *, is_logged: bool
) -> bool:
    """Return True if the sender may see a delegation token that is not its own.

    Args:
        is_logged: whether a refusal is logged: the sender has named the owner.
    """
    return _may_use(
        node, context, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token_id, is_logged=False
    ) or may_use_tokens_of(node, context, Operation.DESCRIBE_TOKENS, owner, is_logged=is_logged)


def may_use_any_topic(node: Guarded, context: RequestContext, operation: Operation) -> bool:
    """Return True if there is some topic name with which the sender may do `operation`."""
    return node.authorizer.allows_by_resource_type(
        context.principal, context.client_address, operation, ResourceType.TOPIC
    )


def check_group(
    node: Guarded, context: RequestContext, operation: Operation, group_id: str
) -> None:
    """Raise GROUP_AUTHORIZATION_FAILED if the sender may not do `operation` with the group."""
    if not may_use_group(node, context, operation, group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, GROUP_DENIED)


def check_transactional_id(
    node: Guarded, context: RequestContext, operation: Operation, transactional_id: str
) -> None:
    """Raise TRANSACTIONAL_ID_AUTHORIZATION_FAILED if the sender may not do `operation` with it."""
    if not may_use_transactional_id(node, context, operation, transactional_id):
        raise ApiError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, TRANSACTIONAL_ID_DENIED)


def check_cluster(node: Guarded, context: RequestContext, operation: Operation) -> None:
    """Raise CLUSTER_AUTHORIZATION_FAILED if the sender may not do `operation` with the cluster."""
    if not may_use_cluster(node, context, operation):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, CLUSTER_DENIED)


def topic_operations(node: Guarded, context: RequestContext, name: str) -> int:
    """Return the sender's authorized operations on a topic, as a bit set (KIP-430)."""
    return _operations(node, context, ResourceType.TOPIC, name)


def group_operations(node: Guarded, context: RequestContext, group_id: str) -> int:
    """Return the sender's authorized operations on a group, as a bit set."""
    return _operations(node, context, ResourceType.GROUP, group_id)


def cluster_operations(node: Guarded, context: RequestContext) -> int:
    """Return the sender's authorized operations on the cluster; 0 if it may not describe it."""
    if not may_use_cluster(node, context, Operation.DESCRIBE):
        return 0
    return _operations(node, context, ResourceType.CLUSTER, CLUSTER_NAME)


def _may_use(
    node: Guarded,
    context: RequestContext,
    operation: Operation,
    kind: ResourceType,
    name: str,
    *,
    is_logged: bool,
) -> bool:
    authorizer = node.authorizer
    return not authorizer.is_active or authorizer.allows(
        context.principal,
        context.client_address,
        operation,
        kind,
        name,
        api_key=context.api_key,
        is_logged=is_logged,
    )


def _operations(node: Guarded, context: RequestContext, kind: ResourceType, name: str) -> int:
    return node.authorizer.allowed_operations(context.principal, context.client_address, kind, name)
