"""`kafka-acls`: list, add and remove ACLs."""

import json
import sys
from collections.abc import Iterable
from typing import Final

import click

from spindle.authorization.operations import Operation, PatternType, Permission, ResourceType
from spindle.cli.tools.acl_rules import (
    AclLine,
    Pattern,
    RulesByPattern,
    patterns,
    principals,
    rules_of,
    rules_to_add,
)
from spindle.cli.tools.bootstrap import connect, properties_of
from spindle.cli.tools.command import ToolCommand
from spindle.cli.tools.failures import UsageError, executing
from spindle.cli.tools.options import (
    BOOTSTRAP_CONTROLLER,
    BOOTSTRAP_SERVER,
    COMMAND_CONFIG,
    JSON,
    WHERE_IS_THE_CLUSTER,
    Declaration,
    Option,
    Options,
)
from spindle.client.admin.acls import AclQuery, create_acls, delete_acls, describe_acls
from spindle.client.blocking.client import WireClient
from spindle.metadata.security import AccessControlEntry

DECLARATION: Final = Declaration(
    "List, add and remove ACLs, the rights of users on resources.",
    (
        BOOTSTRAP_SERVER,
        BOOTSTRAP_CONTROLLER,
        COMMAND_CONFIG,
        Option("list", "List ACLs, of all resources or of those that are named."),
        Option("add", "Add ACLs."),
        Option("remove", "Remove ACLs, after asking."),
        Option("force", "Do not ask."),
        Option("topic", "A topic, or * for all.", "topic"),
        Option("group", "A consumer group, or * for all.", "group"),
        Option("cluster", "The cluster as a whole."),
        Option("transactional-id", "A transactional id, or * for all.", "transactional-id"),
        Option("delegation-token", "A delegation token, or * for all.", "delegation-token"),
        Option("user-principal", "A user, whose tokens are created.", "user-principal"),
        Option(
            "resource-pattern-type",
            "literal (the default) or prefixed; to list and remove, too: any, which compares only "
            "the name, and match, which finds all ACLs that affect the resource.",
            "type",
        ),
        Option("operation", "The operation, All by default.", "operation"),
        Option(
            "allow-principal", "Allow this principal: User:NAME, or User:* for all.", "principal"
        ),
        Option(
            "deny-principal",
            "Deny this principal; an ACL that denies takes precedence.",
            "principal",
        ),
        Option("allow-host", "Allow from this address only; * by default.", "host"),
        Option("deny-host", "Deny from this address only; * by default.", "host"),
        Option("principal", "List only the ACLs of this principal.", "principal"),
        Option("producer", "Add or remove what a producer to a topic needs."),
        Option("consumer", "Add or remove what a consumer of a topic in a group needs."),
        Option("idempotent", "With --producer: allow idempotence, too."),
        JSON,
    ),
    examples=(
        "spindle kafka acls --list --topic orders",
        "spindle kafka acls --add --allow-principal User:app --operation Read --topic orders",
    ),
)


def _run(options: Options) -> None:
    _check(options)
    with executing():
        wanted: RulesByPattern = {}
        if options.has("add"):
            wanted = rules_to_add(options)
        elif options.has("remove"):
            wanted = rules_of(options)
        with connect(
            options.one("bootstrap-server"),
            properties_of(options.one("command-config")),
            controllers=options.one("bootstrap-controller"),
        ) as client:
            if options.has("add"):
                _add(client, wanted)
            elif options.has("remove"):
                _remove(client, options, wanted)
            else:
                _list(client, options)


def _check(options: Options) -> None:
    by_server, by_controller = map(options.has, ("bootstrap-server", "bootstrap-controller"))
    if by_server and by_controller:
        raise UsageError(
            "Only one of --bootstrap-server or --bootstrap-controller must be specified"
        )
    if not by_server and not by_controller:
        raise UsageError(
            "One of --bootstrap-server or --bootstrap-controller must be specified",
            WHERE_IS_THE_CLUSTER,
        )
    options.exactly_one(
        "Command must include exactly one action: --list, --add, --remove. ",
        "list",
        "add",
        "remove",
    )
    parties = ("allow-host", "allow-principal", "deny-host", "deny-principal")
    options.forbid("list", "producer", "consumer", *parties)
    options.forbid("producer", "operation", "deny-principal", "deny-host")
    options.forbid("consumer", "operation", "deny-principal", "deny-host")
    if options.has("principal") and not options.has("list"):
        raise UsageError("The --principal option is only available if --list is set")
    if options.has("producer") and not options.has("topic"):
        raise UsageError("With --producer you must specify a --topic")
    if options.has("idempotent") and not options.has("producer"):
        raise UsageError("The --idempotent option is only available if --producer is set")
    _check_consumer(options)


