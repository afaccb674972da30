"""`spindle acls`: list, add and remove ACLs."""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Final

import click

from spindle.authorization.operations import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from spindle.cli.admin.output import YES, confirm, show_rows
from spindle.cli.cluster_command import cluster_command
from spindle.cli.examples import examples
from spindle.cli.suggestions import SuggestingGroup
from spindle.client.admin.acls import AclQuery, create_acls, delete_acls, describe_acls
from spindle.client.blocking.client import WireClient
from spindle.metadata.security import AccessControlEntry

_ANY_HOST: Final = "*"
_COLUMNS: Final = {
    "principal": "PRINCIPAL",
    "permission": "PERMISSION",
    "operation": "OPERATION",
    "resource": "RESOURCE",
    "name": "NAME",
    "pattern": "PATTERN",
    "host": "HOST",
}
_PRODUCE: Final = {
    ResourceType.TOPIC: (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
}
_CONSUME: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.DESCRIBE),
    ResourceType.GROUP: (Operation.READ,),
}
_ROLES: Final = {"produce": _PRODUCE, "consume": _CONSUME}
_OPERATIONS: Final = {
    operation.name.lower().replace("_", "-"): operation
    for operation in Operation
    if operation not in (Operation.UNKNOWN, Operation.ANY)
}
_WORDS: Final = click.Choice([*_ROLES, *_OPERATIONS])

Resource = tuple[ResourceType, str, PatternType]


@click.group(
    "acls",
    cls=SuggestingGroup,
    epilog=examples(
        "spindle acls list --topic orders",
        "spindle acls add User:app produce --topic orders",
        "spindle acls add User:app consume --topic orders --group billing",
    ),
)
def acls() -> None:
    """List, add and remove ACLs."""


