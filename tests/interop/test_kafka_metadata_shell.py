"""Kafka's metadata shell on files that Spindle wrote, compared with Spindle's shell."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from peers.java_tools import JavaTools
from peers.metadata_shells import compare, own_lines
from peers.node import SpindleNode

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from spindle.raft.voters import VoterSet

TOPIC_ID = bytes(range(16))
QUOTA = ClientQuotaRecord.EntityData
RECORDS = [
    FeatureLevelRecord(name="metadata.version", feature_level=30),
    FeatureLevelRecord(name="group.version", feature_level=1),
    RegisterBrokerRecord(
        broker_id=12,
        incarnation_id=bytes([3] * 16),
        broker_epoch=9,
        end_points=[
            RegisterBrokerRecord.BrokerEndpoint(
                name=name, host="h", port=65535, security_protocol=protocol
            )
            for name, protocol in (("SSL", 1), ("PLAIN", 0), ("SASL", 3))
        ],
        features=[
            RegisterBrokerRecord.BrokerFeature(
                name=name, min_supported_version=low, max_supported_version=7
            )
            for name, low in (("metadata.version", 7), ("group.version", 0))
        ],
        rack="r",
        fenced=False,
        log_dirs=[bytes([5] * 16), bytes([4] * 16)],
        cordoned_log_dirs=[bytes([4] * 16)],
    ),
    RegisterControllerRecord(
        controller_id=8,
        incarnation_id=bytes([8] * 16),
        zk_migration_ready=False,
        end_points=[
            RegisterControllerRecord.ControllerEndpoint(
                name="CONTROLLER", host="h", port=1, security_protocol=0
            )
        ],
        features=[],
    ),
    TopicRecord(name="with.dots", topic_id=TOPIC_ID),
    *(
        PartitionRecord(
            partition_id=number,
            topic_id=TOPIC_ID,
            replicas=[12, 2, 3],
            isr=[12],
            removing_replicas=[2],
            adding_replicas=[3],
            leader=12,
            leader_recovery_state=number % 2,
            leader_epoch=4,
            partition_epoch=5,
            directories=[bytes([5] * 16), bytes(16), bytes([0] * 15 + [1])],
            eligible_leader_replicas=[2],
            last_known_elr=[3],
        )
        for number in (0, 1, 2, 10)
    ),
    ConfigRecord(resource_type=2, resource_name="with.dots", name="retention.ms", value="5"),
    ConfigRecord(resource_type=4, resource_name="", name="num.io.threads", value="2"),
    ConfigRecord(resource_type=16, resource_name="m", name="interval.ms", value="100"),
    ConfigRecord(resource_type=32, resource_name="g", name="consumer.session.timeout.ms", value=""),
    ClientQuotaRecord(
        entity=[
            QUOTA(entity_type="user", entity_name="a(b)"),
            QUOTA(entity_type="client-id", entity_name="c\\d"),
        ],
        key="producer_byte_rate",
        value=1024.5,
    ),
    ClientQuotaRecord(
        entity=[QUOTA(entity_type="ip", entity_name="10.0.0.1")],
        key="connection_creation_rate",
        value=2e9,
    ),
    UserScramCredentialRecord(
        name="alice",
        mechanism=2,
        salt=b"salt",
        stored_key=b"\x00\xff",
        server_key=b"k",
        iterations=8192,
    ),
    AccessControlEntryRecord(
        id=bytes([70] * 16),
        resource_type=5,
        resource_name="t",
        pattern_type=4,
        principal="User:a",
        host="*",
        operation=12,
        permission_type=2,
    ),
    DelegationTokenRecord(
        owner="User:o",
        requester="User:r",
        renewers=["User:x", "User:y"],
        issue_timestamp=1,
        max_timestamp=3,
        expiration_timestamp=2,
        token_id="token",
    ),
    ProducerIdsRecord(broker_id=12, broker_epoch=9, next_producer_id=2000),
]


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a snapshot with every kind of content that an image can have."""
    info = SnapshotInfo(1_700_000_000_120, 1, VoterSet())
    parts = encode_snapshot(
        encode_records(RECORDS),
        info,
        epoch=3,
        now_ms=int(time.time()) * 1000 + 120,
    )
    path = tmp_path_factory.mktemp("snapshot") / snapshot_file_name(OffsetAndEpoch(100, 3))
    path.write_bytes(b"".join(parts))
    return path


def test_the_same_tree_of_a_snapshot(snapshot: Path) -> None:
    # Leave out the provenance, where Kafka counts offsets within the file.
    names = set(own_lines(snapshot, "ls", "/image")) - {"provenance"}
    lines = compare(snapshot, "tree", *(f"/image/{name}" for name in sorted(names)))
    assert any("StandardAcl" in line for line in lines)
    assert any("DelegationTokenData" in line for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["ls", "/image/topics/by*", "/image/cluster/brokers/12", "/nowhere"],
        ["cat", "/image/topics/byName/*/{0,10}", "/image/features", "/image/scram/*/ali?e", "x"],
        ["find", "/image/c*", "image/acls/../producerIds"],
        ["reload"],
    ],
)
def test_the_same_answers(snapshot: Path, words: list[str]) -> None:
    compare(snapshot, *words)


def test_both_shells_on_the_log_of_a_spindle_node(tmp_path: Path, java_tools: JavaTools) -> None:
    with SpindleNode(tmp_path / "node") as node:
        for words in (
            ["topics", "--create", "--topic", "t", "--partitions", "3"],
            ["configs", "--alter", "--topic", "t", "--add-config", "retention.ms=1234567"],
        ):
            tool, *rest = words
            java_tools.run(tool, "--bootstrap-server", node.bootstrap, *rest).check()
        running = own_lines(node.log_dirs[0], "cat", "/image/topics/byName/t/1")
        assert running[0].startswith("PartitionRegistration(replicas=[1]")
        node.stop()
        segment = node.log_dirs[0] / "__cluster_metadata-0" / "00000000000000000000.log"
        lines = compare(segment, "tree", "/image")
        assert lines == own_lines(node.log_dirs[0], "tree", "image")
        assert "      1234567" in lines
