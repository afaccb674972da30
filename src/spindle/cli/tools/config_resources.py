"""Configurations of topics, brokers, their loggers, groups and metrics subscriptions."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import click

from spindle.cli.tools.config_entities import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    DEFAULT_NAME,
    GROUPS,
    TOPICS,
)
from spindle.cli.tools.failures import ToolFailed
from spindle.client.admin import configs
from spindle.client.admin.configs import ReportedConfig, ReportedSource
from spindle.client.admin.groups import list_groups
from spindle.client.admin.topics import list_topics
from spindle.client.blocking.client import WireClient
from spindle.client.errors import UnsupportedByPeer
from spindle.config.resources import ConfigResourceType

_KINDS: Final = {
    TOPICS: ConfigResourceType.TOPIC,
    BROKERS: ConfigResourceType.BROKER,
    BROKER_LOGGERS: ConfigResourceType.BROKER_LOGGER,
    CLIENT_METRICS: ConfigResourceType.CLIENT_METRICS,
    GROUPS: ConfigResourceType.GROUP,
}
_OWN_SOURCE: Final = {
    TOPICS: ReportedSource.DYNAMIC_TOPIC_CONFIG,
    CLIENT_METRICS: ReportedSource.DYNAMIC_CLIENT_METRICS_CONFIG,
    GROUPS: ReportedSource.DYNAMIC_GROUP_CONFIG,
}


def describe_resources(
    client: WireClient,
    entity_type: str,
    name: str | None,
    *,
    describe_all: bool,
    as_json: bool,
) -> None:
    """Print the configuration of one resource, or of all if the name is None."""
    if name and not describe_all and not _exists(client, entity_type, name):
        kind = entity_type[:-1]
        click.echo(f"The {kind} '{name}' doesn't exist and doesn't have dynamic config.")
        return
    names = _all_names(client, entity_type) if name is None else [name]
    documents = []
    for resource_name in names:
        entries = shown_entries(
            configs.describe(client, _KINDS[entity_type], resource_name),
            None if describe_all else _own_source(entity_type, resource_name),
        )
        if as_json:
            documents.append(entity_json(entity_type, resource_name, entries))
            continue
        click.echo(title(entity_type, resource_name, describe_all=describe_all))
        for entry in entries:
            click.echo(entry_line(entry))
    if as_json:
        click.echo(json.dumps(documents))


def alter_resource(
    client: WireClient,
    entity_type: str,
    name: str,
    additions: Mapping[str, str],
    deletions: Sequence[str],
) -> None:
    """Set and remove keys of one resource.

    Raises: ToolFailed: the broker does not have the logger. ApiError: the cluster refused.
    """
    kind = _KINDS[entity_type]
    if entity_type == BROKER_LOGGERS:
        known = {entry.name for entry in configs.describe(client, kind, name)}
        unknown = [key for key in (*deletions, *additions) if key not in known]
        if unknown:
            raise ToolFailed(
                f"Invalid broker logger(s): {','.join(unknown)}",
                "org.apache.kafka.common.errors.InvalidConfigurationException",
            )
    configs.alter(client, kind, name, additions, deletions)


def title(entity_type: str, name: str, *, describe_all: bool) -> str:
    """Return the line above the settings of a resource."""
    if name == DEFAULT_NAME:
        return f"Default configs for {entity_type} in the cluster are:"
    return f"{'All' if describe_all else 'Dynamic'} configs for {entity_type[:-1]} {name} are:"


def entry_line(entry: ReportedConfig) -> str:
    """Return the line about one setting."""
    synonyms = ", ".join(f"{s.source.name}:{s.name}={_shown(s.value)}" for s in entry.synonyms)
    sensitive = "true" if entry.is_sensitive else "false"
    return f"  {entry.name}={_shown(entry.value)} sensitive={sensitive} synonyms={{{synonyms}}}"


def entity_json(entity_type: str, name: str, entries: Sequence[ReportedConfig]) -> dict[str, Any]:
    """Return the settings of one resource as a document."""
    return {
        "entityType": entity_type,
        "entityName": name or None,
        "configs": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name,
                "sensitive": entry.is_sensitive,
                "synonyms": [
                    {"name": s.name, "value": s.value, "source": s.source.name}
                    for s in entry.synonyms
                ],
            }
            for entry in entries
        ],
    }


def shown_entries(
    entries: Sequence[ReportedConfig], source: ReportedSource | None
) -> list[ReportedConfig]:
    """Return the settings from one source, or all if it is None, in the order of their names."""
    return sorted(
        (entry for entry in entries if source is None or entry.source is source),
        key=lambda each: each.name,
    )


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def _own_source(entity_type: str, name: str) -> ReportedSource | None:
    if entity_type == BROKERS:
        is_default = name == DEFAULT_NAME
        return (
            ReportedSource.DYNAMIC_DEFAULT_BROKER_CONFIG
            if is_default
            else ReportedSource.DYNAMIC_BROKER_CONFIG
        )
    return _OWN_SOURCE.get(entity_type)


def _exists(client: WireClient, entity_type: str, name: str) -> bool:
    return name in _living_names(client, entity_type) or name in _configured(client, entity_type)


def _all_names(client: WireClient, entity_type: str) -> list[str]:
    if entity_type == BROKERS:
        return [*_living_names(client, entity_type), DEFAULT_NAME]
    if entity_type == GROUPS:
        return sorted({*_living_names(client, entity_type), *_configured(client, entity_type)})
    if entity_type == CLIENT_METRICS:
        return _configured(client, entity_type)
    return _living_names(client, entity_type)


def _living_names(client: WireClient, entity_type: str) -> list[str]:
    if entity_type == TOPICS:
        return list(list_topics(client))
    if entity_type in (BROKERS, BROKER_LOGGERS):
        return [str(node_id) for node_id in sorted(client.metadata(()).brokers)]
    if entity_type == GROUPS:
        return [group.group_id for group in list_groups(client)]
    return []


def _configured(client: WireClient, entity_type: str) -> list[str]:
    try:
        return configs.list_resources(client, _KINDS[entity_type])
    except UnsupportedByPeer:
        return []
