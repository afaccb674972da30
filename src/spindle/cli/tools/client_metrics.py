"""`kafka-client-metrics`: which metrics clients push to the brokers (KIP-714, KIP-1000)."""

import json
import secrets
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, UsageError, executing
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.configs import ReportedConfig, alter, describe, list_resources
from spindle.client.blocking.client import WireClient
from spindle.common.uuids import uuid_text
from spindle.config.resources import ConfigResourceType

_KIND: Final = ConfigResourceType.CLIENT_METRICS
_ACTIONS: Final = ("alter", "delete", "describe", "list")
_KEYS: Final = {"interval": "interval.ms", "metrics": "metrics", "match": "match"}
"""The key of the subscription by the name of its option."""

DECLARATION: Final = Declaration(
    "Choose the metrics that clients push to the brokers, which show them on /metrics.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("alter", "Create or change a subscription."),
        Option("delete", "Delete a subscription."),
        Option("describe", "Show a subscription, all without --name."),
        Option("list", "List the names of the subscriptions."),
        Option("name", "Name of the subscription.", "name"),
        Option("generate-name", "Use a new UUID as the name."),
        Option("interval", "Pause between two pushes of a client, 100 to 3600000.", "ms"),
        Option("metrics", "Prefixes of metrics, * for all; an empty value removes it.", "m1,m2"),
        Option(
            "match",
            "Clients, as property=pattern; all by default. Properties: client_id, "
            "client_instance_id, client_software_name, client_software_version, "
            "client_source_address, client_source_port.",
            "k1=v1,k2=v2",
        ),
    ],
    examples=(
        "spindle kafka client-metrics --alter --name slow --metrics "
        "org.apache.kafka.producer. --interval 30000 --match client_id=orders-.*",
        "spindle kafka client-metrics --describe",
    ),
)


def _run(options: Options) -> None:
    _check(options)
    with executing(), connect_as(options) as client:
        if options.has("alter"):
            _alter(client, options)
        elif options.has("delete"):
            _delete(client, options)
        elif options.has("describe"):
            _describe(client, options)
        else:
            names = list_resources(client, _KIND)
            click.echo(json.dumps(names) if options.has("json") else "\n".join(names))


def _check(options: Options) -> None:
    options.exactly_one(
        "Command must include exactly one action: --alter, --delete, --describe or --list.",
        *_ACTIONS,
    )
    options.require("bootstrap-server")
    for action in ("delete", "describe", "list"):
        options.forbid(action, "generate-name", *_KEYS)
    options.forbid("list", "name")
    if options.has("alter") and options.has("name") is options.has("generate-name"):
        raise UsageError("One of --name or --generate-name must be specified with --alter.")
    if options.has("delete") and not options.has("name"):
        raise UsageError("A client metrics resource name must be specified with --delete.")
    if options.text("interval"):
        try:
            int(options.text("interval"))
        except ValueError:
            raise ToolFailed(
                "Invalid interval value. Enter an integer, or leave empty to reset."
            ) from None


def _alter(client: WireClient, options: Options) -> None:
    name = options.one("name") or uuid_text(secrets.token_bytes(16))
    values = {key: options.text(option) for option, key in _KEYS.items() if options.has(option)}
    changes = {key: value for key, value in values.items() if value}
    alter(client, _KIND, name, changes, [key for key in values if key not in changes])
    _say(options, name, "Altered")


def _delete(client: WireClient, options: Options) -> None:
    name = options.text("name")
    alter(client, _KIND, name, {}, [config.name for config in describe(client, _KIND, name)])
    _say(options, name, "Deleted")


def _say(options: Options, name: str, done: str) -> None:
    if options.has("json"):
        click.echo(json.dumps({"name": name, "result": done.lower()}))
    else:
        click.echo(f"{done} client metrics config for {name}.")


def _describe(client: WireClient, options: Options) -> None:
    named, known = options.one("name"), list_resources(client, _KIND)
    if named is not None and named not in known and not options.has("json"):
        click.echo(
            f"The client metric resource {named} doesn't exist and doesn't have dynamic config."
        )
        return
    names = [name for name in known if named in (None, name)]
    described = {name: describe(client, _KIND, name) for name in names}
    if options.has("json"):
        rows = [
            {"name": name, **{config.name: config.value for config in configs}}
            for name, configs in described.items()
        ]
        click.echo(json.dumps(rows))
        return
    for name, configs in described.items():
        click.echo(f"Client metrics configs for {name} are:")
        for config in configs:
            click.echo(_line(config))


def _line(config: ReportedConfig) -> str:
    return f"  {config.name}={config.value or ''}"


client_metrics = ToolCommand("client-metrics", DECLARATION, _run)
