"""The ACLs of one resource pattern, as bit fields of operations for each principal and host."""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from spindle.authorization.authorizer import bits
from spindle.authorization.host_patterns import ANY_HOST, is_in_range, is_range
from spindle.authorization.operations import Operation, Permission
from spindle.metadata.security import AccessControlEntry

ANY_PRINCIPAL: Final = "User:*"
_ALL: Final = (1 << 16) - 1

_IMPLIED: Final[Mapping[int, int]] = {
    Operation.ALL: _ALL,
    Operation.READ: bits(Operation.READ, Operation.DESCRIBE),
    Operation.WRITE: bits(Operation.WRITE, Operation.DESCRIBE),
    Operation.DELETE: bits(Operation.DELETE, Operation.DESCRIBE),
    Operation.ALTER: bits(Operation.ALTER, Operation.DESCRIBE),
    Operation.ALTER_CONFIGS: bits(Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
}
"""The operations that an ACL allows besides its own. An ACL that denies implies nothing."""


def _bit(operation: int) -> int:
    """Return the bit of an operation; 0 for a number that this release does not know."""
    return 1 << operation if Operation.READ <= operation <= Operation.TWO_PHASE_COMMIT else 0


class Rights(NamedTuple):
    """Operations that ACLs name, as bit fields. A denied operation is not allowed."""

    denied: int = 0
    allowed: int = 0

    def with_acl(self, acl: AccessControlEntry) -> "Rights":
        own = _ALL if acl.operation == Operation.ALL else _bit(acl.operation)
        if acl.permission_type != Permission.ALLOW:
            return Rights(self.denied | own, self.allowed)
        return Rights(self.denied, self.allowed | _IMPLIED.get(acl.operation, own))


class Rules:
    """The ACLs of one pattern. Changed in place."""

    __slots__ = ("_acls", "_ranges", "_rights")

    def __init__(self) -> None:
        self._acls: dict[tuple[str, str], dict[AccessControlEntry, int]] = {}
        # Two ids may have the same ACL, if a record says so.
        self._rights: dict[tuple[str, str], Rights] = {}
        self._ranges: dict[str, dict[str, None]] = {}
        """The hosts that are ranges of addresses, by principal."""

    def __bool__(self) -> bool:
        return bool(self._acls)

    def add(self, acl: AccessControlEntry) -> None:
        key = (acl.principal, acl.host)
        acls = self._acls.setdefault(key, {})
        acls[acl] = acls.get(acl, 0) + 1
        if is_range(acl.host):
            self._ranges.setdefault(acl.principal, {})[acl.host] = None
        self._rights[key] = self._rights.get(key, Rights()).with_acl(acl)

    def remove(self, acl: AccessControlEntry) -> None:
        key = (acl.principal, acl.host)
        acls = self._acls[key]
        acls[acl] -= 1
        if acls[acl]:
            return
        del acls[acl]
        if not acls:
            del self._acls[key], self._rights[key]
            self._forget_range(*key)
            return
        rights = Rights()
        for entry in acls:
            rights = rights.with_acl(entry)
        self._rights[key] = rights

    def _forget_range(self, principal: str, host: str) -> None:
        ranges = self._ranges.get(principal, {})
        ranges.pop(host, None)
        if not ranges:
            self._ranges.pop(principal, None)

    def rights(self, principal: str, host: str) -> Iterator[Rights]:
        """Return the rights of a principal that connects from a host."""
        rights = self._rights
        for key in (
            (principal, host),
            (principal, ANY_HOST),
            (ANY_PRINCIPAL, host),
            (ANY_PRINCIPAL, ANY_HOST),
        ):
            acls = rights.get(key)
            if acls is not None:
                yield acls
        if self._ranges:
            for who in dict.fromkeys((principal, ANY_PRINCIPAL)):
                for pattern in self._ranges.get(who, ()):
                    if is_in_range(pattern, host):
                        yield rights[who, pattern]
