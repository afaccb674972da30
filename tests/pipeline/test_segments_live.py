"""Reads from directories of a running cluster: answers of brokers count more than checkpoints."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from log_directory_files import OTHER_ID, TOPIC_ID, ReplicaWriter, format_directory, simple_records

from spindle.client.wire.settings import ClientSettings, client_settings
from spindle.common.ids import TopicPartition
from spindle.pipeline.errors import DataLoss
from spindle.pipeline.segments.live import LiveCluster, live_cluster
from spindle.pipeline.segments.options import SegmentOptions, parse_segment_options
from spindle.pipeline.segments.partitions import readable_partitions

T0 = TopicPartition("topic", 0)


@dataclass(frozen=True)
class FakeCluster(LiveCluster):
    """A cluster that answers without a network."""

    brokers: ClientSettings = field(
        default_factory=lambda: client_settings({"bootstrap.servers": "nowhere:1"})
    )
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    asked_committed: list[bool] = field(default_factory=list)

    def identified(self, options: SegmentOptions, topics: Sequence[str]) -> SegmentOptions:
        return replace(options, topic_ids=self.topic_ids)

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
    (found,) = readable_partitions(options(directory), cluster)
    assert found.end_offset == 70
    committed = options(directory, isolationLevel="read_committed")
    (found,) = readable_partitions(committed, cluster)
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
    (found,) = readable_partitions(options(directory.parent / "d*"), cluster)
    assert (found.topic_id, found.end_offset) == (OTHER_ID, 7)


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
