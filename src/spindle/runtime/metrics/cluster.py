"""Metrics of the cluster as this node sees it: the quorum, the controller, the metadata."""

from collections.abc import Iterator
from typing import Final

from prometheus_client import Metric

from spindle.common.uuids import uuid_text
from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from spindle.metadata.image import MetadataImage
from spindle.raft.core import QuorumCore
from spindle.raft.roles import Follower, Leader, Prospective, Unattached
from spindle.raft.voters import ReplicaKey
from spindle.runtime.controller.controller_counters import ControllerHistory
from spindle.runtime.controller.controller_server import WrittenSnapshot
from spindle.runtime.controller.driver import ControllerDriver
from spindle.runtime.metrics.families import counter, duration_metrics, gauge, gauges
from spindle.runtime.metrics.metadata_counts import MetadataCounts
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum

_STATES: Final = (
    *("leader", "candidate", "prospective", "prospective-voted", "follower"),
    *("unattached", "unattached-voted", "resigned", "observer"),
)
_NOBODY: Final = ReplicaKey(-1)
_CONTROLLER: Final = "kafka_controller_kafka_controller"


def cluster_metrics(image: MetadataImage, counts: MetadataCounts) -> Iterator[Metric]:
    """Yield the metrics of the committed metadata, which every node has."""
    brokers = image.cluster.brokers
    states = {broker_id: _state(broker) for broker_id, broker in brokers.items()}
    for name, state, documentation in (
        ("active_broker_count", "active", "Registered brokers that are not fenced."),
        ("fenced_broker_count", "fenced", "Registered brokers that are fenced."),
        (
            "controlled_shutdown_broker_count",
            "controlled_shutdown",
            "Brokers in controlled shutdown.",
        ),
    ):
        count = sum(name == state for name in states.values())
        yield gauge(f"{_CONTROLLER}_{name}", documentation, count)
    yield gauges(
        f"{_CONTROLLER}_broker_registration_state",
        "1 for the present state of each registered broker.",
        [({"broker": str(broker_id), "state": state}, 1) for broker_id, state in states.items()],
    )
    yield gauge(f"{_CONTROLLER}_global_topic_count", "Topics.", len(image.topics.by_name))
    yield gauge(f"{_CONTROLLER}_global_partition_count", "Partitions.", counts.partitions)
    yield gauge(
        f"{_CONTROLLER}_offline_partitions_count", "Partitions without a leader.", counts.offline
    )
    yield gauge(
        f"{_CONTROLLER}_preferred_replica_imbalance_count",
        "Partitions whose leader is not the preferred replica.",
        counts.not_preferred,
    )
    yield counter(
        "kafka_controller_controller_stats_unclean_leader_elections",
        "Elections of leaders that were not in sync, seen since the start of the node.",
        counts.unclean_elections,
    )
    yield counter(
        "kafka_controller_controller_stats_election_from_eligible_leader_replicas",
        "Elections of eligible leader replicas, seen since the start of the node.",
        counts.elr_elections,
    )


def _state(broker: BrokerRegistration) -> str:
    if broker.is_fenced:
        return "fenced"
    return "controlled_shutdown" if broker.is_in_controlled_shutdown else "active"


