"""Kafka's own integration tests of cordons (KIP-1066), run on nodes of Spindle.

The class is the one of Kafka's test jar. Its cluster is replaced by nodes in processes of their
own; a test of Kafka runs with controllers apart from the brokers and with combined nodes.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from peers.java_tools import java_command
from peers.node import Node, random_uuid
from peers.paths import JAVA_SOURCES, java_can_compile, kafka_suite_jars

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not java_can_compile(), reason="a development kit of Java is needed"),
]
SUITE = "org.apache.kafka.server.CordonedLogDirsIntegrationTest"
CONTROLLER = 3000
COMBINED = "combined"
APART = "apart"
CASES = {
    "testFeatureNotEnabled": (1, "4.2", ""),
    "testFeatureNotEnabledStaticConfig": (1, "4.2", "*"),
    "testCordonUncordonLogDirs": (1, "", ""),
    "testStaticCordonUncordonLogDirs": (1, "", "*"),
    "testReassignWithCordonedLogDirs": (1, "", ""),
    "testCordonUnknownLogDirs": (1, "", ""),
    "testUpdateCordonedDirsViaController": (2, "", ""),
    "testDecommissionBroker": (2, "", ""),
}
"""Number of brokers, release of the metadata, and cordons in the property file, by test."""


@contextmanager
def cluster(
    kind: type[Node], folder: Path, roles: dict[int, str], release: str, cordoned: str
) -> Iterator[dict[int, Node]]:
    """Run nodes with two log directories each; yield them by id."""
    cluster_id = random_uuid()
    overrides = {"cordoned.log.dirs": cordoned} if cordoned else {}
    nodes = {
        node_id: kind(
            folder / f"n{node_id}",
            directory_count=2,
            overrides=dict(overrides) if "broker" in role else {},
            cluster_id=cluster_id,
            node_id=node_id,
            roles=tuple(role.split(",")),
        )
        for node_id, role in roles.items()
    }
    voters = [node for node in nodes.values() if "controller" in node.roles]
    try:
        for node in nodes.values():
            node.voters = voters
            node.write_properties()
            node.format(*(["--release-version", release] if release else []))
            node.start(wait=False)
        for node in nodes.values():
            node.wait_ready()
        yield nodes
    finally:
        for node in nodes.values():
            node.remove()


def play(nodes: dict[int, Node], test: str) -> list[str]:
    """Run one test on the nodes; stop and start brokers as it asks. Return its output."""
    brokers = {n: node for n, node in nodes.items() if "broker" in node.roles}
    controllers = {n: node for n, node in nodes.items() if "controller" in node.roles}
    command = [
        *java_command("-Xmx256m", extra_path=f"{kafka_suite_jars()}/*"),
        str(JAVA_SOURCES / "suite" / "KafkaSuite.java"),
        SUITE,
        test,
        ",".join(node.bootstrap for node in brokers.values()),
        ",".join(node.controller for node in controllers.values()),
        ",".join(map(str, controllers)),
        *(f"{number}={node.properties_file}" for number, node in brokers.items()),
    ]
    lines: list[str] = []
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            for line in process.stdout:
                lines.append(line.rstrip())
                verb, _, number = lines[-1].partition(" ")
                if verb in ("stop", "start") and number.isdecimal():
                    node = nodes[int(number)]
                    if verb == "stop":
                        node.stop()
                    else:
                        node.start()
                    process.stdin.write("done\n")
                    process.stdin.flush()
        finally:
            process.kill()
    return lines


@pytest.mark.parametrize("layout", [APART, COMBINED])
@pytest.mark.parametrize("test", CASES)
def test_of_kafka(test: str, layout: str, tmp_path: Path, candidate_class: type[Node]) -> None:
    if test == "testUpdateCordonedDirsViaController" and layout == COMBINED:
        pytest.skip("Kafka runs this one with a controller apart only")
    count, release, cordoned = CASES[test]
    roles = dict.fromkeys(range(count), "broker")
    if layout == APART:
        roles[CONTROLLER] = "controller"
    else:
        roles[0] = "broker,controller"
    with cluster(candidate_class, tmp_path, roles, release, cordoned) as nodes:
        lines = play(nodes, test)
    assert lines[-1:] == ["passed"], "\n".join(lines[-40:])
