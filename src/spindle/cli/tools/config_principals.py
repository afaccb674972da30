"""Quotas of users, clients and addresses, and SCRAM credentials of users."""

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import click

from spindle.cli.tools.config_entities import CLIENTS, DEFAULT_NAME, IPS, USERS, Entities
from spindle.cli.tools.failures import ToolFailed
from spindle.client.admin import quotas, scram
from spindle.client.admin.quotas import CLIENT_ID, IP, USER, QuotaEntry, QuotaFilter
from spindle.client.admin.refusals import exception_class, refusal_text
from spindle.client.admin.scram import DescribedScramUser, NewCredential
from spindle.client.blocking.client import WireClient
from spindle.common.java_text import java_double
from spindle.security.scram import DEFAULT_ITERATIONS, MIN_ITERATIONS, SCRAM_MECHANISMS

_ENTITY: Final = {USERS: USER, CLIENTS: CLIENT_ID, IPS: IP}
_TITLES: Final = {USER: "user-principal", CLIENT_ID: "client-id", IP: "ip"}
_QUOTAS: Final = (
    "producer_byte_rate",
    "consumer_byte_rate",
    "request_percentage",
    "controller_mutation_rate",
)
_IP_QUOTAS: Final = ("connection_creation_rate",)
_CREDENTIAL: Final = re.compile(r"(?:iterations=(-?[0-9]*),)?password=(.*)", re.DOTALL)
_SALT_BYTES: Final = 32


def describe_principals(client: WireClient, entities: Entities, *, as_json: bool) -> None:
    """Print quotas and, unless a client is named, the credentials of users."""
    entries = quotas.describe_quotas(client, quota_filters(entities))
    users: list[DescribedScramUser] = []
    if entities.types == (USERS,) and DEFAULT_NAME not in entities.names:
        users = scram.describe_users(client, entities.names)
    if as_json:
        click.echo(json.dumps(_document(entries, users)))
        return
    for entry in entries:
        click.echo(quota_line(entry))
    for user in users:
        line = credential_line(user)
        if line is not None:
            click.echo(line)


def alter_principal(
    client: WireClient,
    entities: Entities,
    additions: Mapping[str, str],
    deletions: Sequence[str],
) -> None:
    """Set and remove quotas or credentials.

    Raises:
        ToolFailed: keys that the entity cannot have, or values that cannot be read.
        ApiError: the cluster refused.
    """
    check_keys(entities, additions, deletions)
    is_scram = any(key in SCRAM_MECHANISMS for key in (*additions, *deletions))
    if is_scram:
        credentials = [
            parse_credential(key, value, os.urandom(_SALT_BYTES))
            for key, value in additions.items()
        ]
        removed = [SCRAM_MECHANISMS[key] for key in deletions]
        scram.alter_user(client, entities.names[0], credentials, removed)
        return
    filters = quota_filters(entities)
    current = quotas.describe_quotas(client, filters)
    known = current[0].values if current else {}
    unknown = [key for key in deletions if key not in known]
    if unknown:
        raise ToolFailed(f"Invalid config(s): {','.join(unknown)}")
    entity = {quota_filter.entity_type: quota_filter.name for quota_filter in filters}
    quotas.alter_quotas(client, entity, _numbers(additions), deletions)


def quota_filters(entities: Entities) -> list[QuotaFilter]:
    """Return the filters of a request; a type without a name means all entities of that type.

    Raises:
        ToolFailed: there are more names than types.
    """
    if len(entities.names) > len(entities.types):
        raise ToolFailed("More entity names specified than entity types")
    filters = []
    for number, kind in enumerate(entities.types):
        name = entities.names[number] if number < len(entities.names) else None
        is_default = name == DEFAULT_NAME
        filters.append(QuotaFilter(_ENTITY[kind], None if is_default else name, is_default))
    return filters