def loader_metrics(
    image: MetadataImage,
    counts: MetadataCounts,
    last_committed_offset: int,
    snapshot: WrittenSnapshot | None,
    now_ms: int,
) -> Iterator[Metric]:
    """Yield metrics of this node's metadata offset and snapshots."""
    applied = image.provenance
    appended_s = max(applied.last_append_time_ms, 0) / 1000
    lag_s = max(now_ms / 1000 - appended_s, 0) if appended_s else 0
    for prefix in (_CONTROLLER, "kafka_server_broker_metadata_metrics"):
        yield gauge(
            f"{prefix}_last_applied_record_offset",
            "Offset of the last metadata record that this node has applied.",
            applied.last_offset,
        )
        yield gauge(
            f"{prefix}_last_applied_record_timestamp_seconds",
            "Timestamp of the last applied metadata record.",
            appended_s,
        )
        yield gauge(
            f"{prefix}_last_applied_record_lag_seconds",
            "Time since the last applied metadata record was appended.",
            lag_s,
        )
    yield gauge(
        f"{_CONTROLLER}_last_committed_record_offset",
        "Offset of the last metadata record that this node knows to be committed.",
        last_committed_offset,
    )
    prefix = "kafka_server_metadata_loader"
    yield from _feature_metrics(image)
    yield gauge(
        f"{prefix}_current_controller_id",
        "Id of the active controller as far as this node knows, -1 if it knows none.",
        counts.controller_id,
    )
    yield counter(
        f"{prefix}_handle_load_snapshot",
        "Snapshots that this node has loaded.",
        counts.snapshots_loaded,
    )
    prefix = "kafka_server_snapshot_emitter_latest_snapshot_generated"
    yield gauge(
        f"{prefix}_bytes",
        "Size of the newest snapshot that this process has written, 0 for none.",
        snapshot.size_bytes if snapshot else 0,
    )
    yield gauge(
        f"{prefix}_age_seconds",
        "Age of the newest snapshot that this process has written, 0 for none.",
        (now_ms - snapshot.written_ms) / 1000 if snapshot else 0,
    )


def _feature_metrics(image: MetadataImage) -> Iterator[Metric]:
    prefix = "kafka_server_metadata_loader"
    levels = image.features.levels
    yield gauge(
        f"{prefix}_current_metadata_version",
        "Finalized metadata.version, 0 if it is unknown.",
        levels.get(METADATA_VERSION, 0),
    )
    yield gauges(
        f"{prefix}_finalized_level",
        "Finalized level of each feature.",
        [({"feature": name}, level) for name, level in sorted(levels.items())],
    )
    for name, which in (("minimum", "Lowest"), ("maximum", "Highest")):
        yield gauges(
            f"kafka_server_node_metrics_{name}_supported_level",
            f"{which} level of each feature that this node supports.",
            [
                ({"feature": feature}, getattr(levels, name))
                for feature, levels in sorted(SUPPORTED_FEATURES.items())
            ],
        )


def controller_metrics(driver: ControllerDriver | None, counts: MetadataCounts) -> Iterator[Metric]:
    """Yield the metrics of this node's controller; `driver` is None on a pure broker."""
    history = driver.history if driver is not None else ControllerHistory()
    is_active = driver is not None and driver.is_active
    yield gauge(
        f"{_CONTROLLER}_active_controller_count", "1 on the active controller.", int(is_active)
    )
    yield counter(
        f"{_CONTROLLER}_new_active_controllers",
        "Changes of the active controller that this node has seen.",
        counts.leaders_seen,
    )
    yield counter(
        f"{_CONTROLLER}_timed_out_broker_heartbeat",
        "Brokers that this controller has fenced because their session ended without a heartbeat.",
        history.heartbeats_timed_out,
    )
    yield gauges(
        f"{_CONTROLLER}_time_since_last_heartbeat_received_seconds",
        "Time since the active controller received a heartbeat of the broker.",
        [
            ({"broker": str(broker_id)}, silence_ms / 1000)
            for broker_id, silence_ms in (driver.silence_ms() if driver else {}).items()
        ],
    )
    yield counter(
        f"{_CONTROLLER}_metadata_error",
        "Decisions whose records could not be replayed.",
        history.errors,
    )
    yield counter(
        f"{_CONTROLLER}_event_queue_operations_started",
        "Requests and periodic tasks that this controller has started.",
        history.operations_started,
    )
    yield counter(
        f"{_CONTROLLER}_event_queue_operations_timed_out",
        "Requests to this controller that were not committed in time.",
        history.operations_timed_out,
    )
    yield from duration_metrics(
        "kafka_controller_controller_event_manager_event_queue_processing_time",
        "Time that decisions of this controller held the event loop.",
        history.operations,
    )


_RAFT_PREFIX: Final = "kafka_server_raft_metrics"


