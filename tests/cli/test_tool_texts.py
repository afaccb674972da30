"""The output and the input of the tools, without a cluster."""

import pytest

from spindle.cli.table import tabbed_lines
from spindle.cli.tools.api_versions import (
    KNOWN_BY_BROKERS,
    KNOWN_BY_CONTROLLERS,
    node_lines,
    range_text,
)
from spindle.cli.tools.cluster import endpoint_lines
from spindle.cli.tools.config_entities import CLIENTS, IPS, TOPICS, USERS, Entities
from spindle.cli.tools.config_principals import check_keys, parse_credential, quota_line
from spindle.cli.tools.config_resources import entry_line, title
from spindle.cli.tools.configs import parse_settings
from spindle.cli.tools.delete_records import parse_offsets
from spindle.cli.tools.failures import ToolFailed
from spindle.cli.tools.features import change_lines, feature_line
from spindle.cli.tools.get_offsets import parse_partition_ids, parse_rules, parse_time
from spindle.cli.tools.leader_election import outcome_lines
from spindle.cli.tools.log_dirs import document
from spindle.cli.tools.quorum import replica_rows, status_lines
from spindle.cli.tools.topics import parse_assignment, parse_topic_configs
from spindle.cli.tools.topics_text import DescribedTopic, partition_lines, summary_line
from spindle.client.admin.cluster import (
    ClusterNode,
    FeatureLevels,
    QuorumDescription,
    QuorumReplica,
)
from spindle.client.admin.configs import ReportedConfig, ReportedSource, ReportedSynonym
from spindle.client.admin.partitions import ElectionType, Reassignment
from spindle.client.admin.quotas import CLIENT_ID, USER, QuotaEntry
from spindle.client.admin.topics import PartitionDescription, TopicDescription
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.errors import ClientError
from spindle.client.log_dirs import LogDirView, ReplicaOnDisk
from spindle.client.versions import ApiVersionRange, PeerVersions
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.java_text import in_map_order, java_double, partition_hash, string_hash
from spindle.common.uuids import ZERO_UUID

DEFAULT, TOPIC = ReportedSource.DEFAULT_CONFIG, ReportedSource.DYNAMIC_TOPIC_CONFIG


def test_the_order_of_java() -> None:
    assert string_hash("") == 0
    assert string_hash("t") == 116
    assert string_hash("hello") == 99162322
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    assert in_map_order(partitions, partition_hash) == partitions[::-1]


def test_a_larger_map_has_more_buckets() -> None:
    # Buckets 0 and 0 of 16, but 16 and 0 of 32: the hash of one character is its code.
    few = ["0", " "]
    assert in_map_order(few, string_hash) == ["0", " "]
    many = [*few, *(chr(ord("a") + number) for number in range(11))]
    assert in_map_order(many, string_hash)[0] == " "


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (50.0, "50.0"),
        (2048.5, "2048.5"),
        (0.001, "0.001"),
        (0.0001, "1.0E-4"),
        (1e7, "1.0E7"),
        (12345678.9, "1.23456789E7"),
        (-3e10, "-3.0E10"),
        (float("inf"), "Infinity"),
    ],
)
def test_numbers_as_java_prints_them(value: float, text: str) -> None:
    assert java_double(value) == text


def described(*partitions: PartitionDescription, moves: bool = False) -> DescribedTopic:
    topic = TopicDescription("t", ZERO_UUID, False, partitions)
    entries = [
        ReportedConfig("min.insync.replicas", "2", DEFAULT, False),
        ReportedConfig("retention.ms", "5", TOPIC, False),
    ]
    reassignment = {TopicPartition("t", 0): Reassignment((1, 2, 3), (3,), (1,))} if moves else {}
    return DescribedTopic(topic, entries, reassignment, {1, 2})


def test_a_topic_is_described_in_kafkas_lines() -> None:
    shown = described(PartitionDescription(0, 1, (1, 2), (1,), (2,), ()))
    assert summary_line(shown) == (
        "Topic: t\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: retention.ms=5"
    )
    assert partition_lines(shown, []) == [
        "\tTopic: t\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\tElr: 2\tLastKnownElr: "
    ]