def check_keys(entities: Entities, additions: Iterable[str], deletions: Iterable[str]) -> None:
    """Refuse keys that an entity cannot have.

    Raises:
        ToolFailed: names them.
    """
    if entities.types[0] == IPS:
        unknown = [key for key in (*additions, *deletions) if key not in _IP_QUOTAS]
        if unknown:
            raise ToolFailed(
                "Only connection quota configs can be added for 'ips' using --bootstrap-server. "
                f"Unexpected config names: {','.join(unknown)}"
            )
        return
    for verb, keys in (("added", list(additions)), ("deleted", list(deletions))):
        _check_principal_keys(entities, verb, keys)
    changed = (*additions, *deletions)
    if any(key in SCRAM_MECHANISMS for key in changed):
        if DEFAULT_NAME in entities.names:
            raise ToolFailed(
                "The use of --entity-default or --user-defaults is not allowed with User SCRAM "
                "Credentials using --bootstrap-server."
            )
        if any(key in _QUOTAS for key in changed):
            raise ToolFailed(
                "Cannot alter both quota and SCRAM credential configs simultaneously for 'users' "
                "using --bootstrap-server."
            )


def _check_principal_keys(entities: Entities, verb: str, keys: Sequence[str]) -> None:
    unknown = [key for key in keys if key not in _QUOTAS and key not in SCRAM_MECHANISMS]
    if entities.types != (USERS,):
        unknown += [key for key in keys if key in SCRAM_MECHANISMS]
        kind, allowed = CLIENTS, "quota"
    else:
        kind, allowed = USERS, "quota and SCRAM credential"
    if unknown:
        raise ToolFailed(
            f"Only {allowed} configs can be {verb} for '{kind}' using --bootstrap-server. "
            f"Unexpected config names: Set({', '.join(unknown)})"
        )


def parse_credential(mechanism_name: str, text: str, salt: bytes) -> NewCredential:
    """Return the credential of `[iterations=N,]password=P`.

    Raises:
        ToolFailed: the text is not of that form, or the iterations are too few.
    """
    mechanism = SCRAM_MECHANISMS[mechanism_name]
    match = _CREDENTIAL.fullmatch(text)
    if match is None:
        raise ToolFailed(f"Invalid credential property {mechanism.name}={text}")
    iterations = int(match[1]) if match[1] not in (None, "", "-1") else DEFAULT_ITERATIONS
    if iterations < MIN_ITERATIONS:
        raise ToolFailed(
            f"Iterations {iterations} is less than the minimum {MIN_ITERATIONS} required for "
            f"{mechanism_name}"
        )
    return NewCredential(mechanism, iterations, match[2], salt)


def quota_line(entry: QuotaEntry) -> str:
    """Return the line about the quotas of one entity."""
    parts = []
    for entity_type in (USER, CLIENT_ID, IP):
        if entity_type in entry.entity:
            name, shown = entry.entity[entity_type], _TITLES[entity_type]
            parts.append(f"the default {shown}" if name is None else f"{shown} '{name}'")
    values = ", ".join(f"{key}={java_double(value)}" for key, value in entry.values.items())
    return f"Quota configs for {', '.join(parts)} are {values}"


def credential_line(user: DescribedScramUser) -> str | None:
    """Return the line about the credentials of one user; None if the user has none."""
    subject = f"SCRAM credential configs for user-principal '{user.name}'"
    if user.error is not None:
        name = exception_class(user.error.code).rpartition(".")[2]
        if name == "ResourceNotFoundException":
            return None
        return f"Error retrieving {subject}: {name}: {refusal_text(user.error)}"
    infos = ", ".join(f"{name}=iterations={count}" for name, count in user.credentials)
    return f"{subject} are {infos}"


def _document(
    entries: Sequence[QuotaEntry], users: Sequence[DescribedScramUser]
) -> dict[str, object]:
    return {
        "quotas": [{"entity": dict(e.entity), "values": dict(e.values)} for e in entries],
        "scramCredentials": [
            {"user": user.name, "mechanisms": dict(user.credentials)} for user in users
        ],
    }


def _numbers(texts: Mapping[str, str]) -> dict[str, float]:
    numbers = {}
    for key, text in texts.items():
        try:
            numbers[key] = float(text)
        except ValueError:
            raise ToolFailed(f"Cannot parse quota configuration value for {key}: {text}") from None
    return numbers
