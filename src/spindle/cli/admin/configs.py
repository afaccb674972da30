"""`spindle configs`: the settings of topics, brokers, loggers, groups and client metrics."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

import click

from spindle.cli.admin.output import show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import parse_key_values
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin import configs as admin_configs
from spindle.client.admin.configs import ReportedSource
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode
from spindle.config.resources import ConfigResourceType

_COLUMNS: Final = {"key": "KEY", "value": "VALUE", "source": "SOURCE"}
_RESOURCES: Final = {"type": "TYPE", "name": "NAME"}
_KINDS: Final = {
    "topic": ConfigResourceType.TOPIC,
    "broker": ConfigResourceType.BROKER,
    "broker-logger": ConfigResourceType.BROKER_LOGGER,
    "group": ConfigResourceType.GROUP,
    "client-metrics": ConfigResourceType.CLIENT_METRICS,
}
_LISTED: Final = ("topic", "broker", "group", "client-metrics")
_ALL_BROKERS: Final = "all"
_OWN_SOURCES: Final = {
    "topic": ReportedSource.DYNAMIC_TOPIC_CONFIG,
    "broker": ReportedSource.DYNAMIC_BROKER_CONFIG,
    "broker-logger": ReportedSource.DYNAMIC_BROKER_LOGGER_CONFIG,
    "group": ReportedSource.DYNAMIC_GROUP_CONFIG,
    "client-metrics": ReportedSource.DYNAMIC_CLIENT_METRICS_CONFIG,
}
_SET_SOURCES: Final = (
    *_OWN_SOURCES.values(),
    ReportedSource.DYNAMIC_DEFAULT_BROKER_CONFIG,
)
_SOURCE_TEXTS: Final = {
    ReportedSource.UNKNOWN: "unknown",
    ReportedSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ReportedSource.DYNAMIC_BROKER_CONFIG: "broker",
    ReportedSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ReportedSource.STATIC_BROKER_CONFIG: "property file",
    ReportedSource.DEFAULT_CONFIG: "default",
    ReportedSource.DYNAMIC_BROKER_LOGGER_CONFIG: "logger",
    ReportedSource.DYNAMIC_CLIENT_METRICS_CONFIG: "client metrics",
    ReportedSource.DYNAMIC_GROUP_CONFIG: "group",
}


@click.group(
    "configs",
    cls=SuggestingGroup,
    epilog=examples(
        "spindle configs describe broker 1",
        "spindle configs set broker all log.retention.ms=86400000",
    ),
)
def configs() -> None:
    """Show, set and remove settings of topics, brokers and groups."""


_kind = click.argument("kind", metavar="TYPE", type=click.Choice(list(_KINDS)))


@configs.command("list", epilog=examples("spindle configs list", "spindle configs list group"))
@click.argument("kind", metavar="[TYPE]", required=False, type=click.Choice(_LISTED))
@cluster_command
def list_command(client: WireClient, as_json: bool, kind: str | None) -> None:
    """List the topics, brokers, groups and client metrics with dynamic settings.

    TYPE is topic, broker, group or client-metrics.
    """
    rows = [
        (listed, name or _ALL_BROKERS)
        for listed in ([kind] if kind else _LISTED)
        for name in _names(client, listed)
        if any(
            entry.source is _own_source(listed, name)
            for entry in admin_configs.describe(client, _KINDS[listed], name)
        )
    ]
    show_rows(as_json, _RESOURCES, rows, "There are no dynamic settings.")


@configs.command(
    "describe",
    epilog=examples(
        "spindle configs describe topic orders",
        "spindle configs describe broker 1 --all",
        "spindle configs describe broker 1 log.retention.ms num.io.threads",
    ),
)
@_kind
@click.argument("name")
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option(
    "--all", "is_all", is_flag=True, help="Also show settings of the property file and defaults."
)
@cluster_command
def describe(
    client: WireClient, as_json: bool, kind: str, name: str, keys: Sequence[str], is_all: bool
) -> None:
    """Show the settings of one resource: those that were set dynamically, the KEYs, or all.

    TYPE is topic, broker, broker-logger, group or client-metrics. NAME is a topic, the node id of a
    broker, or a group; 'broker all' names the dynamic defaults of all brokers.
    """
    with _naming_topic(name):
        entries = admin_configs.describe(client, _KINDS[kind], _resource(kind, name), keys or None)
    missing = set(keys) - {entry.name for entry in entries}
    if missing:
        raise CommandFailed(f"{kind} {name} has no setting {sorted(missing)[0]!r}")
    is_whole = is_all or keys
    shown = [entry for entry in entries if is_whole or entry.source in _SET_SOURCES]
    rows = [
        (
            entry.name,
            "[hidden]" if entry.is_sensitive else entry.value,
            _SOURCE_TEXTS[entry.source],
        )
        for entry in sorted(shown, key=lambda entry: entry.name)
    ]
    show_rows(as_json, _COLUMNS, rows, f"{kind} {name} has no dynamic settings; see --all.")


@configs.command(
    "set",
    epilog=examples(
        "spindle configs set topic orders retention.ms=86400000",
        "spindle configs set broker all log.cleaner.threads=2",
        "spindle configs set broker-logger 1 spindle.raft=DEBUG",
    ),
)
@_kind
@click.argument("name")
@click.argument("settings", nargs=-1, required=True, metavar="KEY=VALUE...")
@cluster_command
def set_command(
    client: WireClient, as_json: bool, kind: str, name: str, settings: Sequence[str]
) -> None:
    """Set keys of one resource.

    TYPE and NAME are those of 'spindle configs describe'.
    """
    wanted = parse_key_values("KEY=VALUE", settings)
    with _naming_topic(name):
        admin_configs.alter(client, _KINDS[kind], _resource(kind, name), wanted, [])
    _changed(as_json, kind, name)


@configs.command(
    "unset", epilog=examples("spindle configs unset topic orders retention.ms cleanup.policy")
)
@_kind
@click.argument("name")
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@cluster_command
def unset(client: WireClient, as_json: bool, kind: str, name: str, keys: Sequence[str]) -> None:
    """Remove settings of one resource, so that their defaults apply again.

    TYPE and NAME are those of 'spindle configs describe'.
    """
    with _naming_topic(name):
        admin_configs.alter(client, _KINDS[kind], _resource(kind, name), {}, keys)
    _changed(as_json, kind, name)


@contextmanager
def _naming_topic(name: str) -> Iterator[None]:
    """Name the topic in the error of a topic that does not exist."""
    try:
        yield
    except ApiError as error:
        if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        raise CommandFailed(f"there is no topic {name!r}") from None


def _names(client: WireClient, kind: str) -> list[str]:
    names = admin_configs.list_resources(client, _KINDS[kind])
    return ["", *(name for name in names if name)] if kind == "broker" else names


def _own_source(kind: str, name: str) -> ReportedSource:
    if kind == "broker" and not name:
        return ReportedSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return _OWN_SOURCES[kind]


def _resource(kind: str, name: str) -> str:
    """Return the name of a resource in requests; that of all brokers is empty.

    Raises:
        click.UsageError: a broker is named by something else than its id.
    """
    if kind == "broker" and name == _ALL_BROKERS:
        return ""
    if kind in ("broker", "broker-logger") and not name.isdecimal():
        choices = "the node id of a broker" + (", or all" if kind == "broker" else "")
        raise click.UsageError(f"{kind} {name}: give {choices}")
    return name


def _changed(as_json: bool, kind: str, name: str) -> None:
    click.echo(json.dumps([name]) if as_json else f"changed {kind} {name}")