def test_a_moving_topic_shows_its_added_and_removed_replicas() -> None:
    shown = described(PartitionDescription(0, -1, (1, 2, 3), (1, 2)), moves=True)
    assert "ReplicationFactor: 2" in summary_line(shown)
    assert partition_lines(shown, []) == [
        "\tTopic: t\tPartition: 0\tLeader: none\tReplicas: 1,2,3\tIsr: 1,2\tAdding Replicas: 3"
        "\tRemoving Replicas: 1\tElr: N/A\tLastKnownElr: N/A"
    ]


@pytest.mark.parametrize(
    ("report", "numbers"),
    [
        ("under-replicated-partitions", [1, 2]),
        ("unavailable-partitions", [2, 3]),
        ("under-min-isr-partitions", [1, 2]),
        ("at-min-isr-partitions", [0, 3]),
    ],
)
def test_reports_select_partitions_by_their_state(report: str, numbers: list[int]) -> None:
    shown = described(
        PartitionDescription(0, 1, (1, 2), (1, 2)),
        PartitionDescription(1, 1, (1, 2), (1,)),
        PartitionDescription(2, -1, (1, 2), (2,)),
        PartitionDescription(3, 9, (9, 2), (9, 2)),
    )
    lines = partition_lines(shown, [report])
    assert [int(line.split("Partition: ")[1].split("\t")[0]) for line in lines] == numbers


def test_replica_assignments_are_parsed() -> None:
    assert parse_assignment("1:2,2:1") == {0: [1, 2], 1: [2, 1]}
    assert parse_assignment("") == {}
    for text, message in [
        ("1:1", "may not contain duplicate entries: 1"),
        ("1:2,1", r"Partition 1 has different replication factor: \[1\]"),
        ("a", "not a list of broker ids"),
    ]:
        with pytest.raises(ToolFailed, match=message):
            parse_assignment(text)


def test_topic_settings_are_parsed_from_key_value_pairs() -> None:
    assert parse_topic_configs(["a = b", "c=d"]) == {"a": "b", "c": "d"}
    with pytest.raises(ToolFailed, match='"key=val"'):
        parse_topic_configs(["a"])


def test_settings_may_have_lists_as_values() -> None:
    assert parse_settings("a=1,b=[x,y],c=") == {"a": "1", "b": "x,y", "c": ""}
    assert parse_settings("SCRAM-SHA-256=[iterations=8192,password=x]") == {
        "SCRAM-SHA-256": "iterations=8192,password=x"
    }
    with pytest.raises(ToolFailed, match="Invalid entity config: all configs"):
        parse_settings("a")


def test_configs_are_shown_with_their_synonyms() -> None:
    synonyms = (ReportedSynonym("k", "1", TOPIC), ReportedSynonym("log.k", None, DEFAULT))
    assert entry_line(ReportedConfig("k", "1", TOPIC, False, synonyms)) == (
        "  k=1 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:k=1, DEFAULT_CONFIG:log.k=null}"
    )
    assert entry_line(ReportedConfig("p", None, TOPIC, True)) == (
        "  p=null sensitive=true synonyms={}"
    )
    assert title(TOPICS, "t", describe_all=False) == "Dynamic configs for topic t are:"
    assert title("brokers", "", describe_all=True) == (
        "Default configs for brokers in the cluster are:"
    )


def test_quotas_are_shown_with_their_entity() -> None:
    entry = QuotaEntry({USER: "alice", CLIENT_ID: None}, {"request_percentage": 50.0})
    assert quota_line(entry) == (
        "Quota configs for user-principal 'alice', the default client-id are "
        "request_percentage=50.0"
    )


