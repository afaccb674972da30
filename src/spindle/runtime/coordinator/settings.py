"""The settings of the coordinators, from the node's configuration."""

from spindle.config.node_config import NodeConfig
from spindle.coordinator.config import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    MigrationPolicy,
    ShareGroupConfig,
    StreamsGroupConfig,
    TransactionsConfig,
)
from spindle.coordinator.share.state_shard import ShareCoordinatorConfig
from spindle.runtime.coordinator.shard_writer import ShardSettings


def group_coordinator_config(node: NodeConfig) -> GroupCoordinatorConfig:
    """Return the limits and intervals of groups."""
    integer = node.integer
    return GroupCoordinatorConfig(
        min_session_timeout_ms=integer("group.min.session.timeout.ms"),
        max_session_timeout_ms=integer("group.max.session.timeout.ms"),
        initial_rebalance_delay_ms=integer("group.initial.rebalance.delay.ms"),
        max_size=integer("group.max.size"),
        offset_metadata_max_bytes=integer("offset.metadata.max.bytes"),
        offsets_retention_ms=integer("offsets.retention.minutes") * 60_000,
        offsets_retention_check_interval_ms=integer("offsets.retention.check.interval.ms"),
        consumer=ConsumerGroupConfig(
            session_timeout_ms=integer("group.consumer.session.timeout.ms"),
            heartbeat_interval_ms=integer("group.consumer.heartbeat.interval.ms"),
            session_timeout_limits_ms=(
                integer("group.consumer.min.session.timeout.ms"),
                integer("group.consumer.max.session.timeout.ms"),
            ),
            heartbeat_interval_limits_ms=(
                integer("group.consumer.min.heartbeat.interval.ms"),
                integer("group.consumer.max.heartbeat.interval.ms"),
            ),
            assignment_interval_ms=integer("group.consumer.assignment.interval.ms"),
            assignment_interval_limits_ms=(
                integer("group.consumer.min.assignment.interval.ms"),
                integer("group.consumer.max.assignment.interval.ms"),
            ),
            max_size=integer("group.consumer.max.size"),
            assignors=tuple(node.names("group.consumer.assignors")),
        ),
        share=ShareGroupConfig(
            session_timeout_ms=integer("group.share.session.timeout.ms"),
            heartbeat_interval_ms=integer("group.share.heartbeat.interval.ms"),
            assignment_interval_ms=integer("group.share.assignment.interval.ms"),
            session_timeout_limits_ms=(
                integer("group.share.min.session.timeout.ms"),
                integer("group.share.max.session.timeout.ms"),
            ),
            heartbeat_interval_limits_ms=(
                integer("group.share.min.heartbeat.interval.ms"),
                integer("group.share.max.heartbeat.interval.ms"),
            ),
            assignment_interval_limits_ms=(
                integer("group.share.min.assignment.interval.ms"),
                integer("group.share.max.assignment.interval.ms"),
            ),
            max_size=integer("group.share.max.size"),
        ),
        streams=_streams_config(node),
        migration=MigrationPolicy(node.text("group.consumer.migration.policy").lower()),
        serves_consumer_groups="consumer" in node.names("group.coordinator.rebalance.protocols"),
        serves_streams_groups="streams" in node.names("group.coordinator.rebalance.protocols"),
    )


def _streams_config(node: NodeConfig) -> StreamsGroupConfig:
    integer = node.integer
    return StreamsGroupConfig(
        session_timeout_ms=integer("group.streams.session.timeout.ms"),
        heartbeat_interval_ms=integer("group.streams.heartbeat.interval.ms"),
        assignment_interval_ms=integer("group.streams.assignment.interval.ms"),
        initial_rebalance_delay_ms=integer("group.streams.initial.rebalance.delay.ms"),
        num_standby_replicas=integer("group.streams.num.standby.replicas"),
        task_offset_interval_ms=integer("group.streams.task.offset.interval.ms"),
        acceptable_recovery_lag=integer("group.streams.acceptable.recovery.lag"),
        session_timeout_limits_ms=(
            integer("group.streams.min.session.timeout.ms"),
            integer("group.streams.max.session.timeout.ms"),
        ),
        heartbeat_interval_limits_ms=(
            integer("group.streams.min.heartbeat.interval.ms"),
            integer("group.streams.max.heartbeat.interval.ms"),
        ),
        assignment_interval_limits_ms=(
            integer("group.streams.min.assignment.interval.ms"),
            integer("group.streams.max.assignment.interval.ms"),
        ),
        min_task_offset_interval_ms=integer("group.streams.min.task.offset.interval.ms"),
        max_standby_replicas=integer("group.streams.max.standby.replicas"),
        max_size=integer("group.streams.max.size"),
    )


def shard_settings(node: NodeConfig) -> ShardSettings:
    """Return the limits and the batch format for appends to `__consumer_offsets`."""
    return ShardSettings(
        commit_timeout_ms=node.integer("offsets.commit.timeout.ms"),
        codec=node.integer("offsets.topic.compression.codec"),
    )


def transactions_config(node: NodeConfig) -> TransactionsConfig:
    """Return the limits and intervals of transactions."""
    integer = node.integer
    return TransactionsConfig(
        max_timeout_ms=integer("transaction.max.timeout.ms"),
        abort_interval_ms=integer("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
        expiration_ms=integer("transactional.id.expiration.ms"),
        expiration_interval_ms=integer(
            "transaction.remove.expired.transaction.cleanup.interval.ms"
        ),
        allows_two_phase_commit=node.flag("transaction.two.phase.commit.enable"),
    )


def transaction_shard_settings(node: NodeConfig) -> ShardSettings:
    """Return the limits for appends to `__transaction_state`, which is never compressed."""
    return ShardSettings(commit_timeout_ms=node.integer("request.timeout.ms"))


def share_coordinator_config(node: NodeConfig) -> ShareCoordinatorConfig:
    """Return the settings of the share coordinator."""
    return ShareCoordinatorConfig(
        updates_per_snapshot=node.integer("share.coordinator.snapshot.update.records.per.snapshot"),
        cold_snapshot_interval_ms=node.integer(
            "share.coordinator.cold.partition.snapshot.interval.ms"
        ),
    )


def share_shard_settings(node: NodeConfig) -> ShardSettings:
    """Return the limits and the batch format for appends to `__share_group_state`."""
    return ShardSettings(
        commit_timeout_ms=node.integer("share.coordinator.write.timeout.ms"),
        codec=node.integer("share.coordinator.state.topic.compression.codec"),
    )