def _check_consumer(options: Options) -> None:
    if not options.has("consumer"):
        return
    is_other = not options.has("producer") and (
        options.has("cluster") or options.has("transactional-id")
    )
    if not options.has("topic") or not options.has("group") or is_other:
        raise UsageError(
            "With --consumer you must specify a --topic and a --group and no --cluster or "
            "--transactional-id option should be specified."
        )


def _add(client: WireClient, wanted: RulesByPattern) -> None:
    for pattern, rules in wanted.items():
        acls = describe_acls(client, AclQuery(*pattern))
        existing = {_rule(acl): None for acl in acls}
        for rule in rules:
            if rule in existing:
                click.echo(f"Acl (pattern={pattern}, entry={rule}) already exists.")
        new = [rule for rule in rules if rule not in existing]
        if new:
            lines = "\n".join(f"\t{rule}" for rule in new)
            click.echo(f"Adding ACLs for resource `{pattern}`: \n {lines}\n")
            create_acls(client, [_acl(pattern, rule) for rule in new])


def _remove(client: WireClient, options: Options, wanted: RulesByPattern) -> None:
    for pattern, rules in wanted.items():
        if not rules:
            question = (
                f"Are you sure you want to delete all ACLs for resource filter `{pattern}`? (y/n)"
            )
        else:
            lines = "\n".join(f"\t{rule}" for rule in rules)
            question = (
                f"Are you sure you want to remove ACLs: \n {lines}\n"
                f" from resource filter `{pattern}`? (y/n)"
            )
        if _is_confirmed(options, question):
            queries = [_query(pattern, rule) for rule in rules] or [AclQuery(*pattern)]
            delete_acls(client, queries)


def _is_confirmed(options: Options, question: str) -> bool:
    if options.has("force"):
        return True
    click.echo(question)
    return sys.stdin.readline().strip().lower() == "y"


def _list(client: WireClient, options: Options) -> None:
    queries = [AclQuery(*pattern) for pattern in patterns(options)] or [AclQuery()]
    rules: RulesByPattern = {}
    for query in queries:
        for acl in describe_acls(client, query):
            rules.setdefault(_pattern(acl), {})[_rule(acl)] = None
    if options.has("json"):
        click.echo(json.dumps(_document(rules, principals(options, "principal"))))
        return
    wanted = principals(options, "principal")
    if not wanted:
        _print(rules)
    for principal in wanted:
        click.echo(f"ACLs for principal `{principal}`")
        _print(_of_principal(rules, principal))


def _of_principal(found: RulesByPattern, principal: str) -> RulesByPattern:
    kept = {
        pattern: {rule: None for rule in rules if rule.principal == principal}
        for pattern, rules in found.items()
    }
    return {pattern: rules for pattern, rules in kept.items() if rules}


def _print(found: RulesByPattern) -> None:
    for pattern in sorted(found):
        lines = "\n".join(f"\t{rule}" for rule in sorted(found[pattern]))
        click.echo(f"Current ACLs for resource `{pattern}`:\n{lines}\n")


def _document(found: RulesByPattern, wanted: Iterable[str]) -> list[dict[str, str]]:
    names = list(wanted)
    return [
        {
            "resourceType": pattern.resource_type.name,
            "name": pattern.name,
            "patternType": pattern.pattern_type.name,
            "principal": rule.principal,
            "host": rule.host,
            "operation": rule.operation.name,
            "permissionType": rule.permission.name,
        }
        for pattern in sorted(found)
        for rule in sorted(found[pattern])
        if not names or rule.principal in names
    ]


def _acl(pattern: Pattern, rule: AclLine) -> AccessControlEntry:
    return AccessControlEntry(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )


def _query(pattern: Pattern, rule: AclLine) -> AclQuery:
    return AclQuery(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        rule.principal,
        rule.host,
        rule.operation,
        rule.permission,
    )


def _pattern(acl: AccessControlEntry) -> Pattern:
    return Pattern(
        ResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type)
    )


def _rule(acl: AccessControlEntry) -> AclLine:
    return AclLine(
        acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)
    )


acls = ToolCommand("acls", DECLARATION, _run)
