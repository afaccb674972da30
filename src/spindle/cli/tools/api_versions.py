"""`kafka-broker-api-versions`: the API versions of each broker that these tools can use."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import click

from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Options,
)
from spindle.client.blocking.client import WireClient
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import ClientError
from spindle.client.versions import ApiVersionRange, PeerVersions
from spindle.protocol.api import APIS

# APIs of share and streams groups: known by name so that a broker's list is complete.
_FURTHER: Final = {
    76: "share_group_heartbeat",
    77: "share_group_describe",
    78: "share_fetch",
    79: "share_acknowledge",
    83: "initialize_share_group_state",
    84: "read_share_group_state",
    85: "write_share_group_state",
    86: "delete_share_group_state",
    87: "read_share_group_state_summary",
    88: "streams_group_heartbeat",
    89: "streams_group_describe",
    90: "describe_share_group_offsets",
    91: "alter_share_group_offsets",
    92: "delete_share_group_offsets",
    93: "streams_group_topology_description_update",
}
_USABLE: Final = {
    76: 1,
    77: 1,
    78: 2,
    79: 2,
    83: 0,
    84: 0,
    85: 1,
    86: 0,
    87: 1,
    88: 1,
    89: 1,
    90: 1,
    91: 0,
    92: 0,
    93: 0,
}


class KnownApi(NamedTuple):
    """An API that these tools know: its name, and the newest version that they could use."""

    name: str
    last_version: int


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _known(*, of_controllers: bool) -> dict[int, KnownApi]:
    apis = {
        key: KnownApi(_title(api.name), api.last_version)
        for key, api in APIS.items()
        if (of_controllers or api.on_broker) and not api.is_private
    }
    apis |= {key: KnownApi(_title(name), _USABLE[key]) for key, name in _FURTHER.items()}
    return dict(sorted(apis.items()))


KNOWN_BY_BROKERS: Final[Mapping[int, KnownApi]] = _known(of_controllers=False)
"""The APIs for clients, by key."""
KNOWN_BY_CONTROLLERS: Final[Mapping[int, KnownApi]] = _known(of_controllers=True)
"""All APIs, by key."""

DECLARATION: Final = Declaration(
    "Show the versions of each API that brokers serve.",
    [BOOTSTRAP_SERVER, COMMAND_CONFIG, JSON],
    examples=("spindle kafka broker-api-versions",),
)


def _run(options: Options) -> None:
    options.require("bootstrap-server")
    with connect_as(options) as client:
        brokers = [broker for _, broker in sorted(client.metadata(()).brokers.items())]
        show_versions(client, brokers, KNOWN_BY_BROKERS, is_json=options.has("json"))


def show_versions(
    client: WireClient,
    nodes: Sequence[BrokerAddress],
    apis: Mapping[int, KnownApi],
    *,
    is_json: bool,
) -> None:
    """Print the versions of each API that the nodes serve, or the error of a node."""
    answers = [(node, _versions(client, node)) for node in nodes]
    if is_json:
        click.echo(json.dumps([_document(node, answer, apis) for node, answer in answers]))
        return
    for node, answer in answers:
        click.echo("\n".join(node_lines(node, answer, apis)))


def _versions(client: WireClient, node: BrokerAddress) -> PeerVersions | ClientError:
    try:
        return client.retrying(lambda: client.versions(node))
    except ClientError as error:
        return error


def node_lines(
    node: BrokerAddress, answer: PeerVersions | ClientError, apis: Mapping[int, KnownApi]
) -> list[str]:
    """Return the lines about one node."""
    rack = "null" if node.rack is None else node.rack
    head = f"{node.host}:{node.port} (id: {node.node_id} rack: {rack} isFenced: false) ->"
    if isinstance(answer, ClientError):
        return [f"{head} ERROR: {answer}"]
    lines = [
        f"\t{api.name}({key}): {range_text(answer.served(key), api.last_version)}"
        for key, api in apis.items()
    ]
    return [f"{head} (", ",\n".join(lines), ")"]


def range_text(served: ApiVersionRange | None, last: int) -> str:
    """Return the served versions of an API; these tools know versions up to `last`."""
    if served is None:
        return "UNSUPPORTED"
    text = f"{served.first}" if served.first == served.last else f"{served.first} to {served.last}"
    usable = min(served.last, last)
    return f"{text} [usable: {usable}]" if usable >= served.first else f"{text} [unusable]"


def _document(
    node: BrokerAddress, answer: PeerVersions | ClientError, apis: Mapping[int, KnownApi]
) -> dict[str, Any]:
    document: dict[str, Any] = {
        "id": node.node_id,
        "host": node.host,
        "port": node.port,
        "rack": node.rack,
    }
    if isinstance(answer, ClientError):
        return document | {"error": str(answer)}
    served = {api.name: answer.served(key) for key, api in apis.items()}
    return document | {"apis": {n: list(range) for n, range in served.items() if range is not None}}


api_versions = ToolCommand("broker-api-versions", DECLARATION, _run)
