"""`spindle brokers`: list brokers, and unregister one that will not return."""

import json
from typing import Final

import click

from spindle.cli.admin.output import YES, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import WholeRange
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin.cluster import describe_brokers, unregister_broker
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ApiError, ErrorCode

_COLUMNS: Final = {
    "id": "ID",
    "host": "HOST",
    "port": "PORT",
    "rack": "RACK",
    "state": "STATE",
}


@click.group(
    "brokers",
    cls=SuggestingGroup,
    epilog=examples("spindle brokers list", "spindle brokers unregister 3"),
)
def brokers() -> None:
    """List brokers, and unregister those that do not come back."""


@brokers.command("list", epilog=examples("spindle brokers list"))
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """List the brokers with their addresses; a fenced one serves no clients."""
    rows = [
        (node.node_id, node.host, node.port, node.rack, "fenced" if node.is_fenced else "serving")
        for node in describe_brokers(client).nodes
    ]
    show_rows(as_json, _COLUMNS, rows, "There are no brokers.")


@brokers.command("unregister", epilog=examples("spindle brokers unregister 3"))
@click.argument("broker", type=WholeRange(min=0))
@YES
@cluster_command
def unregister(client: WireClient, as_json: bool, broker: int, yes: bool) -> None:
    """Unregister a stopped broker that will not return.

    First move its replicas away: see 'spindle drain'. Asks first where standard input is a
    terminal. A broker that still serves is refused: it would not register again by itself.
    """
    nodes = describe_brokers(client).nodes
    if any(n.node_id == broker and not n.is_fenced for n in nodes):
        raise CommandFailed(f"broker {broker} is serving: stop it first")
    confirm(f"Unregister broker {broker}?", yes)
    try:
        unregister_broker(client, broker)
    except ApiError as error:
        if error.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
        known = ", ".join(str(n.node_id) for n in nodes)
        raise CommandFailed(f"there is no broker {broker}; there are {known}") from None
    click.echo(json.dumps([broker]) if as_json else f"broker {broker} is no longer registered")
