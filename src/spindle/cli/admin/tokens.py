"""`spindle tokens`: delegation tokens."""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final

import click

from spindle.cli.admin.output import show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import DurationMs
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin.delegation_tokens import (
    KnownToken,
    create_token,
    describe_tokens,
    expire_token,
    renew_token,
)
from spindle.client.blocking.client import WireClient

_COLUMNS: Final = {
    "tokenId": "TOKEN ID",
    "owner": "OWNER",
    "requester": "REQUESTER",
    "renewers": "RENEWERS",
    "expires": "EXPIRES",
    "maxLife": "MAX LIFE",
}
_NO_LIMIT: Final = -1
_AT_ONCE: Final = -1
_MS: Final = 1000
_hmac = click.argument("hmac")


@click.group(
    "tokens",
    cls=SuggestingGroup,
    epilog=examples("spindle tokens create --renewer User:bob", "spindle tokens list"),
)
def tokens() -> None:
    """Create, list, renew and expire delegation tokens."""


@tokens.command("create", epilog=examples("spindle tokens create --renewer User:bob --max-life 7d"))
@click.option(
    "--renewer",
    "renewers",
    multiple=True,
    metavar="User:NAME",
    help="A further user who may renew it.",
)
@click.option("--owner", metavar="User:NAME", help="The owner of the token; you by default.")
@click.option(
    "--max-life",
    "max_life_ms",
    type=DurationMs(),
    metavar="DURATION",
    help="The maximum lifetime with renewals, such as 7d; default: the cluster's limit.",
)
@cluster_command
def create(
    client: WireClient,
    as_json: bool,
    renewers: Sequence[str],
    owner: str | None,
    max_life_ms: int | None,
) -> None:
    """Create a token and print its id and its HMAC, which are user and password of a login."""
    _check_principals([*renewers, *([owner] if owner else [])])
    token = create_token(client, renewers, owner, max_life_ms or _NO_LIMIT)
    hmac = b64encode(token.hmac).decode()
    if as_json:
        row = dict(zip(_COLUMNS, _row(token), strict=True))
        click.echo(json.dumps({**row, "hmac": hmac}))
        return
    click.echo(f"token id  {token.token_id}")
    click.echo(f"hmac      {hmac}")
    click.echo(f"owner     {token.owner}")
    click.echo(f"expires   {_time(token.expiry_timestamp_ms)}, unless it is renewed")
    click.echo(f"max life  {_time(token.max_timestamp_ms)}")


@tokens.command(
    "list", epilog=examples("spindle tokens list", "spindle tokens list --owner User:alice")
)
@click.option(
    "--owner", "owners", multiple=True, metavar="User:NAME", help="Only tokens of this owner."
)
@cluster_command
def list_command(client: WireClient, as_json: bool, owners: Sequence[str]) -> None:
    """List the tokens that you may see, without their HMACs."""
    _check_principals(owners)
    rows = [_row(token) for token in describe_tokens(client, owners)]
    show_rows(as_json, _COLUMNS, rows, "There are no tokens that you may see.")


@tokens.command("renew", epilog=examples("spindle tokens renew HMAC= --for 2d"))
@_hmac
@click.option(
    "--for",
    "period_ms",
    type=DurationMs(),
    metavar="DURATION",
    help="The new lifetime from now, such as 2d; default: that of the cluster.",
)
@cluster_command
def renew(client: WireClient, as_json: bool, hmac: str, period_ms: int | None) -> None:
    """Renew a token, within its maximum lifetime."""
    _show_end(as_json, renew_token(client, _bytes(hmac), period_ms or _NO_LIMIT))


@tokens.command(
    "expire", epilog=examples("spindle tokens expire HMAC=", "spindle tokens expire HMAC= --in 1h")
)
@_hmac
@click.option(
    "--in",
    "period_ms",
    type=DurationMs(),
    metavar="DURATION",
    help="How long from now, such as 1h.",
)
@cluster_command
def expire(client: WireClient, as_json: bool, hmac: str, period_ms: int | None) -> None:
    """Expire a token now or after a time."""
    _show_end(as_json, expire_token(client, _bytes(hmac), period_ms or _AT_ONCE))


def _show_end(as_json: bool, end_ms: int) -> None:
    text = _time(end_ms)
    click.echo(json.dumps({"expires": text}) if as_json else f"the token expires at {text}")


def _check_principals(texts: Sequence[str]) -> None:
    for text in texts:
        kind, _, name = text.partition(":")
        if not (kind and name):
            raise click.UsageError(f"{text}: a principal has the form User:NAME")


def _bytes(hmac: str) -> bytes:
    try:
        return b64decode(hmac, validate=True)
    except binascii.Error:
        raise click.UsageError("HMAC: give the text that 'spindle tokens create' prints") from None


def _row(token: KnownToken) -> tuple[str, ...]:
    return (
        token.token_id,
        token.owner,
        token.requester,
        ", ".join(token.renewers),
        _time(token.expiry_timestamp_ms),
        _time(token.max_timestamp_ms),
    )


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / _MS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
