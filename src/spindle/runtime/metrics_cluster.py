"""Metrics of the cluster as this node sees it: the quorum, the active controller, the metadata."""

from collections.abc import Iterator
from typing import Final, NamedTuple

from prometheus_client import Metric

from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.runtime.metadata_quorum import RaftMetadataQuorum
from spindle.runtime.metrics_families import gauge, gauges

_STATES: Final = ("leader", "follower", "unattached", "observer")


class _PartitionCounts(NamedTuple):
    total: int
    offline: int
    not_preferred: int


class ClusterMetrics:
    """Counts over all partitions are made once per image."""

    def __init__(self, node_id: int) -> None:
        self._node_id = node_id
        self._image: MetadataImage = EMPTY_IMAGE
        self._counts = _PartitionCounts(0, 0, 0)

    def controller(self, image: MetadataImage, *, is_active: bool) -> Iterator[Metric]:
        """`is_active`: this node is the active controller."""
        if image.topics is not self._image.topics:
            self._counts = _count(image)
        self._image = image
        brokers = image.cluster.brokers.values()
        counts = self._counts
        prefix = "kafka_controller_kafka_controller"
        yield gauge(
            f"{prefix}_active_controller_count", "1 on the active controller.", int(is_active)
        )
        yield gauge(
            f"{prefix}_active_broker_count",
            "Registered brokers that are not fenced.",
            sum(not broker.is_fenced for broker in brokers),
        )
        yield gauge(
            f"{prefix}_fenced_broker_count",
            "Registered brokers that are fenced.",
            sum(broker.is_fenced for broker in brokers),
        )
        yield gauge(f"{prefix}_global_topic_count", "Topics.", len(image.topics.by_name))
        yield gauge(f"{prefix}_global_partition_count", "Partitions.", counts.total)
        yield gauge(
            f"{prefix}_offline_partitions_count", "Partitions without a leader.", counts.offline
        )
        yield gauge(
            f"{prefix}_preferred_replica_imbalance_count",
            "Partitions that another than the preferred replica leads.",
            counts.not_preferred,
        )
        yield gauge(
            f"{prefix}_last_applied_record_offset",
            "Last metadata record that this node has applied.",
            image.provenance.last_offset,
        )
        yield gauge(
            f"{prefix}_last_applied_record_timestamp_seconds",
            "When that record was appended.",
            max(image.provenance.last_append_time_ms, 0) / 1000,
        )

    def quorum(self, quorum: RaftMetadataQuorum) -> Iterator[Metric]:
        """The node's part in the metadata quorum."""
        leader = quorum.leader
        voters = [voter.key.id for voter in quorum.voters]
        if leader.leader_id == self._node_id:
            state = "leader"
        elif self._node_id not in voters:
            state = "observer"
        else:
            state = "follower" if leader.leader_id >= 0 else "unattached"
        prefix = "kafka_server_raft_metrics"
        yield gauges(
            f"{prefix}_current_state",
            "1 for the state of this node in the metadata quorum.",
            [({"state": name}, int(name == state)) for name in _STATES],
        )
        yield gauge(f"{prefix}_current_leader", "Id of the leader, -1 if none.", leader.leader_id)
        yield gauge(f"{prefix}_current_epoch", "Epoch of the quorum.", leader.epoch)
        yield gauge(f"{prefix}_number_of_voters", "Voters of the quorum.", len(voters))
        yield gauge(
            f"{prefix}_high_watermark",
            "First offset of the metadata log that is not known to be committed, -1 if unknown.",
            -1 if quorum.high_watermark is None else quorum.high_watermark,
        )
        yield gauge(
            f"{prefix}_log_end_offset", "End of this node's metadata log.", quorum.log_end_offset
        )


def _count(image: MetadataImage) -> _PartitionCounts:
    total = offline = not_preferred = 0
    for topic in image.topics.by_id.values():
        for partition in topic.partitions.values():
            total += 1
            if partition.leader < 0:
                offline += 1
            elif partition.leader != partition.preferred_leader:
                not_preferred += 1
    return _PartitionCounts(total, offline, not_preferred)
