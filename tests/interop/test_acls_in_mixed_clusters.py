"""ACLs in clusters of Spindle and Apache Kafka: all nodes know and enforce the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from peers.java_tools import JavaTools, ToolResult
from peers.node import KafkaNode, Node, SpindleNode
from peers.split_cluster import LIMIT_S, SplitCluster
from test_acls import NODE_OVERRIDES
from waiting import wait_for

pytestmark = pytest.mark.timeout(240)

EVERYTHING = ("--allow-principal", "User:ANONYMOUS", "--cluster", "--topic", "*")
OPEN = ["(principal=User:ANONYMOUS, host=*, operation=ALL, permissionType=ALLOW)"] * 2
CLOSED = ["(principal=User:ANONYMOUS, host=*, operation=CREATE, permissionType=DENY)"]
DENIED = ("--deny-principal", "User:ANONYMOUS", "--operation", "Create")


@pytest.mark.parametrize(
    ("controller", "brokers"),
    [(SpindleNode, [KafkaNode, SpindleNode]), (KafkaNode, [SpindleNode])],
    ids=["spindle leads", "kafka leads"],
)
def test_every_node_has_the_same_acls_and_enforces_them(
    tmp_path: Path, java_tools: JavaTools, controller: type[Node], brokers: list[type[Node]]
) -> None:
    cluster = SplitCluster(tmp_path, java_tools, [controller], brokers)
    for node in (*cluster.controllers, *cluster.brokers.values()):
        node.overrides.update(NODE_OVERRIDES)
        node.write_properties()
    with cluster:
        places = [("--bootstrap-server", node.bootstrap) for node in cluster.brokers.values()]

        def acls(*words: str) -> ToolResult:
            return java_tools.run("acls", *places[0], *words).check()

        acls("--add", *EVERYTHING)
        acls("--add", *DENIED, "--topic", "secret-", "--resource-pattern-type", "prefixed")
        acls("--add", *DENIED, "--cluster")
        places.append(("--bootstrap-controller", cluster.controllers[0].controller))
        for place in places:
            wait_listed(java_tools, place, OPEN + CLOSED + CLOSED)
        for place in places[:-1]:
            create = ("topics", *place, "--create", "--partitions", "1", "--topic")
            refused = java_tools.run(*create, "secret-t")
            assert "TopicAuthorizationException: Authorization failed." in refused.stderr
            java_tools.run(*create, f"open-{place[1].replace(':', '-')}").check()
        acls("--remove", "--force", *DENIED, "--topic", "secret-", "--resource-pattern-type",
             "prefixed")  # fmt: skip
        for place in places:
            wait_listed(java_tools, place, OPEN + CLOSED)
        for place in places[:-1]:
            name = f"secret-{place[1].replace(':', '-')}"
            java_tools.run("topics", *place, "--create", "--topic", name).check()


def wait_listed(tools: JavaTools, place: tuple[str, str], expected: list[str]) -> None:
    """Wait until a node lists these ACLs, because it follows the metadata by itself."""

    def listed() -> list[str]:
        lines = tools.run("acls", *place, "--list").check().lines
        return sorted(line.strip() for line in lines if "principal=" in line)

    wait_for(listed, lambda acls: acls == expected, limit_s=LIMIT_S, pause_s=0)
