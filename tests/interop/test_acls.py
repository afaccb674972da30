"""ACLs on Spindle and on Apache Kafka: `kafka-acls`, and what the controller allows by them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from peers.compare import Answer, Pair, difference, plain, tool_answer
from peers.home_scripts import comparable, run_script
from peers.java_tools import ToolResult
from peers.node import Node
from wire_exchange import Wire

pytestmark = pytest.mark.timeout(240)

NODE_OVERRIDES = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # On PLAINTEXT the nodes are as anonymous as the clients.
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:admin;User:broker",
}

COMMANDS = [
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "P-t"),
    ("--add", "--allow-principal", "User:alice", "--operation", "Read", "--topic", "P-t"),
    ("--add", "--allow-principal", "User:P-bob", "--allow-host", "10.0.0.1", "--producer",
     "--idempotent", "--topic", "P-p", "--transactional-id", "P-x"),
    ("--add", "--allow-principal", "User:P-bob", "--consumer", "--topic", "P-c", "--group", "P-g"),
    ("--add", "--deny-principal", "User:*", "--topic", "P-", "--operation", "DescribeConfigs",
     "--resource-pattern-type", "prefixed"),
    ("--list", "--topic", "P-t"),
    ("--list", "--topic", "P-t", "--resource-pattern-type", "match"),
    ("--list", "--topic", "P-p", "--principal", "User:P-bob", "--principal", "User:carol"),
    ("--add", "--allow-principal", "User:a", "--operation", "Read", "--group", "P-g",
     "--resource-pattern-type", "match"),
    ("--add", "--topic", "P-t"),
    ("--add", "--allow-principal", "User:a"),
    ("--add", "--allow-principal", "alice", "--topic", "P-t"),
    ("--list", "--add"),
    ("--remove", "--force", "--topic", "P-t", "--allow-principal", "User:alice",
     "--operation", "Read"),
    ("--remove", "--force", "--topic", "P-c", "--resource-pattern-type", "any"),
    ("--list", "--topic", "P-c", "--group", "P-g", "--resource-pattern-type", "match"),
    ("--remove", "--force", "--topic", "P-", "--resource-pattern-type", "prefixed"),
    ("--add", "--allow-principal", "User:r", "--allow-host", "10.0.0.0/8", "--topic", "P-r"),
    ("--add", "--deny-principal", "User:r", "--deny-host", "2001:db8::/32", "--topic", "P-r"),
    ("--add", "--allow-principal", "User:r", "--allow-host", "10.0.0.0/33", "--topic", "P-r"),
    ("--add", "--allow-principal", "User:r", "--allow-host", "2001:db8::/x", "--topic", "P-r"),
    ("--add", "--allow-principal", "User:r", "--allow-host", "", "--topic", "P-r"),
    ("--list", "--topic", "P-r"),
]  # fmt: skip

Tool = Callable[..., ToolResult]
_NOT_OF_THE_TOOL = (
    "\tat ",
    "Caused by: ",
    "ToolServer$ExitRequested",
    "Error while executing ACL command: exit 1",
)
"""Beginnings of lines of a Java trace, and of those of the process that runs Java's tools here."""


@pytest.fixture(scope="module", autouse=True)
def opened(module_pair: Pair) -> None:
    """Keep the cluster open to the nodes and the tools when it gets ACLs."""
    rule = ("--allow-principal", "User:ANONYMOUS", "--cluster", "--topic", "*")
    for node in (module_pair.reference, module_pair.candidate):
        module_pair.java_tools.run(
            "acls", "--bootstrap-server", node.bootstrap, "--add", *rule
        ).check()


def answers(tool: Tool, node: Node, prefix: str) -> Answer:
    """Return the lines of all commands, sorted, because Kafka's tool prints sets."""
    answers = []
    for command in COMMANDS:
        words = [word.replace("P-", f"{prefix}-") for word in command]
        answer = comparable(tool("acls", "--bootstrap-server", node.bootstrap, *words))
        for stream in ("stdout", "stderr"):
            kept = [line for line in answer[stream] if not line.startswith(_NOT_OF_THE_TOOL)]
            # The first line of a set begins with a space.
            lines = [line.replace(f"{prefix}-", "P-").strip() for line in kept]
            answer[stream] = sorted(filter(None, lines))
        answers.append((command, plain(answer, node)))
    return answers


