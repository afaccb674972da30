"""The authorizer decides as Kafka's StandardAuthorizer, whose rules stand here again, slowly."""

import logging
import tracemalloc
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spindle.authorization.authorizer import NoAuthorizer, bits
from spindle.authorization.denials import Denials
from spindle.authorization.operations import (
    CLUSTER_NAME,
    OPERATIONS_OF,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from spindle.authorization.standard import StandardAuthorizer
from spindle.common.errors import ApiError
from spindle.metadata.security import AccessControlEntry
from spindle.protocol.api import ApiKey

ALICE, BOB, EVERYBODY = "User:alice", "User:bob", "User:*"
HOST = "10.0.0.1"
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


def acl(
    name: str,
    operation: Operation = READ,
    principal: str = ALICE,
    *,
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: ResourceType = TOPIC,
) -> AccessControlEntry:
    return AccessControlEntry(
        kind,
        name,
        PatternType.PREFIXED if prefixed else PatternType.LITERAL,
        principal,
        host,
        operation,
        Permission.DENY if deny else Permission.ALLOW,
    )


def authorizer(
    *acls: AccessControlEntry, super_users: Iterable[str] = (), allow_everyone: bool = False
) -> StandardAuthorizer:
    made = StandardAuthorizer(list(super_users), Denials(lambda: 0), allow_everyone=allow_everyone)
    made.load({bytes([number]) * 16: acl for number, acl in enumerate(acls)})
    made.complete_load()
    return made


def test_literal_prefixed_and_wildcard_acls_allow_what_they_name() -> None:
    some = authorizer(acl("exact"), acl("pre-", prefixed=True), acl("*", WRITE, BOB))
    assert some.allows(ALICE, HOST, READ, TOPIC, "exact")
    assert not some.allows(ALICE, HOST, READ, TOPIC, "exactly")
    assert some.allows(ALICE, HOST, READ, TOPIC, "pre-fix")
    assert some.allows(ALICE, HOST, READ, TOPIC, "pre-")
    assert not some.allows(ALICE, HOST, READ, TOPIC, "pre")
    assert some.allows(BOB, HOST, WRITE, TOPIC, "any")
    assert not some.allows(BOB, HOST, WRITE, GROUP, "any")
    assert not some.allows(BOB, HOST, READ, TOPIC, "any")


def test_an_acl_that_denies_comes_before_all_that_allow() -> None:
    some = authorizer(
        acl("t"), acl("*", Operation.ALL, EVERYBODY), acl("t-", deny=True, prefixed=True)
    )
    assert some.allows(ALICE, HOST, READ, TOPIC, "t")
    assert not some.allows(ALICE, HOST, READ, TOPIC, "t-1")
    assert some.allows(BOB, HOST, READ, TOPIC, "t-1")


def test_an_allowed_operation_implies_describe_and_a_denial_implies_nothing() -> None:
    for operation in (READ, WRITE, Operation.DELETE, Operation.ALTER):
        assert authorizer(acl("t", operation)).allows(ALICE, HOST, DESCRIBE, TOPIC, "t")
    alters = authorizer(acl("t", Operation.ALTER_CONFIGS))
    assert alters.allows(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "t")
    assert not alters.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")
    denied = authorizer(acl("t", deny=True), acl("t", DESCRIBE))
    assert denied.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")
    none = authorizer(acl("t", Operation.ALL, deny=True), acl("t", DESCRIBE))
    assert not none.allows(ALICE, HOST, DESCRIBE, TOPIC, "t")


def test_hosts_are_compared_as_java_writes_them() -> None:
    some = authorizer(acl("t", host=HOST), acl("u", host="0:0:0:0:0:0:0:1"))
    assert some.allows(ALICE, HOST, READ, TOPIC, "t")
    assert not some.allows(ALICE, "10.0.0.2", READ, TOPIC, "t")
    assert some.allows(ALICE, "::ffff:10.0.0.1", READ, TOPIC, "t")
    assert some.allows(ALICE, "::1", READ, TOPIC, "u")


def test_a_range_of_addresses_allows_and_denies_the_hosts_in_it() -> None:
    allowed = acl("t", host="10.0.0.0/8")
    denied = acl("t", host="10.0.0.0/30", deny=True)
    some = authorizer(allowed, acl("u", host="not/valid"))

    def may_read(host: str) -> bool:
        return some.allows(ALICE, host, READ, TOPIC, "t")

    assert [may_read("10.0.0.1"), may_read("10.0.0.9"), may_read("11.0.0.1")] == [True, True, False]
    assert not some.allows(ALICE, "10.0.0.1", READ, TOPIC, "u")
    assert some.allows_by_resource_type(ALICE, "10.0.0.1", READ, TOPIC)
    assert not some.allows_by_resource_type(ALICE, "9.0.0.1", READ, TOPIC)
    some.update({b"d" * 16: denied})
    assert [may_read("10.0.0.1"), may_read("10.0.0.9")] == [False, True]
    some.update({b"d" * 16: None})
    assert may_read("10.0.0.1")


def test_super_users_may_do_everything_and_nobody_else_before_the_acls_are_loaded() -> None:
    young = StandardAuthorizer(["User:root"], Denials(lambda: 0), allow_everyone=True)
    assert young.allows("User:root", HOST, Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)
    with pytest.raises(ApiError, match="not loaded"):
        young.allows(ALICE, HOST, READ, TOPIC, "t")
    young.update({b"a" * 16: acl("t", Operation.ALL, EVERYBODY, deny=True)})
    with pytest.raises(ApiError, match="not loaded"):
        young.allows(ALICE, HOST, READ, TOPIC, "t")
    young.complete_load()
    assert young.allows("User:root", HOST, READ, TOPIC, "t")
    assert not young.allows(ALICE, HOST, READ, TOPIC, "t")
    assert young.allows(ALICE, HOST, READ, TOPIC, "u")


def test_without_any_acl_of_the_resource_the_configuration_decides() -> None:
    assert not authorizer().allows(ALICE, HOST, READ, TOPIC, "t")
    kind = authorizer(acl("t", principal=BOB), allow_everyone=True)
    assert not kind.allows(ALICE, HOST, READ, TOPIC, "t")
    assert kind.allows(ALICE, HOST, READ, TOPIC, "u")
    assert kind.allows(ALICE, HOST, READ, GROUP, "t")
    closed = authorizer(acl("*", principal=BOB), allow_everyone=True)
    assert not closed.allows(ALICE, HOST, READ, TOPIC, "t")


def test_changes_apply_at_once_and_an_acl_that_two_ids_have_stays_until_both_are_gone() -> None:
    some = authorizer(acl("t"), acl("t"))
    assert some.allows(ALICE, HOST, READ, TOPIC, "t")
    some.update({bytes([0]) * 16: None})
    assert some.allows(ALICE, HOST, READ, TOPIC, "t")
    some.update({bytes([1]) * 16: None, b"x" * 16: acl("p", prefixed=True)})
    assert not some.allows(ALICE, HOST, READ, TOPIC, "t")
    assert some.allows(ALICE, HOST, READ, TOPIC, "pp")
    some.update({b"y" * 16: acl("pp", deny=True), b"x" * 16: acl("p", prefixed=True)})
    assert not some.allows(ALICE, HOST, READ, TOPIC, "pp")
    some.load({})
    assert not some.allows(ALICE, HOST, READ, TOPIC, "ppp")


def test_allowed_operations_are_those_of_the_resource() -> None:
    some = authorizer(acl("t", Operation.ALL), acl("t", Operation.DELETE, deny=True))
    everything = bits(*OPERATIONS_OF[TOPIC])
    assert NoAuthorizer().allowed_operations(ALICE, HOST, TOPIC, "t") == everything
    allowed = some.allowed_operations(ALICE, HOST, TOPIC, "t")
    assert allowed == everything & ~bits(Operation.DELETE)
    assert some.allowed_operations(BOB, HOST, TOPIC, "t") == 0


def test_a_resource_of_a_type_counts_unless_a_denial_covers_it() -> None:
    def may_write(*acls: AccessControlEntry) -> bool:
        return authorizer(*acls).allows_by_resource_type(ALICE, HOST, WRITE, TOPIC)

    assert may_write(acl("t", WRITE))
    assert not may_write(acl("t", WRITE, BOB))
    assert not may_write(acl("t", READ))
    assert may_write(acl("*", WRITE), acl("t", WRITE, deny=True))
    assert not may_write(acl("*", WRITE, deny=True), acl("t", WRITE))
    assert not may_write(acl("t", WRITE), acl("t", WRITE, deny=True))
    assert not may_write(acl("topic", WRITE), acl("to", WRITE, deny=True, prefixed=True))
    assert may_write(acl("to", WRITE, prefixed=True), acl("topic", WRITE, deny=True))
    assert not may_write(
        acl("to", WRITE, prefixed=True), acl("to", Operation.ALL, deny=True, prefixed=True)
    )
    root = authorizer(acl("*", WRITE, EVERYBODY, deny=True), super_users=[ALICE])
    assert root.allows_by_resource_type(ALICE, HOST, WRITE, TOPIC)


def test_long_names_that_a_client_invents_need_no_memory() -> None:
    authorizer = StandardAuthorizer([], Denials(lambda: 0))
    authorizer.complete_load()
    tracemalloc.start()
    try:
        for number in range(100):
            name = f"{number}{'x' * 32_000}"
            assert not authorizer.allows("User:a", "h", READ, TOPIC, name)
        assert tracemalloc.get_traced_memory()[0] < 500_000
    finally:
        tracemalloc.stop()


def test_equal_refusals_are_logged_once_in_ten_seconds(caplog: pytest.LogCaptureFixture) -> None:
    now_ms = 0
    some = StandardAuthorizer([], Denials(lambda: now_ms))
    some.complete_load()
    with caplog.at_level(logging.INFO, "spindle.authorizer"):
        for _ in range(3):
            some.allows(ALICE, HOST, READ, TOPIC, "secret\nname", api_key=ApiKey.FETCH)
        some.allows(ALICE, HOST, READ, TOPIC, "hidden", is_logged=False)
        now_ms = 10_000
        some.allows(BOB, HOST, READ, TOPIC, "t")
    first, more, last = caplog.messages
    assert first == (
        "Principal = 'User:alice' is Denied operation = READ from host = 10.0.0.1 on resource = "
        "TOPIC:LITERAL:'secret\\nname' for request = FETCH"
    )
    assert more == f"{first} (2 more times)"
    assert last.startswith("Principal = 'User:bob'")


NAMES = st.text("ab*", max_size=3)
ACLS = st.lists(
    st.builds(
        AccessControlEntry,
        st.sampled_from([TOPIC, GROUP]),
        NAMES,
        st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
        st.sampled_from([ALICE, BOB, EVERYBODY]),
        st.sampled_from(["*", HOST, "10.0.0.2", "10.0.0.0/8", "10.0.0.2/31"]),
        st.sampled_from([o for o in Operation if o >= Operation.ALL]),
        st.sampled_from([Permission.ALLOW, Permission.DENY]),
    ),
    max_size=8,
)
IMPLYING = {
    DESCRIBE: (DESCRIBE, READ, WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
}


def decision(acls: list[AccessControlEntry], operation: Operation, name: str) -> str:
    """Return what the ACLs say of alice from `HOST` and a topic, ACL by ACL."""
    of_resource = [
        a
        for a in acls
        if a.resource_type == TOPIC
        and (
            name.startswith(a.resource_name)
            if a.pattern_type == PatternType.PREFIXED
            else a.resource_name in (name, "*")
        )
    ]
    matching = set()
    for a in of_resource:
        if a.principal in (ALICE, EVERYBODY) and a.host in (HOST, "*", "10.0.0.0/8"):
            is_allowing = a.permission_type == Permission.ALLOW
            meant = IMPLYING.get(operation, (operation,)) if is_allowing else (operation,)
            if a.operation in (*meant, Operation.ALL):
                matching.add("allow" if is_allowing else "deny")
    if matching:
        return "deny" if "deny" in matching else "allow"
    return "deny" if of_resource else "default"


@settings(max_examples=150, deadline=None)
@given(
    ACLS,
    st.sampled_from([o for o in Operation if o > Operation.ALL]),
    NAMES,
    st.booleans(),
    st.data(),
)
def test_decisions_are_those_of_a_search_through_all_acls(
    acls: list[AccessControlEntry],
    operation: Operation,
    name: str,
    allow_everyone: bool,
    data: st.DataObject,
) -> None:
    some = authorizer(*acls, allow_everyone=allow_everyone)
    for _ in range(2):
        said = decision(acls, operation, name)
        expected = allow_everyone if said == "default" else said == "allow"
        assert some.allows(ALICE, HOST, operation, TOPIC, name) is expected
        if acls:
            index = data.draw(st.integers(0, len(acls) - 1))
            gone = bytes([index]) * 16
            some.update({gone: None})
            acls = [*acls[:index], acls[index]._replace(resource_type=9), *acls[index + 1 :]]
