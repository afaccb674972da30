"""`kafka-delegation-tokens`: create, renew, expire and describe delegation tokens."""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import datetime
from typing import Final

import click

from spindle.cli.tools.acl_rules import principals
from spindle.cli.tools.bootstrap import connect_as
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.options import (
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.delegation_tokens import (
    KnownToken,
    create_token,
    describe_tokens,
    expire_token,
    renew_token,
)

_ACTIONS: Final = ("create", "renew", "expire", "describe")
_HEADINGS: Final = (
    *("TOKENID", "HMAC", "OWNER", "REQUESTER", "RENEWERS"),
    *("ISSUEDATE", "EXPIRYDATE", "MAXDATE"),
)
_WIDTHS: Final = (15, 30, 15, 15, 25, 15, 15, 15)

DECLARATION: Final = Declaration(
    "Create, renew, expire and describe delegation tokens.",
    [
        BOOTSTRAP_SERVER,
        COMMAND_CONFIG,
        JSON,
        Option("create", "Create a token; its HMAC is the password of a login."),
        Option("renew", "Give a token more time."),
        Option("expire", "Set the end of a token."),
        Option("describe", "Show the tokens that this user owns or may renew."),
        Option("owner-principal", "The owner of a token.", "User:name", may_lack_value=True),
        Option("renewer-principal", "A renewer of a token.", "User:name", may_lack_value=True),
        Option("max-life-time-period", "Longest life; -1 for the cluster's limit.", "ms"),
        Option("renew-time-period", "More time; -1 for the time that the cluster gives.", "ms"),
        Option("expiry-time-period", "Time until the end; -1 ends the token at once.", "ms"),
        Option("hmac", "The HMAC of the token, in base64.", "base64"),
    ],
    examples=(
        "spindle kafka delegation-tokens --create --max-life-time-period -1",
        "spindle kafka delegation-tokens --describe",
    ),
)


def _run(options: Options) -> None:
    options.exactly_one(
        "Command must include exactly one action: --create, --renew, --expire or --describe",
        *_ACTIONS,
    )
    _check(options)
    if options.has("create"):
        _create(options)
    elif options.has("renew"):
        _renew(options)
    elif options.has("expire"):
        _expire(options)
    else:
        _describe(options)


def _check(options: Options) -> None:
    options.require("bootstrap-server")
    if options.has("create"):
        options.require("max-life-time-period")
    for action, period in (("renew", "renew-time-period"), ("expire", "expiry-time-period")):
        if options.has(action):
            options.require("hmac", period)
    periods = ("renew-time-period", "expiry-time-period")
    options.forbid("create", "hmac", *periods)
    for action, other in (("renew", "expiry-time-period"), ("expire", "renew-time-period")):
        options.forbid(
            action, "renewer-principal", "max-life-time-period", other, "owner-principal"
        )
    options.forbid("describe", "max-life-time-period", "hmac", *periods)


def _create(options: Options) -> None:
    renewers = principals(options, "renewer-principal")
    owners = principals(options, "owner-principal")
    lifetime_ms = options.integer("max-life-time-period") or 0
    if not options.has("json"):
        click.echo(
            f"Calling create token operation with renewers :{_listed(renewers)} , "
            f"max-life-time-period :{lifetime_ms}"
        )
    with connect_as(options) as client:
        token = create_token(client, renewers, owners[0] if owners else None, lifetime_ms)
    if options.has("json"):
        click.echo(json.dumps(_entry(token)))
        return
    click.echo(f"Created delegation token with tokenId : {token.token_id}")
    click.echo(tokens_table([token]))


def _renew(options: Options) -> None:
    period_ms = options.integer("renew-time-period") or 0
    if not options.has("json"):
        click.echo(
            f"Calling renew token operation with hmac :{options.text('hmac')} , "
            f"renew-time-period :{period_ms}"
        )
    with connect_as(options) as client:
        expiry_ms = renew_token(client, _hmac(options), period_ms)
    _show_expiry(options, "renew", expiry_ms)


def _expire(options: Options) -> None:
    period_ms = options.integer("expiry-time-period") or 0
    if not options.has("json"):
        click.echo(
            f"Calling expire token operation with hmac :{options.text('hmac')} , "
            f"expire-time-period :{period_ms}"
        )
    with connect_as(options) as client:
        expiry_ms = expire_token(client, _hmac(options), period_ms)
    _show_expiry(options, "expire", expiry_ms)


def _show_expiry(options: Options, action: str, expiry_ms: int) -> None:
    if options.has("json"):
        click.echo(json.dumps({"expiryTimestamp": expiry_ms}))
        return
    click.echo(f"Completed {action} operation. New expiry date : {_date(expiry_ms)}", nl=False)


def _describe(options: Options) -> None:
    owners = principals(options, "owner-principal")
    if not options.has("json"):
        click.echo(
            f"Calling describe token operation for owners: {_listed(owners)}"
            if owners
            else "Calling describe token operation for current user."
        )
    with connect_as(options) as client:
        tokens = describe_tokens(client, owners)
    if options.has("json"):
        click.echo(json.dumps([_entry(token) for token in tokens]))
        return
    click.echo(f"Total number of tokens : {len(tokens)}", nl=False)
    click.echo(tokens_table(tokens))


def tokens_table(tokens: Sequence[KnownToken]) -> str:
    """Return a heading and a line for each token, with an empty line before each."""
    rows = [
        (
            *(token.token_id, b64encode(token.hmac).decode(), token.owner, token.requester),
            _listed(token.renewers),
            *map(
                _date, (token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms)
            ),
        )
        for token in tokens
    ]
    lines = [" ".join(map(str.ljust, row, _WIDTHS)) for row in (_HEADINGS, *rows)]
    return "".join(f"\n{line}\n" for line in lines)[:-1]


def _entry(token: KnownToken) -> dict[str, object]:
    return {
        "tokenId": token.token_id,
        "hmac": b64encode(token.hmac).decode(),
        "owner": token.owner,
        "requester": token.requester,
        "renewers": token.renewers,
        "issueTimestamp": token.issue_timestamp_ms,
        "expiryTimestamp": token.expiry_timestamp_ms,
        "maxTimestamp": token.max_timestamp_ms,
    }


def _hmac(options: Options) -> bytes:
    try:
        return b64decode(options.text("hmac"), validate=True)
    except binascii.Error:
        raise ToolFailed("--hmac: base64 is needed") from None


def _listed(texts: Sequence[str]) -> str:
    return f"[{', '.join(texts)}]"


def _date(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000).strftime("%Y-%m-%dT%H:%M")


delegation_tokens = ToolCommand("delegation-tokens", DECLARATION, _run)