def _resources(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name resources; the function receives them as `resources`."""

    @click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * for all.")
    @click.option("--group", "groups", multiple=True, metavar="NAME", help="A group; * for all.")
    @click.option(
        "--transactional-id", "ids", multiple=True, metavar="ID", help="A transactional id."
    )
    @click.option("--token", "tokens", multiple=True, metavar="ID", help="A delegation token.")
    @click.option("--user", "users", multiple=True, metavar="USER", help="The owner of tokens.")
    @click.option("--cluster", is_flag=True, help="The cluster.")
    @click.option(
        "--prefix", is_flag=True, help="All resources whose names begin with the given names."
    )
    @wraps(function)
    def run(
        *positional: Any,
        topics: Sequence[str],
        groups: Sequence[str],
        ids: Sequence[str],
        tokens: Sequence[str],
        users: Sequence[str],
        cluster: bool,
        prefix: bool,
        **rest: Any,
    ) -> Any:
        pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
        named = (
            (ResourceType.TOPIC, topics),
            (ResourceType.GROUP, groups),
            (ResourceType.TRANSACTIONAL_ID, ids),
            (ResourceType.DELEGATION_TOKEN, tokens),
            (ResourceType.USER, users),
        )
        resources = [(kind, name, pattern) for kind, names in named for name in names]
        if cluster:
            resources.append((ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL))
        return function(*positional, resources=resources, **rest)

    return run


@acls.command(
    "list",
    epilog=examples("spindle acls list", "spindle acls list --topic orders --principal User:app"),
)
@_resources
@click.option("--principal", metavar="User:NAME", help="Only the ACLs of this principal.")
@cluster_command
def list_command(
    client: WireClient, as_json: bool, resources: Sequence[Resource], principal: str | None
) -> None:
    """List all ACLs, or those that apply to the given resources.

    With --prefix, the ACLs for exactly these prefixes are listed.
    """
    if principal is not None:
        _check_principal(principal)
    queries = [
        AclQuery(kind, name, PatternType.MATCH if pattern is PatternType.LITERAL else pattern)
        for kind, name, pattern in resources
    ] or [AclQuery()]
    listed = {
        acl: None
        for query in queries
        for acl in describe_acls(client, query._replace(principal=principal))
    }
    show_rows(as_json, _COLUMNS, [_row(acl) for acl in sorted(listed)], "There are no such ACLs.")


@acls.command(
    "add",
    epilog=examples(
        "spindle acls add User:app produce --topic orders",
        "spindle acls add User:app consume --topic orders --group billing",
        "spindle acls add User:ops alter-configs describe-configs --cluster",
        "spindle acls add User:guest all --topic secret- --prefix --deny",
    ),
)
@click.argument("principal", metavar="User:NAME")
@click.argument("words", nargs=-1, required=True, metavar="OPERATION...", type=_WORDS)
@_resources
@click.option(
    "--deny", is_flag=True, help="Deny the operations; an ACL that denies takes precedence."
)
@click.option(
    "--host",
    "hosts",
    multiple=True,
    metavar="ADDRESS",
    help="Only from this address; default: any.",
)
@cluster_command
def add(
    client: WireClient,
    as_json: bool,
    principal: str,
    words: Sequence[str],
    resources: Sequence[Resource],
    deny: bool,
    hosts: Sequence[str],
) -> None:
    """Allow a principal to perform operations on resources, or deny them with --deny.

    OPERATION is one of read, write, create, delete, alter, describe, cluster-action,
    describe-configs, alter-configs, idempotent-write, create-tokens, describe-tokens,
    two-phase-commit and all; produce and consume stand for the operations that a producer and a
    consumer need.
    """
    _check_principal(principal)
    permission = Permission.DENY if deny else Permission.ALLOW
    wanted = [
        AccessControlEntry(*resource, principal, host, operation, permission)
        for resource in _required(resources)
        for operation in _operations(words, resource[0])
        for host in hosts or [_ANY_HOST]
    ]
    create_acls(client, wanted)
    show_rows(as_json, _COLUMNS, [_row(acl) for acl in wanted], "")


@acls.command(
    "remove",
    epilog=examples(
        "spindle acls remove User:app --topic orders",
        "spindle acls remove User:app write --topic orders",
    ),
)
@click.argument("principal", metavar="User:NAME")
@click.argument("words", nargs=-1, metavar="[OPERATION]...", type=_WORDS)
@_resources
@YES
@cluster_command
def remove(
    client: WireClient,
    as_json: bool,
    principal: str,
    words: Sequence[str],
    resources: Sequence[Resource],
    yes: bool,
) -> None:
    """Remove all ACLs of a principal on resources, or those for the given operations.

    Prints the ACLs that it removes. Asks first where standard input is a terminal.
    """
    _check_principal(principal)
    queries = [
        AclQuery(*resource, principal=principal, operation=operation)
        for resource in _required(resources)
        for operation in (_operations(words, resource[0]) if words else [Operation.ANY])
    ]
    matching = {acl: None for query in queries for acl in describe_acls(client, query)}
    show_rows(as_json, _COLUMNS, [_row(acl) for acl in sorted(matching)], "There are no such ACLs.")
    if matching:
        confirm("Remove these ACLs?", yes or as_json)
        delete_acls(client, queries)


def _required(resources: Sequence[Resource]) -> Sequence[Resource]:
    if not resources:
        raise click.UsageError(
            "Name a resource, such as --topic orders, --group billing, --cluster."
        )
    return resources


def _operations(words: Sequence[str], kind: ResourceType) -> list[Operation]:
    """Return the operations that words stand for on a type of resource.

    Raises:
        click.UsageError: the type has no such operation.
    """
    operations: dict[Operation, None] = {}
    valid = (*OPERATIONS_OF[kind], Operation.ALL)
    for word in words:
        role = _ROLES.get(word)
        chosen = [_OPERATIONS[word]] if role is None else role.get(kind, ())
        if not chosen or any(operation not in valid for operation in chosen):
            names = ", ".join(name for name, operation in _OPERATIONS.items() if operation in valid)
            raise click.UsageError(f"{word}: a {_text(kind)} has no such operation; it has {names}")
        operations.update(dict.fromkeys(chosen))
    return list(operations)


def _check_principal(text: str) -> None:
    kind, _, name = text.partition(":")
    if not (kind and name):
        raise click.UsageError(f"{text}: a principal has the form User:NAME")


def _row(acl: AccessControlEntry) -> tuple[str, ...]:
    return (
        acl.principal,
        _text(Permission(acl.permission_type)),
        _text(Operation(acl.operation)),
        _text(ResourceType(acl.resource_type)),
        acl.resource_name,
        _text(PatternType(acl.pattern_type)),
        acl.host,
    )


def _text(member: Operation | ResourceType | PatternType | Permission) -> str:
    return member.name.lower().replace("_", "-")