def quorum_metrics(quorum: RaftMetadataQuorum) -> Iterator[Metric]:
    """Yield the metrics of this node's part in the metadata quorum."""
    yield from _role_metrics(quorum.core)
    yield from _metadata_log_metrics(quorum)


def _role_metrics(core: QuorumCore) -> Iterator[Metric]:
    role = core.role
    state = _state_name(core)
    vote = _vote(core)
    prefix = _RAFT_PREFIX
    yield gauges(
        f"{prefix}_current_state",
        "1 for the present state of this node in the metadata quorum.",
        [({"state": name}, int(name == state)) for name in _STATES],
    )
    yield gauge(
        f"{prefix}_current_leader",
        "Id of the metadata quorum's leader, -1 if there is none.",
        core.leader_id,
    )
    yield gauge(
        f"{prefix}_current_vote",
        "Id of the node for which this node voted in the epoch, -1 if there is none.",
        vote.id,
    )
    yield gauges(
        f"{prefix}_current_vote_directory_id",
        "1 for the metadata directory of the node that current_vote names; zeros if it is unknown.",
        [({"directory_id": uuid_text(vote.directory_id)}, 1)],
    )
    yield gauge(f"{prefix}_current_epoch", "Epoch of the metadata quorum.", core.epoch)
    yield gauge(f"{prefix}_number_of_voters", "Voters of the metadata quorum.", len(core.voters))
    yield gauge(
        f"{prefix}_number_unknown_voter_connections",
        "Other voters whose address this node does not know.",
        sum(not voter.endpoints for voter in core.other_voters()),
    )
    yield gauge(
        f"{_CONTROLLER}_ignored_static_voters",
        "1 if controller.quorum.voters is set, but the voters of the metadata log are in force.",
        int(core.history.ignores_static_voters),
    )
    yield gauge(
        f"{prefix}_number_of_observers",
        "Observers of the metadata quorum on the leader; 0 on other nodes.",
        len(role.progress.observers) if isinstance(role, Leader) else 0,
    )
    yield gauge(
        f"{prefix}_uncommitted_voter_change",
        "1 while a change of the voters is not committed.",
        int(isinstance(role, Leader) and role.voter_change is not None),
    )


def _metadata_log_metrics(quorum: RaftMetadataQuorum) -> Iterator[Metric]:
    core, history = quorum.core, quorum.history
    prefix = _RAFT_PREFIX
    yield gauge(
        f"{prefix}_high_watermark",
        "High watermark of the metadata log, -1 if it is unknown.",
        -1 if core.high_watermark is None else core.high_watermark,
    )
    yield gauge(
        f"{prefix}_log_end_offset",
        "Log end offset of this node's metadata log.",
        core.log.end_offset,
    )
    yield gauge(
        f"{prefix}_log_end_epoch",
        "Epoch of the metadata log's last record.",
        core.log.end.epoch,
    )
    yield counter(
        f"{prefix}_append_records",
        "Metadata records that this node has appended as leader.",
        history.records_appended,
    )
    yield counter(
        f"{prefix}_fetch_records",
        "Metadata records that this node has fetched from a leader.",
        history.records_fetched,
    )
    yield from duration_metrics(
        f"{prefix}_commit_latency",
        "Time from the append of a metadata record to its commit.",
        history.commits,
    )
    yield from duration_metrics(
        f"{prefix}_election_latency",
        "Time from the loss of a leader until the next leader is known.",
        history.elections,
    )


def _state_name(core: QuorumCore) -> str:
    """Return Kafka's name of the state of this node in the quorum."""
    name = type(core.role).__name__.lower()
    if isinstance(core.role, Follower) and not core.is_voter:
        return "observer"
    if isinstance(core.role, Unattached | Prospective) and core.role.voted_key is not None:
        return f"{name}-voted"
    return name


def _vote(core: QuorumCore) -> ReplicaKey:
    """Return the node that got this node's vote in the epoch."""
    if isinstance(core.role, Leader):
        return core.local.key
    return core.role.voted_key or _NOBODY
