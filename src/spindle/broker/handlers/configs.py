"""DescribeConfigs, ListConfigResources and the broker's part of changing configuration.

What is set comes from the metadata image and the node's property file. Changes are decided by the
controller; the broker first refuses what only it can judge (its directories, KIP-1066) and applies
levels of its own loggers (KIP-412), which are kept nowhere.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from spindle.broker.context import RequestContext
from spindle.broker.handlers.broker_loggers import (
    change_logger_levels,
    describe_loggers,
)
from spindle.broker.pacing import paced
from spindle.broker.ports import DescribedNode
from spindle.broker.services import BrokerServices
from spindle.common.errors import ApiError, ErrorCode
from spindle.config.describe import (
    BrokerLayers,
    DescribedConfig,
    describe_broker,
    describe_client_metrics,
    describe_default_broker,
    describe_group,
    describe_topic,
)
from spindle.config.resources import ResourceType
from spindle.config.validate import validate_broker, validate_own_broker
from spindle.controller.configs import check_form
from spindle.controller.topic_names import check_topic_name
from spindle.metadata.configs import ConfigResource
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from spindle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from spindle.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from spindle.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_Asked = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Row = _Result.DescribeConfigsResourceResult
_Changed = IncrementalAlterConfigsRequest.AlterConfigsResource
_ChangeResult = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
_Replaced = AlterConfigsRequest.AlterConfigsResource
_ReplaceResult = AlterConfigsResponse.AlterConfigsResourceResponse

_DELETE_OPERATION: Final = 1
_OTHER_NODE: Final = "Unexpected node id. Expected {}, but"
_OTHER_BROKER: Final = "Unexpected broker id, expected {}, but"


async def describe_configs(
    node: DescribedNode, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """The effective configuration of each resource, sorted by key.

    A resource named again is refused: all keys with their documentation are tens of kilobytes.
    """
    results = []
    seen: set[tuple[int, str]] = set()
    async for asked in paced(request.resources):
        key = (asked.resource_type, asked.resource_name)
        if key in seen:
            results.append(
                _Result(
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                    error_code=ErrorCode.INVALID_REQUEST,
                    error_message="The resource is named twice in the request.",
                )
            )
            continue
        seen.add(key)
        results.append(_describe(node, request, asked))
    return DescribeConfigsResponse(results=results)


def _describe(
    node: DescribedNode, request: DescribeConfigsRequest, asked: _Asked
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = _Result(resource_type=asked.resource_type, resource_name=asked.resource_name)
    try:
        described = _described(node, asked)
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    result.configs = [
        _Row(
            name=config.name,
            value=config.value,
            read_only=config.is_read_only,
            config_source=config.source,
            is_sensitive=config.is_sensitive,
            synonyms=[
                _Row.DescribeConfigsSynonym(name=s.name, value=s.value, source=s.source)
                for s in config.synonyms
            ]
            if request.include_synonyms
            else [],
            config_type=config.type,
            documentation=config.documentation if request.include_documentation else None,
        )
        for config in described
    ]
    return result


def _described(node: DescribedNode, asked: _Asked) -> list[DescribedConfig]:
    image, name, keys = node.metadata.image, asked.resource_name, asked.configuration_keys
    layers = BrokerLayers(
        node.config, image.configs.default_broker(), image.configs.broker(node.node_id)
    )
    if asked.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describe_topic(layers, image.configs.topic(name), keys)
    if asked.resource_type == ResourceType.BROKER:
        if not name:
            return describe_default_broker(image.configs.default_broker(), keys)
        _check_own_id(node, name, "Unexpected broker id, expected {} or empty string, but")
        return describe_broker(layers, keys)
    if asked.resource_type == ResourceType.BROKER_LOGGER:
        _check_own_id(node, name, "Unexpected broker id, expected {} but")
        return describe_loggers(keys)
    own = image.configs.of(ConfigResource(asked.resource_type, name))
    if asked.resource_type == ResourceType.GROUP:
        _check_named(name, "Group name")
        return describe_group(layers, own, keys)
    if asked.resource_type == ResourceType.CLIENT_METRICS:
        _check_named(name, "Client metrics subscription name")
        return describe_client_metrics(own, keys)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {asked.resource_type}")


def _check_own_id(node: DescribedNode, name: str, unexpected: str, noun: str = "Broker") -> None:
    """`unexpected` is the text for another node's id; `{}` stands for the own one."""
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if not name.removeprefix("-").isdecimal():
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"{noun} id must be an integer, but it is: {name}"
        )
    if int(name) != node.node_id:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"{unexpected.format(node.node_id)} received {name}",
        )


def _check_named(name: str, what: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def list_config_resources(
    services: BrokerServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """The resources that can be described (KIP-1142); without a wish, all kinds."""
    supported = (
        ResourceType.TOPIC,
        ResourceType.BROKER,
        ResourceType.BROKER_LOGGER,
        ResourceType.CLIENT_METRICS,
        ResourceType.GROUP,
    )
    if context.api_version == 0:
        wanted: list[int] = [ResourceType.CLIENT_METRICS]
    else:
        wanted = list(dict.fromkeys(request.resource_types)) or [*supported]
    if any(kind not in supported for kind in wanted):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    image = services.metadata.image
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in wanted
            for name in _resource_names(image, kind)
        ]
    )