@pytest.mark.parametrize(
    ("types", "names", "keys", "message"),
    [
        ((IPS,), ("h",), ["nosuch"], "Only connection quota configs can be added for 'ips'"),
        ((CLIENTS,), ("c",), ["SCRAM-SHA-256"], "Only quota configs can be added for 'clients'"),
        ((USERS,), ("u",), ["x"], r"Unexpected config names: Set\(x\)"),
        ((USERS,), ("",), ["SCRAM-SHA-512"], "not allowed with User SCRAM Credentials"),
        ((USERS,), ("u",), ["SCRAM-SHA-512", "producer_byte_rate"], "simultaneously"),
    ],
)
def test_keys_that_an_entity_cannot_have(
    types: tuple[str, ...], names: tuple[str, ...], keys: list[str], message: str
) -> None:
    with pytest.raises(ToolFailed, match=message):
        check_keys(Entities(types, names), keys, [])


def test_scram_credentials_are_parsed() -> None:
    credential = parse_credential("SCRAM-SHA-512", "iterations=8192,password=a,b=c", b"salt")
    assert (credential.iterations, credential.password, credential.mechanism.hash_name) == (
        8192,
        "a,b=c",
        "sha512",
    )
    assert parse_credential("SCRAM-SHA-256", "password=x", b"").iterations == 4096
    with pytest.raises(ToolFailed, match="less than the minimum 4096"):
        parse_credential("SCRAM-SHA-256", "iterations=1,password=x", b"")
    with pytest.raises(ToolFailed, match="Invalid credential property SCRAM_SHA_256=x"):
        parse_credential("SCRAM-SHA-256", "x", b"")


def test_times_and_rules_of_get_offsets() -> None:
    assert parse_time("earliest-local") == -4
    assert parse_time("-3") == -3
    with pytest.raises(ToolFailed, match="Malformed time argument never"):
        parse_time("never")
    assert parse_partition_ids("1,2") == {1, 2}
    with pytest.raises(ToolFailed, match="but received: x"):
        parse_partition_ids("x")
    meant = parse_rules("a:1,b:2-4,c:-2,:7,d")
    for topic, number, expected in [
        ("a", 1, True),
        ("a", 2, False),
        ("b", 3, True),
        ("b", 4, False),
        ("c", 1, True),
        ("c", 2, False),
        ("x", 7, True),
        ("d", 99, True),
    ]:
        assert meant(TopicPartition(topic, number)) is expected
    with pytest.raises(ToolFailed, match="Invalid rule specification: t:a-b"):
        parse_rules("t:a-b")


def test_offsets_to_delete_up_to() -> None:
    text = '{"partitions": [{"topic": "t", "partition": 1, "offset": -1}], "version": 1}'
    assert parse_offsets(text) == {TopicPartition("t", 1): -1}
    twice = '{"partitions": [%s, %s]}' % (('{"topic": "t", "partition": 0, "offset": 1}',) * 2)
    for bad, message in [
        (twice, "duplicate topic partitions: t-0"),
        ("no json", "not a valid JSON"),
        ('{"version": 2, "partitions": []}', "Not supported version field value 2"),
        ("{}", "Missing partitions field"),
        ('{"partitions": [{"topic": "t", "partition": "x"}]}', "the field partition is 'x'"),
    ]:
        with pytest.raises(ToolFailed, match=message):
            parse_offsets(bad)


def test_log_dirs_are_shown_as_kafkas_json() -> None:
    replica = ReplicaOnDisk(146, 0, False)
    replicas = {TopicPartition("t", 0): replica, TopicPartition("u", 0): replica}
    views = [
        LogDirView("/d1", ErrorCode.NONE, -1, -1, False, replicas),
        LogDirView("/d2", ErrorCode.KAFKA_STORAGE_ERROR, -1, -1, False, {}),
    ]
    shown = document({1: views}, ["t"])
    directories = {log_dir["logDir"]: log_dir for log_dir in shown["brokers"][0]["logDirs"]}
    assert directories["/d1"]["partitions"] == [
        {"partition": "t-0", "size": 146, "offsetLag": 0, "isFuture": False}
    ]
    assert directories["/d2"]["error"] == "org.apache.kafka.common.errors.KafkaStorageException"