@pytest.mark.parametrize("kind", ["java on spindle", "ours on spindle", "ours on kafka"])
def test_the_tools_print_the_same_lines(pair: Pair, home: Path, kind: str) -> None:
    def ours(tool: str, *words: str) -> ToolResult:
        return run_script(home, tool, *words)

    tool: Tool = ours if kind.startswith("ours") else pair.java_tools.run
    node = pair.candidate if kind.endswith("spindle") else pair.reference
    prefix = kind.replace(" ", "-")
    theirs = answers(pair.java_tools.run, pair.reference, f"by-java-{prefix}")
    actual = answers(tool, node, prefix)
    assert theirs == actual, difference(theirs, actual)


def test_the_controller_allows_what_the_acls_allow(pair: Pair) -> None:
    deny = ("--deny-principal", "User:ANONYMOUS")

    def script(node: Node) -> Answer:
        def tool(name: str, *words: str) -> Answer:
            answer = tool_answer(
                pair.java_tools.run(name, "--bootstrap-server", node.bootstrap, *words)
            )
            lines = [*answer["stdout"], *answer["stderr"]]
            texts = [re.sub(r"^\[.*?\] ", "", line) for line in lines]
            return answer["exit"], [t for t in texts if t and not t.startswith("\tat ")]

        answers_of_tool = [
            tool("topics", "--create", "--topic", name, "--partitions", "1")
            for name in ("old", "grown")
        ]
        tool("acls", "--add", *deny, "--operation", "Create", "--topic", "new")
        tool("acls", "--add", *deny, "--operation", "Create", "--cluster")
        tool("acls", "--add", *deny, "--operation", "Delete", "--topic", "old")
        for operation in ("Alter", "AlterConfigs"):
            tool("acls", "--add", *deny, "--operation", operation, "--topic", "grown")
        change = ("--entity-type", "topics", "--entity-name", "grown", "--alter")
        answers_of_tool += [
            tool("topics", "--create", "--topic", "new", "--partitions", "1"),
            tool("topics", "--delete", "--topic", "old"),
            tool("topics", "--alter", "--topic", "grown", "--partitions", "3"),
            tool("configs", *change, "--add-config", "retention.ms=5000"),
        ]
        return answers_of_tool

    codes = [code for code, _ in pair.compare(script)]
    # The right to delete on the cluster is one for all topics.
    assert codes == [0, 0, 1, 0, 1, 1]


def test_acls_and_filters_without_meaning_have_kafkas_errors(pair: Pair) -> None:
    good = {
        "resource_type": 2,
        "resource_name": "wire",
        "resource_pattern_type": 3,
        "principal": "User:wire",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    bad: list[dict[str, object]] = [
        {}, {"resource_type": 99}, {"resource_type": 4}, {"resource_pattern_type": 77},
        {"operation": 120}, {"permission_type": 9}, {"resource_name": ""}, {"principal": "wire"},
        {"host": ""}, {"resource_type": 99, "operation": 120},
        {"resource_name": "", "operation": 99},
        {"operation": 14, "principal": "Group:g"},
    ]  # fmt: skip
    any_acl = {
        "resource_type_filter": 2,
        "resource_name_filter": "wire",
        "pattern_type_filter": 2,
        "principal_filter": "User:wire",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    changes: list[dict[str, object]] = [
        {"operation": 99}, {"pattern_type_filter": 99}, {"permission_type": 50},
        {"principal_filter": "User:nobody"}, {"host_filter": ""}, {},
    ]  # fmt: skip

    def script(node: Node) -> Answer:
        wire = Wire(node)
        try:
            created = wire.ask("create_acls", 3, {"creations": [{**good, **b} for b in bad]})
            deleted = wire.ask("delete_acls", 3, {"filters": [{**any_acl, **c} for c in changes]})
        finally:
            wire.close()
        return [
            *((r.error_code, r.error_message) for r in created.results),
            *(
                (r.error_code, r.error_message, sorted(a.host for a in r.matching_acls))
                for r in deleted.filter_results
            ),
        ]

    assert pair.compare(script)[0] == [0, ""]


def test_controllers_answer_requests_about_acls_too(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        where = ("--bootstrap-controller", node.controller)
        group = ("--group", "by-controller", "--resource-pattern-type", "prefixed")
        words = ("--add", "--allow-principal", "User:c", "--operation", "Read", *group)
        answers_of_tool = [tool_answer(pair.java_tools.run("acls", *where, *words))]
        answers_of_tool += [
            tool_answer(pair.java_tools.run("acls", *where, *command, *group))
            for command in (("--list",), ("--remove", "--force"), ("--list",))
        ]
        return answers_of_tool

    assert "User:c" in str(pair.compare(script)[1])
