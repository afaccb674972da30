"""Kafka's own integration tests of its commands for consumer groups, run on nodes of Spindle.

The classes are those of Kafka's test jar. Most tests run each case under the classic and under the
consumer protocol.
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
PACKAGE = "org.apache.kafka.tools.consumer.group"
TESTS = {
    "DeleteConsumerGroupsTest": (
        "testDeleteCmdAllGroups",
        "testDeleteCmdNonExistingGroup",
        "testDeleteCmdWithMixOfSuccessAndError",
        "testDeleteEmptyGroup",
        "testDeleteNonEmptyGroup",
        "testDeleteNonExistingGroup",
        "testDeleteWithMixOfSuccessAndError",
    ),
    "DeleteOffsetsConsumerGroupCommandIntegrationTest": (
        "testDeleteOffsetsNonExistingGroup",
        "testDeleteOffsetsOfEmptyConsumerGroupWithTopicOnly",
        "testDeleteOffsetsOfEmptyConsumerGroupWithTopicPartition",
        "testDeleteOffsetsOfEmptyConsumerGroupWithUnknownTopicOnly",
        "testDeleteOffsetsOfEmptyConsumerGroupWithUnknownTopicPartition",
        "testDeleteOffsetsOfStableConsumerGroupWithTopicOnly",
        "testDeleteOffsetsOfStableConsumerGroupWithTopicPartition",
        "testDeleteOffsetsOfStableConsumerGroupWithUnknownTopicOnly",
        "testDeleteOffsetsOfStableConsumerGroupWithUnknownTopicPartition",
    ),
    "DescribeConsumerGroupTest": (
        "testDescribeAllExistingGroups",
        "testDescribeConsumerGroupWithoutLeaders",
        "testDescribeExistingGroupWithNoMembers",
        "testDescribeExistingGroups",
        "testDescribeGroupMemberWithMigration",
        "testDescribeGroupMembers",
        "testDescribeGroupMembersWithShortInitializationTimeout",
        "testDescribeGroupOffsets",
        "testDescribeGroupOffsetsWithShortInitializationTimeout",
        "testDescribeGroupState",
        "testDescribeGroupStateWithShortInitializationTimeout",
        "testDescribeGroupWithShortInitializationTimeout",
        "testDescribeMembersOfExistingGroup",
        "testDescribeMembersOfExistingGroupWithNoMembers",
        "testDescribeMembersOfNonExistingGroup",
        "testDescribeMembersWithConsumersWithoutAssignedPartitions",
        "testDescribeMembersWithMultiPartitionTopicAndMultipleConsumers",
        "testDescribeNonExistingGroup",
        "testDescribeNonOffsetCommitGroup",
        "testDescribeOffsetsOfExistingGroup",
        "testDescribeOffsetsOfExistingGroupWithNoMembers",
        "testDescribeOffsetsOfNonExistingGroup",
        "testDescribeOffsetsWithConsumersWithoutAssignedPartitions",
        "testDescribeOffsetsWithMultiPartitionTopicAndMultipleConsumers",
        "testDescribeSimpleConsumerGroup",
        "testDescribeStateOfExistingGroup",
        "testDescribeStateOfExistingGroupWithNoMembers",
        "testDescribeStateOfExistingGroupWithNonDefaultAssignor",
        "testDescribeStateOfNonExistingGroup",
        "testDescribeStateWithConsumersWithoutAssignedPartitions",
        "testDescribeStateWithMultiPartitionTopicAndMultipleConsumers",
        "testDescribeWithConsumersWithoutAssignedPartitions",
        "testDescribeWithMultiPartitionTopicAndMultipleConsumers",
    ),
    "ListConsumerGroupTest": (
        "testListConsumerGroupsWithStates",
        "testListConsumerGroupsWithTypesClassicProtocol",
        "testListConsumerGroupsWithTypesConsumerProtocol",
        "testListConsumerGroupsWithoutFilters",
        "testListGroupCommandClassicProtocol",
        "testListGroupCommandConsumerProtocol",
        "testListWithUnrecognizedNewConsumerOption",
    ),
    "ResetConsumerGroupOffsetTest": (
        "testResetOffsetsAllTopicsAllGroups",
        "testResetOffsetsByDuration",
        "testResetOffsetsByDurationFallbackToLatestWhenNoRecords",
        "testResetOffsetsByDurationToEarliest",
        "testResetOffsetsExistingTopic",
        "testResetOffsetsExistingTopicAllGroups",
        "testResetOffsetsExistingTopicSelectedGroups",
        "testResetOffsetsExportImportPlan",
        "testResetOffsetsExportImportPlanSingleGroupArg",
        "testResetOffsetsNotExistingGroup",
        "testResetOffsetsShiftByHigherThanLatest",
        "testResetOffsetsShiftByLowerThanEarliest",
        "testResetOffsetsShiftMinus",
        "testResetOffsetsShiftPlus",
        "testResetOffsetsToCurrentOffset",
        "testResetOffsetsToEarliest",
        "testResetOffsetsToEarliestOnOneTopic",
        "testResetOffsetsToEarliestOnOneTopicAndPartition",
        "testResetOffsetsToEarliestOnTopics",
        "testResetOffsetsToEarliestOnTopicsAndPartitions",
        "testResetOffsetsToLatest",
        "testResetOffsetsToLocalDateTime",
        "testResetOffsetsToSpecificOffset",
        "testResetOffsetsToZonedDateTime",
        "testResetOffsetsWithOfflinePartitionNotInResetTarget",
        "testResetOffsetsWithPartitionNoneLeader",
        "testResetOffsetsWithPartitionNotExist",
        "testResetWithUnrecognizedNewConsumerOption",
    ),
}
"""Every test with a cluster, by class."""


@pytest.fixture(scope="module")
def suites() -> Iterator[KafkaSuites]:
    with KafkaSuites() as machine:
        yield machine


@pytest.fixture(scope="module")
def cases(suites: KafkaSuites) -> dict[str, dict[str, SuiteCase]]:
    return {name: suites.cases(f"{PACKAGE}.{name}") for name in TESTS}


def test_no_test_of_kafka_is_left_out(cases: dict[str, dict[str, SuiteCase]]) -> None:
    assert {name: tuple(sorted(suite_cases)) for name, suite_cases in cases.items()} == TESTS


@pytest.mark.parametrize(
    ("suite", "test"), [(suite, test) for suite, tests in TESTS.items() for test in tests]
)
def test_of_kafka(
    suite: str,
    test: str,
    tmp_path: Path,
    candidate_class: type[Node],
    suites: KafkaSuites,
    cases: dict[str, dict[str, SuiteCase]],
) -> None:
    case = cases[suite][test]
    with suite_cluster(
        candidate_class, tmp_path, case.roles(), broker_keys=case.properties
    ) as nodes:
        lines = suites.run(f"{PACKAGE}.{suite}", test, nodes)
    assert lines[-1:] == ["passed"], "\n".join(lines[-40:])
