"""Configurations with their sources and synonyms, and incremental changes (KIP-226, KIP-339)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final

from spindle.client.admin.refusals import raise_refusal
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.configs import describe_configs_request
from spindle.config.resources import ConfigResourceType
from spindle.protocol.messages.describe_configs import (
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

_SET: Final = 0
_DELETE: Final = 1
_APPEND: Final = 2
_SUBTRACT: Final = 3
_NOTHING: Final[Mapping[str, str]] = MappingProxyType({})
_BROKERS_OWN: Final = (ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER)


class ReportedSource(IntEnum):
    """Where a value comes from, by the numbers of the protocol."""

    UNKNOWN = 0
    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_BROKER_LOGGER_CONFIG = 6
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


@dataclass(frozen=True, slots=True)
class ReportedSynonym:
    """A fallback value; used if no earlier synonym is set."""

    name: str
    value: str | None
    source: ReportedSource


@dataclass(frozen=True, slots=True)
class ReportedConfig:
    """A key and its value. The value of a secret is None."""

    name: str
    value: str | None
    source: ReportedSource
    is_sensitive: bool
    synonyms: tuple[ReportedSynonym, ...] = ()


def describe(
    client: WireClient, kind: ConfigResourceType, name: str, keys: Sequence[str] | None = None
) -> list[ReportedConfig]:
    """Return the configuration of a resource, in the order of the response.

    The configuration of a broker is requested from that broker.

    Args:
        keys: return only these, as far as the broker knows them.

    Raises:
        ApiError: the resource was refused, or is a broker that does not exist now.
        ClientError: no broker could be asked.
    """
    request = describe_configs_request(kind, [name], keys)
    request.include_synonyms = True

    def attempt() -> DescribeConfigsResponse:
        broker = _broker_to_ask(client, kind, name)
        return client.ask(request, DescribeConfigsResponse, broker=broker)

    entries: list[ReportedConfig] = []
    for result in client.retrying(attempt).results:
        raise_refusal(result.error_code, result.error_message)
        entries += [_entry(config) for config in result.configs]
    return entries


def _broker_to_ask(client: WireClient, kind: ConfigResourceType, name: str) -> BrokerAddress | None:
    """Return the broker that a request is for; None for any, or for the active controller."""
    if kind in _BROKERS_OWN and name and not client.settings.asks_controllers:
        return client.current_view(()).broker(name)
    return None


def _entry(
    result: DescribeConfigsResponse.DescribeConfigsResult.DescribeConfigsResourceResult,
) -> ReportedConfig:
    return ReportedConfig(
        result.name,
        result.value,
        _source(result.config_source),
        result.is_sensitive,
        tuple(ReportedSynonym(s.name, s.value, _source(s.source)) for s in result.synonyms),
    )


def _source(number: int) -> ReportedSource:
    try:
        return ReportedSource(number)
    except ValueError:
        return ReportedSource.UNKNOWN


def alter(
    client: WireClient,
    kind: ConfigResourceType,
    name: str,
    changes: Mapping[str, str],
    deletions: Sequence[str],
    *,
    appended: Mapping[str, str] = _NOTHING,
    subtracted: Mapping[str, str] = _NOTHING,
) -> None:
    """Set and remove keys of one resource; a change of a broker goes to that broker.

    Args:
        appended, subtracted: entries of lists, by key; entries that others change at this moment
            are kept.

    Raises:
        ApiError: the cluster refused; nothing has changed.
        ClientError: no broker could be asked.
    """
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    configs = [
        resource.AlterableConfig(name=key, config_operation=operation, value=value)
        for operation, values in ((_SET, changes), (_APPEND, appended), (_SUBTRACT, subtracted))
        for key, value in values.items()
    ]
    configs += [
        resource.AlterableConfig(name=key, config_operation=_DELETE, value="") for key in deletions
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configs=configs)]
    )

    def attempt() -> IncrementalAlterConfigsResponse:
        broker = _broker_to_ask(client, kind, name)
        return client.ask(request, IncrementalAlterConfigsResponse, broker=broker)

    for result in client.retrying(attempt).responses:
        raise_refusal(result.error_code, result.error_message)


def list_resources(client: WireClient, kind: ConfigResourceType) -> list[str]:
    """Return the names of the resources of a kind that have configurations, in order.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked, or none serves the request.
    """
    first_version = 0 if kind is ConfigResourceType.CLIENT_METRICS else 1
    answer = client.retrying(
        lambda: client.ask(
            ListConfigResourcesRequest(resource_types=[kind]),
            ListConfigResourcesResponse,
            first_version=first_version,
        )
    )
    raise_refusal(answer.error_code)
    return sorted(resource.resource_name for resource in answer.config_resources)
