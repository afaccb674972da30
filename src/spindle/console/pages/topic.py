"""Topic: its partitions, where their replicas lie, and its settings with their sources."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from spindle.cli.tools.failures import FAILURES, failure
from spindle.client.admin.configs import ReportedConfig, ReportedSource, describe
from spindle.client.cluster_metadata import PartitionView
from spindle.config.resources import ConfigResourceType
from spindle.config.topic_keys import TOPIC_KEYS
from spindle.console.actions import command_line
from spindle.console.page import Page, PageNotFound, PageRequest
from spindle.console.snapshot import ListedReplica

_MAX_PARTITIONS: Final = 500
_SOURCES: Final = {
    ReportedSource.DYNAMIC_TOPIC_CONFIG: "this topic",
    ReportedSource.DYNAMIC_BROKER_CONFIG: "broker, dynamic",
    ReportedSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers, dynamic",
    ReportedSource.STATIC_BROKER_CONFIG: "property file of the broker",
    ReportedSource.DEFAULT_CONFIG: "default",
}


class TopicPartitionRow(NamedTuple):
    """A partition with the places of its replicas."""

    view: PartitionView
    places: list[ListedReplica]
    size: int
    is_under_replicated: bool


class ConfigRow(NamedTuple):
    """A setting. `about` is empty for a key that this release does not know."""

    name: str
    value: str | None
    is_sensitive: bool
    source: str
    is_own: bool
    about: str


def _view(request: PageRequest) -> Mapping[str, Any]:
    name = str(request.names["topic"])
    snapshot = request.snapshot
    topic = snapshot.status.view.topics.get(name)
    if topic is None:
        refused = name in snapshot.status.view.refused
        reason = "this user lacks DESCRIBE on it" if refused else "the metadata does not show it"
        raise PageNotFound(f"There is no topic {name}: {reason}.")
    places = snapshot.places(name)
    rows = [
        TopicPartitionRow(
            view,
            places[number],
            max((place.size_bytes for place in places[number]), default=-1),
            bool(set(view.replicas).difference(view.isr)),
        )
        for number, view in list(topic.partitions.items())[:_MAX_PARTITIONS]
    ]
    configs: list[ConfigRow] = []
    config_problem = ""
    try:
        with request.clients.one() as client:
            configs = [_row(c) for c in describe(client, ConfigResourceType.TOPIC, name)]
    except FAILURES as error:
        config_problem = failure(error).plainly
    configs.sort(key=lambda row: (not row.is_own, row.name))
    return {
        "title": name,
        "topic": topic,
        "rows": rows,
        "more_rows": max(0, len(topic.partitions) - _MAX_PARTITIONS),
        "size": sum(place.size_bytes for all_ in places.values() for place in all_ if place.path),
        "configs": configs,
        "config_problem": config_problem,
        "command": command_line(("topic", "describe", name), request.bootstrap),
    }


def _row(config: ReportedConfig) -> ConfigRow:
    key = TOPIC_KEYS.get(config.name)
    return ConfigRow(
        config.name,
        config.value,
        config.is_sensitive,
        _SOURCES.get(config.source, config.source.name.lower()),
        config.source is ReportedSource.DYNAMIC_TOPIC_CONFIG,
        key.documentation if key is not None else "",
    )


PAGE: Final = Page("topic", "/topics/{topic:path}", "Topic", _view, menu="topics", is_in_menu=False)
