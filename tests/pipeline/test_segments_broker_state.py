"""Reads from directories of a running cluster: answers of brokers count more than checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from log_directory_files import (
    CLUSTER_ID,
    OTHER_ID,
    TOPIC_ID,
    ReplicaWriter,
    format_directory,
    simple_records,
)

from spindle.client.blocking.settings import ClientSettings, client_settings
from spindle.client.cluster_metadata import ClusterView, PartitionView, TopicView
from spindle.common.ids import TopicPartition
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.segments.broker_state import LiveCluster, live_cluster
from spindle.pipeline.segments.options import SegmentOptions, parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions

T0 = TopicPartition("topic", 0)
NOWHERE = client_settings({"bootstrap.servers": "nowhere:1"})


@dataclass(frozen=True)
class FakeCluster(LiveCluster):
    """A cluster that answers without a network."""

    brokers: ClientSettings = NOWHERE
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    cluster_id: str = CLUSTER_ID
    leader: int = 1
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    asked_committed: list[bool] = field(default_factory=list)

    def view(self, topics: Sequence[str]) -> ClusterView:
        partitions = {0: PartitionView(0, self.leader, 0, (1, 2), (1, 2), ())}
        topic_views = {
            name: TopicView(name, topic_id, is_internal=False, partitions=partitions)
            for name, topic_id in self.topic_ids.items()
        }
        return ClusterView(self.cluster_id, topics=topic_views)

    def end_offsets(
        self, partitions: Sequence[TopicPartition], *, is_read_committed: bool
    ) -> dict[TopicPartition, int]:
        self.asked_committed.append(is_read_committed)
        return {partition: self.ends[partition] for partition in partitions}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    path = format_directory(tmp_path / "d1")
    ReplicaWriter(path, T0).append_records(simple_records(100))
    return path


def options(directory: Path, **extra: str) -> SegmentOptions:
    return parse_segment_options({"logDirs": str(directory), "subscribe": "topic", **extra})


def test_the_end_is_the_clusters_not_the_checkpoints(directory: Path) -> None:
    cluster = FakeCluster(topic_ids={"topic": TOPIC_ID}, ends={T0: 70})
    (partition,) = readable_partitions(options(directory), cluster)
    assert partition.end_offset == 70
    committed = options(directory, isolationLevel="read_committed")
    (partition,) = readable_partitions(committed, cluster)
    assert cluster.asked_committed == [False, True]


def test_a_replica_that_is_behind_is_data_loss(directory: Path) -> None:
    cluster = FakeCluster(topic_ids={"topic": TOPIC_ID}, ends={T0: 101})
    with pytest.raises(DataLoss, match=r"up to offset 101, .* ends at 100: it is not in sync"):
        readable_partitions(options(directory), cluster)
    lenient = options(directory, failOnDataLoss="false")
    assert readable_partitions(lenient, cluster)[0].end_offset == 100


def test_the_present_topic_is_read_where_an_older_one_left_a_replica(directory: Path) -> None:
    later = format_directory(directory.parent / "d2")
    ReplicaWriter(later, T0, OTHER_ID).append_records(simple_records(7))
    cluster = FakeCluster(topic_ids={"topic": OTHER_ID}, ends={T0: 7})
    (partition,) = readable_partitions(options(directory.parent / "d*"), cluster)
    assert (partition.topic_id, partition.end_offset) == (OTHER_ID, 7)


def test_without_bootstrap_servers_nobody_is_asked(directory: Path) -> None:
    assert live_cluster(options(directory)) is None
    given = parse_segment_options({"subscribe": "topic", "kafka.bootstrap.servers": "h:1"})
    assert live_cluster(given) == LiveCluster(client_settings({"bootstrap.servers": "h:1"}))
    with pytest.raises(ValueError, match=r"kafka\.bootstrap\.servers has 'h', want host:port"):
        parse_segment_options({"subscribe": "topic", "kafka.bootstrap.servers": "h"})


def test_the_brokers_are_asked_over_a_secured_connection() -> None:
    given = {
        "subscribe": "topic",
        "kafka.bootstrap.servers": "h:1",
        "kafka.security.protocol": "SASL_SSL",
    }
    with pytest.raises(ValueError, match=r"option kafka\.sasl\.mechanism is missing"):
        parse_segment_options(given)
    cluster = live_cluster(parse_segment_options(given | {"kafka.security.protocol": "SSL"}))
    assert cluster is not None
    assert cluster.brokers.security.tls is not None


def test_directories_of_another_cluster_than_the_brokers_are_refused(directory: Path) -> None:
    cluster = FakeCluster(topic_ids={"topic": TOPIC_ID}, ends={T0: 70}, cluster_id="another")
    finding = rf"{directory} belongs to cluster {CLUSTER_ID}, .*nowhere:1 are cluster another"
    with pytest.raises(ValueError, match=finding):
        readable_partitions(options(directory), cluster)


@pytest.fixture
def two_brokers(directory: Path) -> Path:
    """Return the root of two brokers' directories: broker 1 has 100 records, broker 2 has 90."""
    second = format_directory(directory.parent / "d2", node_id=2)
    ReplicaWriter(second, T0).append_records(simple_records(90))
    return directory.parent


