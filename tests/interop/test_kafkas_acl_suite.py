"""Kafka's own integration tests of its command for ACLs, run on nodes of Spindle.

The class is the one of Kafka's test jar. It asks the broker, and the controller.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from peers.kafka_suite import KafkaSuites, SuiteCase, suite_cluster
from peers.node import Node
from peers.paths import java_can_compile

pytestmark = [
    pytest.mark.timeout(180),
    pytest.mark.skipif(not java_can_compile(), reason="a development kit of Java is needed"),
]
SUITE = "org.apache.kafka.tools.AclCommandTest"
TESTS = (
    "testAclCliWithAdminAPI",
    "testAclCliWithAdminAPIAndBootstrapController",
    "testAclCliWithClientId",
    "testAclCliWithClientIdAndBootstrapController",
    "testAclCliWithMisusingBootstrapControllerToServer",
    "testAclCliWithMisusingBootstrapServerToController",
    "testAclsOnPrefixedResourcesWithAdminAPI",
    "testAclsOnPrefixedResourcesWithAdminAPIAndBootstrapController",
    "testDuplicateAdd",
    "testPatternTypesWithAdminAPI",
    "testPatternTypesWithAdminAPIAndBootstrapController",
    "testProducerConsumerCliWithAdminAPI",
    "testProducerConsumerCliWithAdminAPIAndBootstrapController",
)
"""Every test with a cluster."""


@pytest.fixture(scope="module")
def suites() -> Iterator[KafkaSuites]:
    with KafkaSuites() as machine:
        yield machine


@pytest.fixture(scope="module")
def cases(suites: KafkaSuites) -> dict[str, SuiteCase]:
    return suites.cases(SUITE)


def test_no_test_of_kafka_is_left_out(cases: dict[str, SuiteCase]) -> None:
    assert tuple(sorted(cases)) == TESTS


@pytest.mark.parametrize("test", TESTS)
def test_of_kafka(
    test: str,
    tmp_path: Path,
    candidate_class: type[Node],
    suites: KafkaSuites,
    cases: dict[str, SuiteCase],
) -> None:
    case = cases[test]
    with suite_cluster(
        candidate_class, tmp_path, case.roles(), broker_keys=case.properties
    ) as nodes:
        lines = suites.run(SUITE, test, nodes)
    assert lines[-1:] == ["passed"], "\n".join(lines[-40:])
