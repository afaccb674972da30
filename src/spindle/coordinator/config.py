"""What the broker's configuration says about groups (defaults are Kafka's)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    """Settings of all groups of a broker. Each field names its `server.properties` key."""

    min_session_timeout_ms: int = 6_000
    """`group.min.session.timeout.ms`."""
    max_session_timeout_ms: int = 1_800_000
    """`group.max.session.timeout.ms`."""
    initial_rebalance_delay_ms: int = 3_000
    """`group.initial.rebalance.delay.ms`: how long an empty group waits for more members."""
    max_size: int = 2_147_483_647
    """`group.max.size`: members of one group."""
    new_member_join_timeout_ms: int = 300_000
    """Not configurable in Kafka either: how long a parked first join counts as alive."""
    offset_metadata_max_bytes: int = 4_096
    """`offset.metadata.max.bytes`: UTF-16 units of the text that a commit may carry."""
    offsets_retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    """`offsets.retention.minutes`, in ms."""
    offsets_retention_check_interval_ms: int = 600_000
    """`offsets.retention.check.interval.ms`."""
