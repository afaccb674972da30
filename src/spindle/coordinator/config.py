"""The settings of groups, from the broker's configuration (defaults are Kafka's)."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum


class MigrationPolicy(Enum):
    """How a group with members may change its protocol: `group.consumer.migration.policy`."""

    DISABLED = "disabled"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"
    BIDIRECTIONAL = "bidirectional"

    @property
    def allows_upgrade(self) -> bool:
        """True if a classic group may become a consumer group."""
        return self in (MigrationPolicy.UPGRADE, MigrationPolicy.BIDIRECTIONAL)

    @property
    def allows_downgrade(self) -> bool:
        """True if a consumer group may become a classic group."""
        return self in (MigrationPolicy.DOWNGRADE, MigrationPolicy.BIDIRECTIONAL)


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Settings of all groups of a broker. Each field names its `server.properties` key."""

    min_session_timeout_ms: int = 6_000
    """`group.min.session.timeout.ms`."""
    max_session_timeout_ms: int = 1_800_000
    """`group.max.session.timeout.ms`."""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: time that an empty group waits for more members."""
    max_size: int = 2_147_483_647
    """`group.max.size`: maximum number of members of one group."""
    new_member_join_timeout_ms: int = 300_000
    """Time for which a parked first join counts as alive. Not configurable, as in Kafka."""
    offset_metadata_max_bytes: int = 4_096
    """`offset.metadata.max.bytes`: maximum length of a commit's metadata, in UTF-16 units."""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    """`offsets.retention.minutes`, in ms."""
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`."""
    consumer: "ConsumerGroupConfig" = field(default_factory=lambda: ConsumerGroupConfig())
    """Settings of consumer groups that have none of their own."""
    share: "ShareGroupConfig" = field(default_factory=lambda: ShareGroupConfig())
    """Settings of share groups that have none of their own."""
    streams: "StreamsGroupConfig" = field(default_factory=lambda: StreamsGroupConfig())
    """Settings of streams groups that have none of their own."""
    migration: MigrationPolicy = MigrationPolicy.BIDIRECTIONAL
    """`group.consumer.migration.policy`."""
    serves_consumer_groups: bool = True
    """False if `group.coordinator.rebalance.protocols` does not contain `consumer`."""
    serves_streams_groups: bool = True
    """False if `group.coordinator.rebalance.protocols` does not contain `streams`."""


@dataclass(frozen=True, slots=True)
class ConsumerGroupConfig:
    """Settings of one group of the consumer protocol (KIP-848)."""

    session_timeout_ms: int = 45_000
    """`consumer.session.timeout.ms` of the group, or `group.consumer.session.timeout.ms`."""
    heartbeat_interval_ms: int = 5_000
    """`consumer.heartbeat.interval.ms` of the group, or `group.consumer.heartbeat.interval.ms`."""
    session_timeout_limits_ms: tuple[int, int] = (45_000, 60_000)
    """`group.consumer.min.session.timeout.ms` and `group.consumer.max.session.timeout.ms`."""
    heartbeat_interval_limits_ms: tuple[int, int] = (5_000, 15_000)
    """`group.consumer.min.heartbeat.interval.ms` and `group.consumer.max.heartbeat.interval.ms`."""
    assignment_interval_ms: int = 1_000
    """`consumer.assignment.interval.ms` of the group, or `group.consumer.assignment.interval.ms`:
    time between two target assignments."""
    assignment_interval_limits_ms: tuple[int, int] = (0, 15_000)
    """`group.consumer.min.assignment.interval.ms`, `group.consumer.max.assignment.interval.ms`."""
    max_size: int = 2_147_483_647
    """`group.consumer.max.size`: maximum number of members."""
    assignors: tuple[str, ...] = ("uniform", "range")
    """`group.consumer.assignors`: names of the assignors, the default first."""

    def with_assignment_interval(self, interval_ms: int) -> "ConsumerGroupConfig":
        """Return the settings with another assignment interval; the limits hold for it, too."""
        interval_ms = _within(interval_ms, self.assignment_interval_limits_ms)
        return replace(self, assignment_interval_ms=interval_ms)

    def of_group(self, own: Mapping[str, str]) -> "ConsumerGroupConfig":
        """Return the settings of a group with dynamic values of its own.

        A value outside of the broker's present limits is replaced by the nearer limit.
        """
        session_ms = int(own.get("consumer.session.timeout.ms", self.session_timeout_ms))
        heartbeat_ms = int(own.get("consumer.heartbeat.interval.ms", self.heartbeat_interval_ms))
        interval_ms = int(own.get("consumer.assignment.interval.ms", self.assignment_interval_ms))
        return replace(
            self,
            session_timeout_ms=_within(session_ms, self.session_timeout_limits_ms),
            heartbeat_interval_ms=_within(heartbeat_ms, self.heartbeat_interval_limits_ms),
            assignment_interval_ms=_within(interval_ms, self.assignment_interval_limits_ms),
        )


@dataclass(frozen=True, slots=True)
class ShareGroupConfig:
    """Settings of the members of one share group (KIP-932)."""

    session_timeout_ms: int = 45_000
    """`share.session.timeout.ms` of the group, or `group.share.session.timeout.ms`."""
    heartbeat_interval_ms: int = 5_000
    """`share.heartbeat.interval.ms` of the group, or `group.share.heartbeat.interval.ms`."""
    assignment_interval_ms: int = 1_000
    """`share.assignment.interval.ms` of the group, or `group.share.assignment.interval.ms`: time
    between two target assignments."""
    session_timeout_limits_ms: tuple[int, int] = (45_000, 60_000)
    """`group.share.min.session.timeout.ms` and `group.share.max.session.timeout.ms`."""
    heartbeat_interval_limits_ms: tuple[int, int] = (5_000, 15_000)
    """`group.share.min.heartbeat.interval.ms` and `group.share.max.heartbeat.interval.ms`."""
    assignment_interval_limits_ms: tuple[int, int] = (0, 15_000)
    """`group.share.min.assignment.interval.ms` and `group.share.max.assignment.interval.ms`."""
    max_size: int = 200
    """`group.share.max.size`: maximum number of members."""

    def with_assignment_interval(self, interval_ms: int) -> "ShareGroupConfig":
        """Return the settings with another assignment interval; the limits hold for it, too."""
        interval_ms = _within(interval_ms, self.assignment_interval_limits_ms)
        return replace(self, assignment_interval_ms=interval_ms)

    def of_group(self, own: Mapping[str, str]) -> "ShareGroupConfig":
        """Return the settings of a group with dynamic values of its own.

        A value that is outside of the broker's limits by now counts as the limit.
        """
        session_ms = int(own.get("share.session.timeout.ms", self.session_timeout_ms))
        heartbeat_ms = int(own.get("share.heartbeat.interval.ms", self.heartbeat_interval_ms))
        interval_ms = int(own.get("share.assignment.interval.ms", self.assignment_interval_ms))
        return replace(
            self,
            session_timeout_ms=_within(session_ms, self.session_timeout_limits_ms),
            heartbeat_interval_ms=_within(heartbeat_ms, self.heartbeat_interval_limits_ms),
            assignment_interval_ms=_within(interval_ms, self.assignment_interval_limits_ms),
        )


@dataclass(frozen=True, slots=True)
class StreamsGroupConfig:
    """Settings of one streams group (KIP-1071)."""

    session_timeout_ms: int = 45_000
    """`streams.session.timeout.ms` of the group, or `group.streams.session.timeout.ms`."""
    heartbeat_interval_ms: int = 5_000
    """`streams.heartbeat.interval.ms` of the group, or `group.streams.heartbeat.interval.ms`."""
    assignment_interval_ms: int = 1_000
    """`streams.assignment.interval.ms` of the group, or `group.streams.assignment.interval.ms`:
    time between two target assignments."""
    initial_rebalance_delay_ms: int = 3_000
    """`streams.initial.rebalance.delay.ms` of the group, or
    `group.streams.initial.rebalance.delay.ms`: time that a new group waits for more members."""
    num_standby_replicas: int = 0
    """`streams.num.standby.replicas` of the group, or `group.streams.num.standby.replicas`."""
    task_offset_interval_ms: int = 60_000
    """`streams.task.offset.interval.ms` of the group, or
    `group.streams.task.offset.interval.ms`."""
    acceptable_recovery_lag: int = 10_000
    """`streams.acceptable.recovery.lag` of the group, or `group.streams.acceptable.recovery.lag`:
    in records."""
    session_timeout_limits_ms: tuple[int, int] = (45_000, 60_000)
    """`group.streams.min.session.timeout.ms` and `group.streams.max.session.timeout.ms`."""
    heartbeat_interval_limits_ms: tuple[int, int] = (5_000, 15_000)
    """`group.streams.min.heartbeat.interval.ms` and `group.streams.max.heartbeat.interval.ms`."""
    assignment_interval_limits_ms: tuple[int, int] = (0, 15_000)
    """`group.streams.min.assignment.interval.ms`, `group.streams.max.assignment.interval.ms`."""
    min_task_offset_interval_ms: int = 15_000
    """`group.streams.min.task.offset.interval.ms`."""
    max_standby_replicas: int = 2
    """`group.streams.max.standby.replicas`."""
    max_size: int = 2_147_483_647
    """`group.streams.max.size`: maximum number of members."""

    def with_assignment_interval(self, interval_ms: int) -> "StreamsGroupConfig":
        """Return the settings with another assignment interval; the limits hold for it, too."""
        interval_ms = _within(interval_ms, self.assignment_interval_limits_ms)
        return replace(self, assignment_interval_ms=interval_ms)

    def of_group(self, own: Mapping[str, str]) -> "StreamsGroupConfig":
        """Return the settings of a group with dynamic values of its own.

        A value that is outside of the broker's limits by now counts as the limit.
        """
        session_ms = int(own.get("streams.session.timeout.ms", self.session_timeout_ms))
        heartbeat_ms = int(own.get("streams.heartbeat.interval.ms", self.heartbeat_interval_ms))
        interval_ms = int(own.get("streams.assignment.interval.ms", self.assignment_interval_ms))
        offset_ms = int(own.get("streams.task.offset.interval.ms", self.task_offset_interval_ms))
        delay_ms = int(
            own.get("streams.initial.rebalance.delay.ms", self.initial_rebalance_delay_ms)
        )
        standbys = int(own.get("streams.num.standby.replicas", self.num_standby_replicas))
        lag = int(own.get("streams.acceptable.recovery.lag", self.acceptable_recovery_lag))
        return replace(
            self,
            session_timeout_ms=_within(session_ms, self.session_timeout_limits_ms),
            heartbeat_interval_ms=_within(heartbeat_ms, self.heartbeat_interval_limits_ms),
            assignment_interval_ms=_within(interval_ms, self.assignment_interval_limits_ms),
            initial_rebalance_delay_ms=delay_ms,
            num_standby_replicas=min(standbys, self.max_standby_replicas),
            task_offset_interval_ms=max(offset_ms, self.min_task_offset_interval_ms),
            acceptable_recovery_lag=lag,
        )


def _within(value: int, limits: tuple[int, int]) -> int:
    low, high = limits
    return min(max(value, low), high)


@dataclass(frozen=True, slots=True)
class TransactionsConfig:
    """Settings of all transactions of a broker. Each field names its `server.properties` key."""

    max_timeout_ms: int = 900_000
    """`transaction.max.timeout.ms`."""
    abort_interval_ms: int = 10_000
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`."""
    expiration_ms: int = 604_800_000
    """`transactional.id.expiration.ms`."""
    expiration_interval_ms: int = 3_600_000
    """`transaction.remove.expired.transaction.cleanup.interval.ms`."""
    allows_two_phase_commit: bool = False
    """`transaction.two.phase.commit.enable`."""
    append_retry_ms: int = 100
    """Pause before the completion of a transaction is appended again. Not configurable."""
