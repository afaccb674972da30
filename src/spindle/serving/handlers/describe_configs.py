"""DescribeConfigs and ListConfigResources: the metadata image over the node's property file."""

from typing import Final

from spindle.authorization.operations import Operation
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
from spindle.config.resources import ConfigResourceType
from spindle.controller.topic_names import check_topic_name
from spindle.metadata.configs import ConfigResource
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from spindle.protocol.messages.list_config_resources import (
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from spindle.serving.context import RequestContext, check_own_id
from spindle.serving.cooperative import cooperatively
from spindle.serving.handlers.broker_loggers import describe_loggers
from spindle.serving.permissions import (
    TOPIC_DENIED,
    check_cluster,
    check_group,
    may_use_cluster,
    may_use_topic,
)
from spindle.serving.ports import DescribedNode
from spindle.serving.services import BrokerServices

_Asked = DescribeConfigsRequest.DescribeConfigsResource
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Row = _Result.DescribeConfigsResourceResult
_NAMED_TWICE: Final = "The resource is named twice in the request."


async def describe_configs(
    node: DescribedNode, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Describe the effective configuration of each resource, sorted by key.

    Refuse a resource that is named again: all keys with documentation are tens of kilobytes.
    """
    results, denied = [], []
    seen: set[tuple[int, str]] = set()
    async for asked in cooperatively(request.resources):
        key = (asked.resource_type, asked.resource_name)
        if key in seen:
            results.append(_refused(asked, ApiError(ErrorCode.INVALID_REQUEST, _NAMED_TWICE)))
            continue
        seen.add(key)
        try:
            _check_sender(node, context, asked)
        except ApiError as error:
            denied.append(_refused(asked, error))
        else:
            results.append(_describe(node, request, asked))
    return DescribeConfigsResponse(results=results + denied)


def _check_sender(node: DescribedNode, context: RequestContext, asked: _Asked) -> None:
    """Raise ApiError unless the sender may describe the configuration of the resource."""
    kind, name = asked.resource_type, asked.resource_name
    if kind == ConfigResourceType.TOPIC:
        if not may_use_topic(node, context, Operation.DESCRIBE_CONFIGS, name):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, TOPIC_DENIED)
    elif kind == ConfigResourceType.GROUP:
        check_group(node, context, Operation.DESCRIBE_CONFIGS, name)
    else:
        check_cluster(node, context, Operation.DESCRIBE_CONFIGS)


def _refused(asked: _Asked, error: ApiError) -> _Result:
    return _Result(
        resource_type=asked.resource_type,
        resource_name=asked.resource_name,
        error_code=error.code,
        error_message=error.message,
    )


def _describe(
    node: DescribedNode, request: DescribeConfigsRequest, asked: _Asked
) -> DescribeConfigsResponse.DescribeConfigsResult:
    result = _Result(resource_type=asked.resource_type, resource_name=asked.resource_name)
    try:
        described = _described(node, asked)
    except ApiError as error:
        return _refused(asked, error)
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
    if asked.resource_type == ConfigResourceType.TOPIC:
        check_topic_name(name)
        if name not in image.topics.by_name:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        return describe_topic(layers, image.configs.topic(name), keys)
    if asked.resource_type == ConfigResourceType.BROKER:
        if not name:
            return describe_default_broker(image.configs.default_broker(), keys)
        check_own_id(node.node_id, name, "Unexpected broker id, expected {} or empty string, but")
        return describe_broker(layers, keys)
    if asked.resource_type == ConfigResourceType.BROKER_LOGGER:
        check_own_id(node.node_id, name, "Unexpected broker id, expected {} but")
        return describe_loggers(keys)
    own = image.configs.of(ConfigResource(asked.resource_type, name))
    if asked.resource_type == ConfigResourceType.GROUP:
        _check_named(name, "Group name")
        return describe_group(layers, own, keys)
    if asked.resource_type == ConfigResourceType.CLIENT_METRICS:
        _check_named(name, "Client metrics subscription name")
        return describe_client_metrics(own, keys)
    raise ApiError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {asked.resource_type}")


def _check_named(name: str, what: str) -> None:
    if not name:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{what} must not be empty")


def list_config_resources(
    services: BrokerServices, context: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources that can be described (KIP-1142), of all kinds if none is named."""
    if not may_use_cluster(services, context, Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    supported = (
        ConfigResourceType.TOPIC,
        ConfigResourceType.BROKER,
        ConfigResourceType.BROKER_LOGGER,
        ConfigResourceType.CLIENT_METRICS,
        ConfigResourceType.GROUP,
    )
    if context.api_version == 0:
        wanted: list[int] = [ConfigResourceType.CLIENT_METRICS]
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
    if kind == ConfigResourceType.TOPIC:
        return sorted(image.topics.by_name)
    if kind in (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER):
        return [str(broker_id) for broker_id in sorted(image.cluster.brokers)]
    return sorted(r.name for r in image.configs.by_resource if r.resource_type == kind)