def _resource_names(image: MetadataImage, kind: int) -> list[str]:
    if kind == ResourceType.TOPIC:
        return sorted(image.topics.by_name)
    if kind in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.cluster.brokers)]
    return sorted(r.name for r in image.configs.by_resource if r.resource_type == kind)


async def incremental_alter_configs(
    services: BrokerServices, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    """Check what only this broker can judge; the controller decides on the rest."""
    return await alter_own_first(
        context,
        request,
        lambda asked: _change_own(services, asked, validate_only=request.validate_only),
        services.controller.request,
    )


async def alter_own_first(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    change_own: Callable[[_Changed], bool],
    forward: Callable[[IncrementalAlterConfigsRequest, RequestContext], Awaitable[Any]],
) -> IncrementalAlterConfigsResponse:
    """Give each resource to `change_own`, and what that leaves to `forward` in one request.

    Args:
        change_own: True if the resource is done with; an ApiError is its result.
    """
    done: dict[int, _ChangeResult] = {}
    for index, asked in enumerate(request.resources):
        result = _ChangeResult(
            resource_type=asked.resource_type,
            resource_name=asked.resource_name,
            error_message=None,
        )
        try:
            is_done = change_own(asked)
        except ApiError as error:
            result.error_code, result.error_message = error.code, error.message
            is_done = True
        if is_done:
            done[index] = result
    rest = [asked for index, asked in enumerate(request.resources) if index not in done]
    forwarded: list[_ChangeResult] = []
    if rest:
        answer: IncrementalAlterConfigsResponse = await forward(
            IncrementalAlterConfigsRequest(resources=rest, validate_only=request.validate_only),
            context,
        )
        forwarded = answer.responses
    others = iter(forwarded)
    merged = [done[i] if i in done else next(others) for i in range(len(request.resources))]
    return IncrementalAlterConfigsResponse(responses=merged)


def change_own_loggers(node: DescribedNode, asked: _Changed, *, validate_only: bool) -> bool:
    """Change levels of this node's loggers; False for another kind of resource."""
    if asked.resource_type != ResourceType.BROKER_LOGGER:
        return False
    values = [(c.name, c.value) for c in asked.configs if c.config_operation != _DELETE_OPERATION]
    check_form([config.name for config in asked.configs], values)
    _check_own_id(node, asked.resource_name, _OTHER_NODE, "Node")
    operations = [(c.name, c.config_operation, c.value) for c in asked.configs]
    change_logger_levels(operations, validate_only=validate_only)
    return True


def _change_own(services: BrokerServices, asked: _Changed, *, validate_only: bool) -> bool:
    """Check a change of a broker or its loggers; True if nothing is left for the controller."""
    if change_own_loggers(services, asked, validate_only=validate_only):
        return True
    if asked.resource_type == ResourceType.BROKER:
        kept = [c for c in asked.configs if c.config_operation != _DELETE_OPERATION]
        values = [(c.name, c.value) for c in kept]
        check_form([config.name for config in asked.configs], values)
        if asked.resource_name:
            _check_own_id(services, asked.resource_name, _OTHER_BROKER, "Node")
        _check_broker_values(
            services, asked.resource_name, {name: v for name, v in values if v is not None}
        )
    return False


async def alter_configs(
    services: BrokerServices, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    """Replace the values of resources (the older API)."""
    done: dict[int, _ReplaceResult] = {}
    for index, asked in enumerate(request.resources):
        if asked.resource_type == ResourceType.BROKER:
            try:
                _check_replaced(services, asked)
            except ApiError as error:
                done[index] = _ReplaceResult(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=asked.resource_type,
                    resource_name=asked.resource_name,
                )
    rest = [asked for index, asked in enumerate(request.resources) if index not in done]
    forwarded: list[_ReplaceResult] = []
    if rest:
        answer: AlterConfigsResponse = await services.controller.request(
            AlterConfigsRequest(resources=rest, validate_only=request.validate_only),
            context,
        )
        forwarded = answer.responses
    others = iter(forwarded)
    merged = [done[i] if i in done else next(others) for i in range(len(request.resources))]
    return AlterConfigsResponse(responses=merged)


def _check_replaced(services: BrokerServices, asked: _Replaced) -> None:
    check_form([c.name for c in asked.configs], [(c.name, c.value) for c in asked.configs])
    if asked.resource_name:
        _check_own_id(services, asked.resource_name, _OTHER_BROKER, "Node")
    values = {config.name: config.value for config in asked.configs if config.value is not None}
    _check_broker_values(services, asked.resource_name, values)


def _check_broker_values(services: BrokerServices, name: str, values: Mapping[str, str]) -> None:
    validate_broker(name, values)
    configs = services.metadata.image.configs
    dynamic = {**configs.default_broker(), **configs.broker(services.node_id)}
    validate_own_broker(services.config, values, dynamic)