def test_the_quorum_status_shows_lag_and_endpoints() -> None:
    voters = (QuorumReplica(1, ZERO_UUID, 40, 100, 100), QuorumReplica(2, ZERO_UUID, 38, 90, 70))
    quorum = QuorumDescription(1, 3, 38, voters, (), {1: (("C", "h", 9),), 2: (("C", "::1", 9),)})
    assert status_lines("id", quorum)[4:7] == [
        "MaxFollowerLag:         2",
        "MaxFollowerLagTimeMs:   30",
        'CurrentVoters:          [{"id": 1, "endpoints": ["C://h:9"]}, '
        '{"id": 2, "endpoints": ["C://[::1]:9"]}]',
    ]
    rows = replica_rows(quorum, 150)
    assert [row[3:] for row in rows] == [
        ("0", "50 ms ago", "50 ms ago", "Leader"),
        ("2", "60 ms ago", "80 ms ago", "Follower"),
    ]
    assert tabbed_lines([("a", "bb"), ("ccc", "d")]) == ["a  \tbb\t", "ccc\td \t"]


def test_nodes_of_the_cluster() -> None:
    lines = endpoint_lines([ClusterNode(1, "127.0.0.1", 9092, None, True)], "broker")
    assert lines[1] == "1          127.0.0.1 9092       null       fenced     broker         "


def test_features_are_shown_by_release_and_changes_confirmed() -> None:
    line = feature_line(FeatureLevels("metadata.version", 7, 30, 99), -1)
    assert "SupportedMinVersion: 3.3-IV3" in line
    assert "FinalizedVersionLevel: UNKNOWN 99" in line
    assert line.endswith("Epoch: -")
    assert change_lines("disable", {"f": 0}, None, dry_run=False) == ["f was disabled."]
    assert change_lines("upgrade", {"f": 2}, None, dry_run=True) == ["f can be upgraded to 2."]
    refused = ApiError(ErrorCode.INVALID_UPDATE_VERSION, "no")
    assert change_lines("downgrade", {"f": 0}, refused, dry_run=False) == [
        "Could not downgrade f to 0. no"
    ]


def test_api_versions_of_a_broker_are_printed() -> None:
    assert range_text(None, 3) == "UNSUPPORTED"
    assert range_text(ApiVersionRange(0, 9), 3) == "0 to 9 [usable: 3]"
    assert range_text(ApiVersionRange(2, 2), 3) == "2 [usable: 2]"
    assert range_text(ApiVersionRange(5, 9), 3) == "5 to 9 [unusable]"
    lines = node_lines(
        BrokerAddress(1, "h", 9), PeerVersions({0: ApiVersionRange(0, 13)}), KNOWN_BY_BROKERS
    )
    assert lines[0] == "h:9 (id: 1 rack: null isFenced: false) -> ("
    assert lines[1].startswith("\tProduce(0): 0 to 13 [usable: 13],\n\tFetch(1): UNSUPPORTED")
    refused = node_lines(BrokerAddress(1, "h", 9), ClientError("no answer"), KNOWN_BY_BROKERS)
    assert refused == ["h:9 (id: 1 rack: null isFenced: false) -> ERROR: no answer"]
    assert list(KNOWN_BY_CONTROLLERS) == sorted(KNOWN_BY_CONTROLLERS)
    further = {
        KNOWN_BY_CONTROLLERS[key].name for key in set(KNOWN_BY_CONTROLLERS) - set(KNOWN_BY_BROKERS)
    }
    assert {"Vote", "BrokerRegistration", "AssignReplicasToDirs"} <= further


def test_elections_report_success_failure_and_no_need() -> None:
    outcome = {
        TopicPartition("t", 0): None,
        TopicPartition("t", 1): ApiError(ErrorCode.ELECTION_NOT_NEEDED, "x"),
        TopicPartition("t", 2): ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "No such topic"),
    }
    assert outcome_lines(ElectionType.PREFERRED, outcome) == [
        "Successfully completed leader election (PREFERRED) for partitions t-0",
        "Valid replica already elected for partitions t-1",
        "Error completing leader election (PREFERRED) for partition: t-2: "
        "org.apache.kafka.common.errors.UnknownTopicOrPartitionException: No such topic",
    ]
