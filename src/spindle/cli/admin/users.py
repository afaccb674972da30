"""`spindle users`: users that log in with SCRAM."""

import json
import os
import sys
from typing import Final

import click

from spindle.cli.admin.output import YES, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.failure import CommandFailed
from spindle.cli.parameter_types import WholeRange
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin.scram import NewCredential, alter_user, describe_users
from spindle.client.blocking.client import WireClient
from spindle.common.errors import ErrorCode
from spindle.security.scram import DEFAULT_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS

_SALT_BYTES: Final = 32
_COLUMNS: Final = {"user": "USER", "mechanism": "MECHANISM", "iterations": "ITERATIONS"}
_mechanism = click.option(
    "--mechanism",
    type=click.Choice(list(SCRAM_MECHANISMS)),
    default="SCRAM-SHA-512",
    show_default=True,
    help="The mechanism of the login.",
)


@click.group(
    "users",
    cls=SuggestingGroup,
    epilog=examples("spindle users list", "spindle users set alice"),
)
def users() -> None:
    """List, set and delete users that log in with SCRAM."""


@users.command("list", epilog=examples("spindle users list"))
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """List the users and the mechanisms with which they can log in."""
    rows = [
        (user.name, mechanism, iterations)
        for user in describe_users(client, [])
        for mechanism, iterations in user.credentials
    ]
    show_rows(as_json, _COLUMNS, rows, "There are no users with SCRAM credentials.")


@users.command(
    "set",
    epilog=examples(
        "spindle users set alice",
        "spindle users set alice --mechanism SCRAM-SHA-256 < password.txt",
    ),
)
@click.argument("name")
@_mechanism
@click.option(
    "--iterations",
    type=WholeRange(min=MIN_ITERATIONS),
    default=DEFAULT_ITERATIONS,
    show_default=True,
    metavar="N",
    help="Iterations of the password hash.",
)
@cluster_command
def set_command(
    client: WireClient, as_json: bool, name: str, mechanism: str, iterations: int
) -> None:
    """Add a user, or change its password.

    Asks for the password, or reads it from the first line of standard input. Only a salted hash of
    it is sent.
    """
    if sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("the password on standard input is empty")
    salt = os.urandom(_SALT_BYTES)
    credential = NewCredential(SCRAM_MECHANISMS[mechanism], iterations, password, salt)
    alter_user(client, name, [credential], [])
    click.echo(json.dumps([name]) if as_json else f"{name} can log in with {mechanism}")


@users.command("delete", epilog=examples("spindle users delete alice"))
@click.argument("name")
@click.option(
    "--mechanism",
    type=click.Choice(list(SCRAM_MECHANISMS)),
    help="Only the credential for this mechanism.",
)
@YES
@cluster_command
def delete(client: WireClient, as_json: bool, name: str, mechanism: str | None, yes: bool) -> None:
    """Delete the credentials of a user, so that it cannot log in with SCRAM.

    Asks first where standard input is a terminal.
    """
    described = describe_users(client, [name])
    for error in (user.error for user in described):
        if error is not None and error.code is not ErrorCode.RESOURCE_NOT_FOUND:
            raise error
    known = [text for user in described for text, _ in user.credentials]
    if not known:
        raise CommandFailed(f"there is no user {name!r} with SCRAM credentials")
    confirm(f"Delete the credentials of user {name}?", yes)
    mechanisms = [mechanism] if mechanism else known
    alter_user(client, name, [], [SCRAM_MECHANISMS[text] for text in mechanisms])
    click.echo(json.dumps([name]) if as_json else f"deleted {', '.join(mechanisms)} of {name}")
