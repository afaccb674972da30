"""`kafka-groups`: list the groups of every type."""

import json
from typing import Final

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed, UsageError, executing
from spindle.cli.tools.groups_text import listing_json, titled
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    WHERE_IS_THE_CLUSTER,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.groups import CONSUMER_PROTOCOLS, GroupListing, list_all_groups
from spindle.common.java_text import in_map_order, string_hash

_HEAD: Final = ("GROUP", "TYPE", "PROTOCOL")
_TYPES: Final = ("classic", "consumer", "share", "streams")
_MIN_WIDTH: Final = 20

DECLARATION: Final = Declaration(
    "List the groups of every type.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("list", "List the groups."),
        Option("group-type", f"Only groups of this type: {', '.join(_TYPES)}.", "type"),
        Option("protocol", "Only groups of this protocol.", "protocol"),
        Option("consumer", "Only groups of consumers, whatever their protocol and type."),
        Option("share", "Only share groups."),
        Option("streams", "Only streams groups."),
    ],
    examples=("spindle kafka groups --list",),
)


def _run(options: Options) -> None:
    _check(options)
    with executing():
        with connect_as(options) as client:
            listed = list_all_groups(client)
        groups = [
            listing
            for listing in in_map_order(listed, lambda group: string_hash(group.group_id))
            if _is_wanted(options, listing)
        ]
    if options.has("json"):
        click.echo(json.dumps([listing_json(group) for group in groups]))
        return
    rows = [(group.group_id, titled(group.group_type), group.protocol_type) for group in groups]
    width = max([_MIN_WIDTH, *(len(cell) for row in rows for cell in row)])
    click.echo(" ".join(f"{title:<{width}}" for title in _HEAD))
    for row in rows:
        click.echo("".join(f"{cell:<{width}} " for cell in row))


def _check(options: Options) -> None:
    if not options.has("bootstrap-server"):
        raise UsageError("Missing required option(s) [bootstrap-server]", WHERE_IS_THE_CLUSTER)
    if not options.has("list"):
        raise UsageError("Command must include exactly one action: --list.", "--list is missing")
    if options.has("group-type") and options.text("group-type").lower() not in _TYPES:
        raise ToolFailed(
            "--group-type must be a valid group type.",
            plainly=f"--group-type {options.text('group-type')}: known are {', '.join(_TYPES)}",
        )
    options.forbid("consumer", "group-type", "protocol", "share", "streams")
    options.forbid("share", "consumer", "group-type", "protocol", "streams")
    options.forbid("streams", "consumer", "group-type", "protocol", "share")


def _is_wanted(options: Options, group: GroupListing) -> bool:
    """Return whether a group passes the filters; an unknown type is that of an old broker."""
    kind = group.group_type.lower()
    if options.has("consumer"):
        return group.protocol_type in CONSUMER_PROTOCOLS or kind == "consumer"
    for name in ("share", "streams"):
        if options.has(name):
            return kind == name
    if options.has("group-type") and kind != options.text("group-type").lower():
        return False
    return not options.has("protocol") or group.protocol_type == options.text("protocol")


all_groups = ToolCommand("groups", DECLARATION, _run)
