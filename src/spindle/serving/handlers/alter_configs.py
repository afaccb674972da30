"""The broker's part of changing configuration: AlterConfigs and IncrementalAlterConfigs.

The controller decides on changes. The broker first refuses values that only it can judge (its
directories, KIP-1066), and applies levels of its own loggers (KIP-412), which are not stored.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

from spindle.authorization.operations import Operation
from spindle.common.errors import ApiError, ConfigError, ErrorCode
from spindle.config.broker_synonyms import listener_override
from spindle.config.listener_config import may_be_of_listener
from spindle.config.resources import ConfigResourceType
from spindle.config.validate import validate_broker, validate_own_broker
from spindle.controller.configs import APPEND, CORDONED_LOG_DIRS, SUBTRACT, check_form
from spindle.metadata.configs import ConfigResource
from spindle.protocol.api import response_class
from spindle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spindle.serving.context import RequestContext, check_own_id
from spindle.serving.handlers.broker_loggers import change_logger_levels
from spindle.serving.permissions import may_use_cluster
from spindle.serving.ports import DescribedNode
from spindle.serving.services import BrokerServices

_Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
_Replaced = AlterConfigsRequest.AlterConfigsResource
_Request = TypeVar("_Request", IncrementalAlterConfigsRequest, AlterConfigsRequest)

_DELETE_OPERATION: Final = 1
_OTHER_NODE: Final = "Unexpected node id. Expected {}, but"
_OTHER_BROKER: Final = "Unexpected broker id, expected {}, but"


async def incremental_alter_configs(
    services: BrokerServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Check the resources that only this broker can judge, and forward the request."""
    response: IncrementalAlterConfigsResponse = await alter_own_first(
        context,
        request,
        lambda asked: _change_own(services, context, asked, validate_only=request.validate_only),
        services.controller.request,
    )
    return response


async def alter_configs(
    services: BrokerServices, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace all values of resources (the older API)."""
    response: AlterConfigsResponse = await alter_own_first(
        context,
        request,
        lambda asked: _check_replaced(services, context, asked),
        services.controller.request,
    )
    return response


async def alter_own_first(
    context: RequestContext,
    request: _Request,
    change_own: Callable[[Any], Awaitable[bool]],
    forward: Callable[[_Request, RequestContext], Awaitable[Any]],
) -> Any:
    """Apply `change_own` to each resource, and forward the others in one request.

    Args:
        change_own: returns True if the resource needs no forwarding; an ApiError is its result.
    """
    response: Any = response_class(request.API_KEY)()
    done: dict[int, Any] = {}
    for index, asked in enumerate(request.resources):
        result = response.AlterConfigsResourceResponse(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            error_message=None,
        )
        try:
            is_done = await change_own(asked)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            is_done = True
        if is_done:
            done[index] = result
    rest = [asked for index, asked in enumerate(request.resources) if index not in done]
    others: Any = iter(())
    if rest:
        left = type(request)(resources=rest, validate_only=request.validate_only)
        others = iter((await forward(left, context)).responses)
    response.responses = [
        done[index] if index in done else next(others) for index in range(len(request.resources))
    ]
    return response


async def change_own_loggers(
    node: DescribedNode, context: RequestContext, asked: _Changed, *, validate_only: bool
) -> bool:
    """Change levels of this node's loggers; return False for another kind of resource."""
    if asked.resource_type != ConfigResourceType.BROKER_LOGGER:
        return False
    values = [(c.name, c.value) for c in asked.configs if c.config_operation != _DELETE_OPERATION]
    check_form([config.name for config in asked.configs], values)
    _check_sender(node, context)
    check_own_id(node.node_id, asked.resource_name, _OTHER_NODE, "Node")
    operations = [(c.name, c.config_operation, c.value) for c in asked.configs]
    change_logger_levels(operations, validate_only=validate_only)
    return True


def _check_sender(node: DescribedNode, context: RequestContext) -> None:
    """Refuse a sender that may not alter brokers.

    This comes before values are checked: the errors of values show names of files and other
    settings of this node. As in Kafka, the refusal is a code without a text.
    """
    if not may_use_cluster(node, context, Operation.ALTER_CONFIGS):
        raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


async def _change_own(
    services: BrokerServices, context: RequestContext, asked: _Changed, *, validate_only: bool
) -> bool:
    """Check a change of a broker, or change its loggers.

    Returns:
        True if nothing is left for the controller.
    """
    if await change_own_loggers(services, context, asked, validate_only=validate_only):
        return True
    if asked.resource_type == ConfigResourceType.BROKER:
        kept = [c for c in asked.configs if c.config_operation != _DELETE_OPERATION]
        values = [(c.name, c.value) for c in kept]
        check_form([config.name for config in asked.configs], values)
        _check_sender(services, context)
        if asked.resource_name:
            check_own_id(services.node_id, asked.resource_name, _OTHER_BROKER, "Node")
        edits = {
            c.name: c.config_operation
            for c in kept
            if c.name == CORDONED_LOG_DIRS and c.config_operation in (APPEND, SUBTRACT)
        }
        await _check_broker_values(
            services,
            asked.resource_name,
            {name: v for name, v in values if v is not None and name not in edits},
            [c.name for c in asked.configs if c.config_operation == _DELETE_OPERATION],
        )
        # Only the controller knows the whole list, so only the added paths are checked here.
        added = {n: v for n, v in values if v is not None and edits.get(n) == APPEND}
        if added:
            await _check_broker_values(services, asked.resource_name, added, [])
    return False


async def _check_replaced(
    services: BrokerServices, context: RequestContext, asked: _Replaced
) -> bool:
    """Check new values of a broker; return False, because the controller stores them."""
    if asked.resource_type != ConfigResourceType.BROKER:
        return False
    check_form([c.name for c in asked.configs], [(c.name, c.value) for c in asked.configs])
    _check_sender(services, context)
    if asked.resource_name:
        check_own_id(services.node_id, asked.resource_name, _OTHER_BROKER, "Node")
    values = {config.name: config.value for config in asked.configs if config.value is not None}
    own = services.metadata.image.configs.of(
        ConfigResource(asked.resource_type, asked.resource_name)
    )
    deleted = [name for name in own if name not in values]
    await _check_broker_values(services, asked.resource_name, values, deleted)
    return False


async def _check_broker_values(
    services: BrokerServices,
    name: str,
    values: Mapping[str, str],
    deleted: Sequence[str],
) -> None:
    validate_broker(name, values)
    configs = services.metadata.image.configs
    cluster, own = configs.default_broker(), configs.broker(services.node_id)
    kept = {k: v for k, v in (own if name else cluster).items() if k not in deleted}
    dynamic = {**cluster, **kept} if name else {**kept, **own}
    validate_own_broker(services.config, values, dynamic)
    if any(may_be_of_listener(listener_override(key) or key) for key in (*values, *deleted)):
        try:
            await services.check_listeners({**dynamic, **values})
        except ConfigError as error:
            raise ApiError(ErrorCode.INVALID_REQUEST, str(error)) from None
