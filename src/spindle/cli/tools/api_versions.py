"""`kafka-broker-api-versions`: the API versions of each broker that these tools can use."""

import json
from typing import Any, Final

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
from spindle.client.cluster_metadata import BrokerAddress
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
    88: 0,
    89: 0,
    90: 1,
    91: 0,
    92: 0,
}

DECLARATION: Final = Declaration(
    "Show the versions of each API that brokers serve.",
    [BOOTSTRAP_SERVER, COMMAND_CONFIG, JSON],
    examples=("spindle kafka broker-api-versions",),
)


def _run(options: Options) -> int:
    options.require("bootstrap-server")
    with connect_as(options) as client:
        versions_by_broker = []
        for _, broker in sorted(client.metadata(()).brokers.items()):
            versions = client.retrying(lambda b=broker: client.versions(b))  # type: ignore[misc]
            versions_by_broker.append((broker, versions))
    if options.has("json"):
        click.echo(
            json.dumps([_document(broker, versions) for broker, versions in versions_by_broker])
        )
        return 0
    for broker, versions in versions_by_broker:
        click.echo("\n".join(broker_lines(broker, versions)))
    return 0


def known_apis() -> dict[int, tuple[str, int]]:
    """Return the APIs for clients by key: name, and the newest version that these tools know."""
    apis = {
        key: (_title(api.name), api.last_version)
        for key, api in APIS.items()
        if api.on_broker and not api.is_private
    }
    apis |= {key: (_title(name), _USABLE[key]) for key, name in _FURTHER.items()}
    return dict(sorted(apis.items()))


def broker_lines(broker: BrokerAddress, versions: PeerVersions) -> list[str]:
    """Return the lines about one broker."""
    rack = "null" if broker.rack is None else broker.rack
    lines = [
        f"\t{name}({key}): {range_text(versions.served(key), last)}"
        for key, (name, last) in known_apis().items()
    ]
    head = f"{broker.host}:{broker.port} (id: {broker.node_id} rack: {rack} isFenced: false) -> ("
    return [head, ",\n".join(lines), ")"]


def range_text(served: ApiVersionRange | None, last: int) -> str:
    """Return the served versions of an API of which these tools know the versions up to `last`."""
    if served is None:
        return "UNSUPPORTED"
    text = f"{served.first}" if served.first == served.last else f"{served.first} to {served.last}"
    usable = min(served.last, last)
    return f"{text} [usable: {usable}]" if usable >= served.first else f"{text} [unusable]"


def _title(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _document(broker: BrokerAddress, versions: PeerVersions) -> dict[str, Any]:
    served = {name: versions.served(key) for key, (name, _) in known_apis().items()}
    return {
        "id": broker.node_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "apis": {name: list(versions) for name, versions in served.items() if versions is not None},
    }


api_versions = ToolCommand("broker-api-versions", DECLARATION, _run)
