"""`spindle quotas`: limits of clients by user, client id and address."""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Final

import click

from spindle.cli.admin.output import show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.parameter_types import parse_key_values
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin.quotas import (
    CLIENT_ID,
    IP,
    USER,
    QuotaFilter,
    alter_quotas,
    describe_quotas,
)
from spindle.client.blocking.client import WireClient

_KEYS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_IP_KEYS: Final = ("connection_creation_rate",)
_ENTITIES: Final = ((USER,), (CLIENT_ID,), (USER, CLIENT_ID), (IP,))
_COLUMNS: Final = {
    "user": "USER",
    "clientId": "CLIENT ID",
    "ip": "ADDRESS",
    "quota": "QUOTA",
    "value": "VALUE",
}
_DEFAULT: Final = "<default>"

Entity = dict[str, str | None]


@click.group(
    "quotas",
    cls=SuggestingGroup,
    epilog=examples(
        "spindle quotas list", "spindle quotas set --user app producer_byte_rate=1048576"
    ),
)
def quotas() -> None:
    """List, set and remove limits of clients."""


def _entity(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name whom a quota limits; the function gets `entity`."""

    @click.option("--user", metavar="NAME", help="A user.")
    @click.option("--client-id", metavar="ID", help="A client id; with --user, of that user.")
    @click.option("--ip", metavar="ADDRESS", help="Connections from an address.")
    @click.option("--user-defaults", is_flag=True, help="Every user without a quota of its own.")
    @click.option("--client-defaults", is_flag=True, help="Every client id without its own quota.")
    @click.option("--ip-defaults", is_flag=True, help="Every address without a quota of its own.")
    @wraps(function)
    def run(
        *positional: Any,
        user: str | None,
        client_id: str | None,
        ip: str | None,
        user_defaults: bool,
        client_defaults: bool,
        ip_defaults: bool,
        **rest: Any,
    ) -> Any:
        entity: Entity = {}
        for kind, name, option, is_default in (
            (USER, user, "user", user_defaults),
            (CLIENT_ID, client_id, "client", client_defaults),
            (IP, ip, "ip", ip_defaults),
        ):
            if name is not None and is_default:
                raise click.UsageError(f"--{option}-defaults cannot be used with {name!r}")
            if name is not None or is_default:
                entity[kind] = name
        if not entity:
            raise click.UsageError("Name the client to limit: --user, --client-id or --ip.")
        if IP in entity and len(entity) > 1:
            raise click.UsageError("--ip cannot be used with --user or --client-id")
        return function(*positional, entity=entity, **rest)

    return run


@quotas.command("list", epilog=examples("spindle quotas list"))
@cluster_command
def list_command(client: WireClient, as_json: bool) -> None:
    """List all quotas.

    Rates are per second. request_percentage is the share of one thread of a broker.
    """
    rows = [
        (*(_shown(entry.entity, kind) for kind in (USER, CLIENT_ID, IP)), key, f"{value:.15g}")
        for kinds in _ENTITIES
        for entry in describe_quotas(client, [QuotaFilter(kind) for kind in kinds])
        for key, value in sorted(entry.values.items())
    ]
    show_rows(as_json, _COLUMNS, rows, "There are no quotas.")


def _shown(entity: Mapping[str, str | None], kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return _DEFAULT if name is None else name


@quotas.command(
    "set",
    epilog=examples(
        "spindle quotas set --user app producer_byte_rate=1048576 consumer_byte_rate=2097152",
        "spindle quotas set --client-defaults request_percentage=50",
        "spindle quotas set --ip 10.0.0.7 connection_creation_rate=10",
    ),
)
@click.argument("settings", nargs=-1, required=True, metavar="QUOTA=NUMBER...")
@_entity
@cluster_command
def set_command(client: WireClient, as_json: bool, entity: Entity, settings: Sequence[str]) -> None:
    """Set quotas.

    QUOTA is producer_byte_rate, consumer_byte_rate, request_percentage or controller_mutation_rate;
    for addresses it is connection_creation_rate.
    """
    texts = parse_key_values("QUOTA=NUMBER", settings)
    _check(entity, list(texts))
    values = {}
    for key, text in texts.items():
        try:
            values[key] = float(text)
        except ValueError:
            raise click.UsageError(f"{key}={text}: {text!r} is not a number") from None
    alter_quotas(client, entity, values, [])
    _changed(as_json, entity)


@quotas.command("unset", epilog=examples("spindle quotas unset --user app producer_byte_rate"))
@click.argument("keys", nargs=-1, required=True, metavar="QUOTA...")
@_entity
@cluster_command
def unset(client: WireClient, as_json: bool, entity: Entity, keys: Sequence[str]) -> None:
    """Remove quotas."""
    _check(entity, keys)
    alter_quotas(client, entity, {}, keys)
    _changed(as_json, entity)


def _check(entity: Entity, keys: Sequence[str]) -> None:
    known = _IP_KEYS if IP in entity else _KEYS
    for key in keys:
        if key not in known:
            raise click.UsageError(f"{key} is not a quota here; give {', '.join(known)}")


def _changed(as_json: bool, entity: Entity) -> None:
    if as_json:
        click.echo(json.dumps(entity))
        return
    names = (f"{kind} {_DEFAULT if name is None else name}" for kind, name in entity.items())
    click.echo(f"changed {', '.join(names)}")
