"""From the options of `kafka-acls` to resource patterns and ACLs."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from spindle.authorization.operations import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from spindle.cli.tools.failures import ToolFailed, UsageError
from spindle.cli.tools.options import Options

_ANY_HOST: Final = "*"
_NO_RESOURCE: Final = (
    "You must provide at least one resource: --topic <topic> or --cluster or --group <group> or "
    "--delegation-token <Delegation Token ID>"
)
_RESOURCES: Final = (
    ("topic", ResourceType.TOPIC),
    ("group", ResourceType.GROUP),
    ("transactional-id", ResourceType.TRANSACTIONAL_ID),
    ("delegation-token", ResourceType.DELEGATION_TOKEN),
    ("user-principal", ResourceType.USER),
)


def principals(options: Options, option: str) -> list[str]:
    """Return the principals of an option, each of them once.

    Raises:
        ToolFailed: one of them is not a principal.
    """
    given = [text.strip() for text in options.all(option)]
    for text in given:
        kind, _, name = text.partition(":")
        if not (kind and name):
            raise ToolFailed(
                f"expected a string in format principalType:principalName but got {text}",
                plainly=f"--{option} {text}: write User:NAME",
            )
    return list(dict.fromkeys(given))


class Pattern(NamedTuple):
    """A resource pattern, or with the pattern types ANY and MATCH a filter of them."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType

    def __str__(self) -> str:
        return (
            f"ResourcePattern(resourceType={self.resource_type.name}, name={self.name}, "
            f"patternType={self.pattern_type.name})"
        )


class AclLine(NamedTuple):
    """An ACL without its resource."""

    principal: str
    host: str
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        return (
            f"(principal={self.principal}, host={self.host}, operation={self.operation.name}, "
            f"permissionType={self.permission.name})"
        )


_CLUSTER: Final = Pattern(ResourceType.CLUSTER, CLUSTER_NAME, PatternType.LITERAL)
RulesByPattern = dict[Pattern, dict[AclLine, None]]


def pattern_type(options: Options) -> PatternType:
    """Return `--resource-pattern-type`.

    Raises:
        UsageError: there is no such type.
    """
    text = options.text("resource-pattern-type", "literal")
    member = PatternType.__members__.get(text.strip().upper(), PatternType.UNKNOWN)
    if member is PatternType.UNKNOWN:
        raise UsageError(
            f"Cannot parse argument '{text}' of option resource-pattern-type",
            f"--resource-pattern-type {text}: it must be literal, prefixed, any or match",
        )
    return member


def patterns(options: Options) -> list[Pattern]:
    """Return the resources that the options name."""
    kind = pattern_type(options)
    found_patterns = {
        Pattern(resource_type, name.strip(), kind): None
        for option, resource_type in _RESOURCES
        for name in options.all(option)
    }
    if kind is PatternType.LITERAL and (options.has("cluster") or options.has("idempotent")):
        found_patterns[_CLUSTER] = None
    return list(found_patterns)


def rules_to_add(options: Options) -> RulesByPattern:
    """Return the ACLs that `--add` creates.

    Raises:
        UsageError: the options name no ACL.
    """
    kind = pattern_type(options)
    if kind not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise UsageError(
            f"A '--resource-pattern-type' value of '{kind.name}' is not valid when adding acls."
        )
    rules = rules_of(options)
    if not all(rules.values()):
        raise UsageError(
            "You must specify one of: --allow-principal, --deny-principal when trying to add ACLs."
        )
    return rules


def rules_of(options: Options) -> RulesByPattern:
    """Return the ACLs of each resource that the options name.

    Raises:
        UsageError: no resource is named, or an operation does not fit its resource.
        ToolFailed: a principal or an operation cannot be read.
    """
    named = patterns(options)
    if not named:
        raise UsageError(_NO_RESOURCE)
    rules: RulesByPattern = {}
    if not options.has("producer") and not options.has("consumer"):
        asked = options.all("operation") or ["All"]
        _join(rules, named, _rules(options, [_operation(text) for text in asked]))
    if options.has("producer"):
        write = (Operation.WRITE, Operation.DESCRIBE)
        _join(rules, _of(named, ResourceType.TOPIC), _rules(options, (*write, Operation.CREATE)))
        _join(rules, _of(named, ResourceType.TRANSACTIONAL_ID), _rules(options, write))
        if options.has("idempotent"):
            _join(rules, [_CLUSTER], _rules(options, [Operation.IDEMPOTENT_WRITE]))
    if options.has("consumer"):
        read = (Operation.READ, Operation.DESCRIBE)
        _join(rules, _of(named, ResourceType.TOPIC), _rules(options, read))
        _join(rules, _of(named, ResourceType.GROUP), _rules(options, [Operation.READ]))
    _check_operations(rules, options)
    return rules


def _of(named: Iterable[Pattern], resource_type: ResourceType) -> list[Pattern]:
    return [pattern for pattern in named if pattern.resource_type is resource_type]


def _join(found: RulesByPattern, named: Iterable[Pattern], rules: Iterable[AclLine]) -> None:
    for pattern in named:
        found.setdefault(pattern, {}).update(dict.fromkeys(rules))


def _rules(options: Options, operations: Sequence[Operation]) -> list[AclLine]:
    return [
        AclLine(principal, host, operation, permission)
        for word, permission in (("allow", Permission.ALLOW), ("deny", Permission.DENY))
        for principal in principals(options, f"{word}-principal")
        for operation in operations
        for host in [text.strip() for text in options.all(f"{word}-host")] or [_ANY_HOST]
    ]


def _operation(text: str) -> Operation:
    """Return the operation with a name such as `DescribeConfigs`, UNKNOWN if there is none."""
    wanted = text.strip().replace("_", "").lower()
    for operation in Operation:
        if operation.name.replace("_", "").lower() == wanted:
            return operation
    return Operation.UNKNOWN


def _check_operations(found: RulesByPattern, options: Options) -> None:
    for pattern, rules in found.items():
        valid = (*OPERATIONS_OF[pattern.resource_type], Operation.ALL)
        if any(rule.operation not in valid for rule in rules):
            names = ", ".join(sorted(operation.name for operation in valid))
            kind = pattern.resource_type.name
            wrong = [text for text in options.all("operation") if _operation(text) not in valid]
            raise UsageError(
                f"ResourceType {kind} only supports operations [{names}]",
                f"--operation {', '.join(wrong)}: a resource of the type {kind} has {names}",
            )
