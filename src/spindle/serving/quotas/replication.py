"""Replication quotas: the throttled partitions of a broker as leader and follower (KIP-73)."""

from collections.abc import Callable

from spindle.config.broker_values import BrokerValues
from spindle.config.node_config import NodeConfig
from spindle.serving.quotas.rates import WindowedRate


class ReplicationQuota:
    """Limits the bytes per second of all throttled replicas in one role."""

    __slots__ = ("_now_ms", "_rate", "limit_bytes_per_s")

    def __init__(self, rate: WindowedRate, limit_bytes_per_s: int, now_ms: Callable[[], int]):
        self._rate = rate
        self._now_ms = now_ms
        self.limit_bytes_per_s = limit_bytes_per_s

    def record(self, size_bytes: int) -> None:
        self._rate.record(size_bytes, self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """Return True if throttled replicas must wait."""
        return self._rate.per_second(self._now_ms()) > self.limit_bytes_per_s


class ReplicationQuotas:
    """The quotas of both roles, and of moves between directories (KIP-113).

    Limits are `leader.` and `follower.replication.throttled.rate`, and
    `replica.alter.log.dirs.io.max.bytes.per.second`.

    Args:
        now_ms: a clock for durations.
    """

    __slots__ = ("directories", "follower", "leader")

    def __init__(self, config: NodeConfig, now_ms: Callable[[], int]) -> None:

        def quota(samples: int, window_s: int) -> ReplicationQuota:
            rate = WindowedRate(samples, 1000 * window_s, is_spread=False)
            return ReplicationQuota(rate, 0, now_ms)

        integer = config.integer
        samples = integer("replication.quota.window.num")
        window_s = integer("replication.quota.window.size.seconds")
        self.leader = quota(samples, window_s)
        self.follower = quota(samples, window_s)
        self.directories = quota(
            integer("alter.log.dirs.replication.quota.window.num"),
            integer("alter.log.dirs.replication.quota.window.size.seconds"),
        )
        self.update(BrokerValues(config))

    def update(self, values: BrokerValues) -> None:
        """Set all limits to the effective values."""
        self.leader.limit_bytes_per_s = values.integer("leader.replication.throttled.rate")
        self.follower.limit_bytes_per_s = values.integer("follower.replication.throttled.rate")
        self.directories.limit_bytes_per_s = values.integer(
            "replica.alter.log.dirs.io.max.bytes.per.second"
        )
