"""Kafka's own integration tests of cordons (KIP-1066), run on nodes of Spindle.

The class is the one of Kafka's test jar. Its cluster is replaced by nodes in processes of their
own; a test of Kafka runs with controllers apart from the brokers and with combined nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.kafka_suite import KafkaSuites, suite_cluster
from peers.node import Node
from peers.paths import java_can_compile

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


@pytest.fixture(scope="module")
def suites() -> Iterator[KafkaSuites]:
    with KafkaSuites() as machine:
        yield machine


@pytest.mark.parametrize("layout", [APART, COMBINED])
@pytest.mark.parametrize("test", CASES)
def test_of_kafka(
    test: str, layout: str, tmp_path: Path, candidate_class: type[Node], suites: KafkaSuites
) -> None:
    if test == "testUpdateCordonedDirsViaController" and layout == COMBINED:
        pytest.skip("Kafka runs this one with a controller apart only")
    count, release, cordoned = CASES[test]
    roles = dict.fromkeys(range(count), "broker")
    if layout == APART:
        roles[CONTROLLER] = "controller"
    else:
        roles[0] = "broker,controller"
    keys = {"cordoned.log.dirs": cordoned} if cordoned else {}
    with suite_cluster(
        candidate_class, tmp_path, roles, broker_keys=keys, release=release
    ) as nodes:
        lines = suites.run(SUITE, test, nodes)
    assert lines[-1:] == ["passed"], "\n".join(lines[-40:])
