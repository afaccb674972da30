"""ACLs by resource pattern, so that a decision looks at few of them."""

from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

from spindle.authorization.host_patterns import host_matches
from spindle.authorization.operations import Operation, PatternType, Permission
from spindle.authorization.rules import ANY_PRINCIPAL, Rules
from spindle.metadata.security import AccessControlEntry

ANY_NAME: Final = "*"


class FoundRights(NamedTuple):
    """The rights that the ACLs give a principal on a resource.

    Attributes:
        has_acls: whether any ACL, of whichever principal, applies to the resource.
    """

    denied: int
    allowed: int
    has_acls: bool


class AclIndex:
    """The ACLs of all resources of one type."""

    def __init__(self) -> None:
        self._literals: dict[str, Rules] = {}
        self._prefixes: dict[str, Rules] = {}
        self._lengths: dict[int, int] = {}
        """The number of prefixes of each length, shortest first."""
        self._of_principal: dict[str, Counter[AccessControlEntry]] = {}

    def add(self, acl: AccessControlEntry) -> None:
        name = acl.resource_name
        self._of_principal.setdefault(acl.principal, Counter())[acl] += 1
        if acl.pattern_type != PatternType.LITERAL:
            if name not in self._prefixes:
                self._prefixes[name] = Rules()
                self._count(len(name), 1)
            self._prefixes[name].add(acl)
        else:
            self._literals.setdefault(name, Rules()).add(acl)

    def remove(self, acl: AccessControlEntry) -> None:
        name = acl.resource_name
        self._forget(acl)
        is_prefix = acl.pattern_type != PatternType.LITERAL
        patterns = self._prefixes if is_prefix else self._literals
        rules = patterns[name]
        rules.remove(acl)
        if not rules:
            del patterns[name]
            if is_prefix:
                self._count(len(name), -1)

    def _forget(self, acl: AccessControlEntry) -> None:
        acls = self._of_principal[acl.principal]
        acls[acl] -= 1
        if not acls[acl]:
            del acls[acl]
        if not acls:
            del self._of_principal[acl.principal]

    def _count(self, length: int, change: int) -> None:
        count = self._lengths.pop(length, 0) + change
        if count:
            self._lengths[length] = count
            self._lengths = dict(sorted(self._lengths.items()))

    def find(self, principal: str, host: str, name: str) -> FoundRights:
        """Return what the ACLs say of a principal and the resource of this name."""
        denied = allowed = 0
        has_acls = False
        for rules in self._rules_of(name):
            has_acls = True
            for rights in rules.rights(principal, host):
                denied |= rights.denied
                allowed |= rights.allowed
        return FoundRights(denied, allowed, has_acls)

    def _rules_of(self, name: str) -> Iterator[Rules]:
        rules = self._literals.get(name)
        if rules is not None:
            yield rules
        if name != ANY_NAME:
            rules = self._literals.get(ANY_NAME)
            if rules is not None:
                yield rules
        if self._prefixes:
            size = len(name)
            for length in self._lengths:
                if length > size:
                    return
                rules = self._prefixes.get(name[:length])
                if rules is not None:
                    yield rules

    def allows_any(self, principal: str, host: str, operation: Operation) -> bool:
        """Return whether an ACL allows the operation on some resource (KIP-679).

        As in Kafka, only ACLs for this operation or ALL apply; implied operations do not. A
        resource does not count if an ACL for everything, a prefix of its name, or the same name
        denies.
        """
        literals, prefixes = _Names({}, {}), _Names({}, {})
        for who in dict.fromkeys((principal, ANY_PRINCIPAL)):
            for acl in self._of_principal.get(who, ()):
                if host_matches(acl.host, host) and acl.operation in (operation, Operation.ALL):
                    names = literals if acl.pattern_type == PatternType.LITERAL else prefixes
                    is_allowing = acl.permission_type == Permission.ALLOW
                    (names.allowed if is_allowing else names.denied)[acl.resource_name] = None
        if ANY_NAME in literals.denied:
            return False
        if ANY_NAME in literals.allowed:
            return True
        lengths = sorted({len(name) for name in prefixes.denied})

        def is_denied(name: str) -> bool:
            return any(name[:length] in prefixes.denied for length in lengths if length)

        return any(
            name not in literals.denied and not is_denied(name) for name in literals.allowed
        ) or any(not is_denied(name) for name in prefixes.allowed)


class _Names(NamedTuple):
    """The names of patterns with ACLs that allow or deny one operation."""

    denied: dict[str, None]
    allowed: dict[str, None]
