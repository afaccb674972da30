"""`spindle quorum`: the voters of the metadata log, and changes of them (KIP-595, KIP-853)."""

import json
import time
from pathlib import Path
from typing import Final

import click

from spindle.cli.admin.output import YES, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import WholeRange
from spindle.cli.suggestions import SuggestingGroup
from spindle.cli.tools.bootstrap import properties_of
from spindle.cli.tools.quorum_voter import joining_voter
from spindle.client.admin.cluster import (
    QuorumDescription,
    QuorumReplica,
    add_voter,
    describe_quorum,
    remove_voter,
)
from spindle.client.blocking.client import WireClient
from spindle.common.text import span_text
from spindle.common.uuids import ZERO_UUID, parse_uuid, uuid_text

_COLUMNS: Final = {
    "id": "ID",
    "role": "ROLE",
    "lag": "LAG",
    "caughtUp": "CAUGHT UP",
    "directoryId": "DIRECTORY ID",
}
_ROLES: Final = ("leader", "voter", "observer")
_MS: Final = 1000


@click.group(
    "quorum",
    cls=SuggestingGroup,
    epilog=examples("spindle quorum list", "spindle quorum remove-controller 3"),
)
def quorum() -> None:
    """Show the controllers, and add and remove voters of the metadata log."""


@quorum.command("list", epilog=examples("spindle quorum list"))
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """Show the leader, the voters and the observers of the metadata log.

    LAG counts records behind the leader. CAUGHT UP says how long ago a replica had them all.
    """
    described = describe_quorum(client)
    rows = quorum_rows(described, int(time.time() * _MS))
    show_rows(as_json, _COLUMNS, rows, "The quorum has no voters.")


def quorum_rows(
    described: QuorumDescription, now_ms: int
) -> list[tuple[int, str, int | None, str | None, str | None]]:
    """Return a row for each replica of the metadata log: id, role, lag, caught up, directory id.

    Args:
        now_ms: this time, in ms since the epoch.
    """
    ends = [v.end_offset for v in described.voters if v.node_id == described.leader_id]
    roles = [
        *(("leader" if v.node_id == described.leader_id else "voter", v) for v in described.voters),
        *(("observer", observer) for observer in described.observers),
    ]
    return [
        (
            replica.node_id,
            role,
            max(0, ends[0] - replica.end_offset) if ends else None,
            _caught_up(replica, now_ms),
            None if replica.directory_id == ZERO_UUID else uuid_text(replica.directory_id),
        )
        for role, replica in sorted(
            roles, key=lambda entry: (_ROLES.index(entry[0]), entry[1].node_id)
        )
    ]


def _caught_up(replica: QuorumReplica, now_ms: int) -> str | None:
    if replica.last_caught_up_ms < 0:
        return None
    return f"{span_text(max(0, now_ms - replica.last_caught_up_ms) / _MS)} ago"


@quorum.command(
    "add-controller", epilog=examples("spindle quorum add-controller controller.properties")
)
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@cluster_command
def add_controller(client: WireClient, as_json: bool, path: Path) -> None:
    """Make a controller a voter. FILE is its property file, on its machine.

    The controller must be running and follow the metadata log as an observer.
    """
    voter = joining_voter(properties_of(str(path)))
    add_voter(client, voter.node_id, voter.directory_id, voter.listeners)
    document = {"id": voter.node_id, "directoryId": uuid_text(voter.directory_id)}
    click.echo(json.dumps(document) if as_json else f"controller {voter.node_id} is a voter now")


@quorum.command("remove-controller", epilog=examples("spindle quorum remove-controller 3"))
@click.argument("node_id", metavar="ID", type=WholeRange(min=0))
@click.option(
    "--directory-id",
    metavar="ID",
    help="The voter's directory, where two voters have the same node id.",
)
@YES
@cluster_command
def remove_controller(
    client: WireClient, as_json: bool, node_id: int, directory_id: str | None, yes: bool
) -> None:
    """Remove a controller from the voters.

    Asks first where standard input is a terminal.
    """
    voters = describe_quorum(client).voters
    known = [v.directory_id for v in voters if v.node_id == node_id]
    if directory_id is not None:
        try:
            known = [parse_uuid(directory_id)]
        except ValueError as error:
            raise click.UsageError(f"--directory-id {directory_id}: {error}") from None
    if not known:
        names = ", ".join(str(v.node_id) for v in voters)
        raise CommandFailed(f"controller {node_id} is not a voter; the voters are {names}")
    if len(known) > 1:
        names = ", ".join(map(uuid_text, known))
        raise CommandFailed(f"controller {node_id} has several votes: give --directory-id {names}")
    confirm(f"Remove controller {node_id} from the voters?", yes)
    remove_voter(client, node_id, known[0])
    click.echo(json.dumps([node_id]) if as_json else f"controller {node_id} is no longer a voter")
