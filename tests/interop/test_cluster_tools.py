"""kafka-metadata-quorum, kafka-cluster, kafka-features and kafka-broker-api-versions."""

from __future__ import annotations

import re
import subprocess

import pytest
from peers.compare import Answer, Pair, tool_answer
from peers.node import Node
from peers.paths import SPINDLE

# Classic and admin APIs that a client of a single node needs; each is complete or absent.
CLIENT_APIS = [
    "Produce", "Fetch", "ListOffsets", "Metadata", "OffsetCommit", "OffsetFetch",
    "FindCoordinator", "JoinGroup", "Heartbeat", "LeaveGroup", "SyncGroup", "DescribeGroups",
    "ListGroups", "ApiVersions", "CreateTopics", "DeleteTopics", "DeleteRecords",
    "InitProducerId", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs",
    "DescribeLogDirs", "CreatePartitions", "DeleteGroups", "OffsetDelete", "DescribeCluster",
    "DescribeTopicPartitions",
]  # fmt: skip


def test_quorum_status(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        answer = tool_answer(
            pair.java_tools.run(
                "metadata-quorum", "--bootstrap-server", node.bootstrap, "describe", "--status"
            )
        )
        lines = [re.sub(r"(HighWatermark:\s+)\d+", r"\1<n>", line) for line in answer["stdout"]]
        # The two clocks from which the lag is computed tick independently.
        return answer["exit"], [line for line in lines if not line.startswith("MaxFollowerLagTime")]

    _, lines = pair.compare(script)
    assert any("CurrentVoters" in line for line in lines)


def test_quorum_replication(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        answer = tool_answer(
            pair.java_tools.run(
                "metadata-quorum", "--bootstrap-server", node.bootstrap, "describe", "--replication"
            )
        )
        # Columns: node, directory, end offset, lag, two times, status.
        rows = [line.split() for line in answer["stdout"]]
        return answer["exit"], rows[0], [[row[0], row[3], row[-1]] for row in rows[1:]]

    pair.compare(script)


def test_cluster_tool(pair: Pair) -> None:
    commands = [
        ("cluster-id",),
        ("list-endpoints",),
        ("unregister", "--id", "9"),
        ("unregister-controller", "--id", "9"),
        ("unregister-controller", "--id", "1"),
    ]
    answers = pair.compare(
        lambda node: [
            tool_answer(
                pair.java_tools.run(
                    "cluster", words[0], "--bootstrap-server", node.bootstrap, *words[1:]
                )
            )
            for words in commands
        ]
    )
    assert answers[0]["stdout"] == ["Cluster ID: <cluster>"]


def test_api_versions_of_brokers_and_controllers(pair: Pair) -> None:
    """`spindle kafka cluster api-versions` prints what Kafka's tool prints of both programs."""
    for node in (pair.reference, pair.candidate):
        for words in (("--bootstrap-server", node.bootstrap), ("-C", node.controller)):
            theirs = pair.java_tools.run("cluster", "api-versions", *words).check()
            command = [str(SPINDLE), "kafka", "cluster", "api-versions", *words]
            ours = subprocess.run(command, capture_output=True, text=True, check=True)
            assert ours.stdout.splitlines() == theirs.stdout.rstrip("\n").splitlines()


def test_features(pair: Pair) -> None:
    def script(node: Node) -> Answer:
        answer = tool_answer(
            pair.java_tools.run("features", "--bootstrap-server", node.bootstrap, "describe")
        )
        return [re.sub(r"Epoch: \d+", "Epoch: <n>", line) for line in answer["stdout"]]

    lines = pair.compare(script)
    assert any("metadata.version" in line for line in lines)


def api_ranges(pair: Pair, node: Node) -> dict[str, tuple[int, int]]:
    """Return the (lowest, highest version) of each API that kafka-broker-api-versions prints."""
    done = pair.java_tools.run("broker-api-versions", "--bootstrap-server", node.bootstrap)
    ranges: dict[str, tuple[int, int]] = {}
    for line in done.check().lines:
        match = re.match(r"\s+(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable", line)
        if match:
            low = int(match[3])
            ranges[match[1]] = (low, int(match[4]) if match[4] else low)
    return ranges


def test_advertised_versions_are_kafkas(pair: Pair) -> None:
    """Spindle advertises no version that Kafka does not advertise."""
    reference = api_ranges(pair, pair.reference)
    candidate = api_ranges(pair, pair.candidate)
    foreign = {
        name: (versions, reference.get(name))
        for name, versions in candidate.items()
        if name not in reference
        or versions[0] < reference[name][0]
        or versions[1] > reference[name][1]
    }
    assert len(candidate) >= len(CLIENT_APIS)
    assert foreign == {}


@pytest.mark.parametrize("name", CLIENT_APIS)
def test_client_apis_are_complete(pair: Pair, name: str) -> None:
    reference = api_ranges(pair, pair.reference)
    candidate = api_ranges(pair, pair.candidate)
    assert candidate.get(name) == reference[name]