@pytest.mark.parametrize(
    ("replica", "leader", "expected"),
    [
        (None, 2, "d2"),
        (None, 9, "d1"),
        ("leader", 2, "d2"),
        ("leader", 1, "d1"),
        ("2", 1, "d2"),
        ("{root}/d2", 1, "d2"),
    ],
)
def test_the_chosen_replica_is_read(
    two_brokers: Path, replica: str | None, leader: int, expected: str
) -> None:
    cluster = FakeCluster(topic_ids={"topic": TOPIC_ID}, ends={T0: 80}, leader=leader)
    extra = {} if replica is None else {"replica": replica.format(root=two_brokers)}
    given = {"kafka.bootstrap.servers": "nowhere:1", **extra}
    (readable,) = readable_partitions(options(two_brokers / "d*", **given), cluster)
    assert (readable.log.path.parent.name, readable.end_offset) == (expected, 80)


def test_without_brokers_the_longest_replica_is_read_or_the_chosen_one(two_brokers: Path) -> None:
    (partition,) = readable_partitions(options(two_brokers / "d*"))
    assert partition.end_offset == 100
    (partition,) = readable_partitions(options(two_brokers / "d*", replica="2"))
    assert partition.end_offset == 90


def test_a_longer_replica_of_an_older_leader_epoch_is_not_read(directory: Path) -> None:
    second = format_directory(directory.parent / "d2", node_id=2)
    writer = ReplicaWriter(second, T0)
    writer.append_records(simple_records(95))
    writer.write_epochs([(0, 0), (1, 80)])
    (partition,) = readable_partitions(options(directory.parent / "d*"))
    assert (partition.log.path.parent.name, partition.end_offset) == ("d2", 95)
    cluster = FakeCluster(topic_ids={"topic": TOPIC_ID}, ends={T0: 90}, leader=9)
    (partition,) = readable_partitions(options(directory.parent / "d*"), cluster)
    assert (partition.log.path.parent.name, partition.end_offset) == ("d2", 90)


@pytest.mark.parametrize(
    ("replica", "finding"),
    [
        ("leader", "'leader' needs kafka.bootstrap.servers"),
        ("d2", "'d2', want leader, a broker's id from 0 to 2147483647, or"),
        ("7", r"7 has no replica of topic-0 .* there are replicas in .*/d1 \(broker 1\), .*/d2 "),
        ("/d3", "/d3 has no replica of topic-0"),
    ],
)
def test_a_replica_that_is_not_there_is_refused(
    two_brokers: Path, replica: str, finding: str
) -> None:
    with pytest.raises(ValueError, match=finding):
        readable_partitions(options(two_brokers / "d*", replica=replica))
