"""How fast this broker replicates throttled partitions, as leader and as follower (KIP-73)."""

from collections.abc import Callable

from spindle.config.broker_values import broker_integer
from spindle.config.node_config import NodeConfig
from spindle.metadata.image import MetadataImage
from spindle.serving.quotas.rates import WindowedRate


class ReplicationQuota:
    """Bytes per second over all throttled replicas of one role."""

    __slots__ = ("_now_ms", "_rate", "limit_bytes_per_s")

    def __init__(self, rate: WindowedRate, limit_bytes_per_s: int, now_ms: Callable[[], int]):
        self._rate = rate
        self._now_ms = now_ms
        self.limit_bytes_per_s = limit_bytes_per_s

    def record(self, size_bytes: int) -> None:
        self._rate.record(size_bytes, self._now_ms())

    @property
    def is_exceeded(self) -> bool:
        """Nothing more is to go now."""
        return self._rate.per_second(self._now_ms()) > self.limit_bytes_per_s


class ReplicationQuotas:
    """Both roles; limits are `leader.` and `follower.replication.throttled.rate`.

    Args:
        now_ms: a clock for durations.
    """

    __slots__ = ("_config", "follower", "leader")

    def __init__(self, config: NodeConfig, now_ms: Callable[[], int]) -> None:
        self._config = config
        samples = config.integer("replication.quota.window.num")
        window_ms = 1000 * config.integer("replication.quota.window.size.seconds")

        def quota(role: str) -> ReplicationQuota:
            rate = WindowedRate(samples, window_ms, is_spread=False)
            return ReplicationQuota(rate, broker_integer(config, _limit_key(role)), now_ms)

        self.leader = quota("leader")
        self.follower = quota("follower")

    def update(self, image: MetadataImage) -> None:
        """The limits may have been changed."""
        for role, quota in (("leader", self.leader), ("follower", self.follower)):
            quota.limit_bytes_per_s = broker_integer(
                self._config,
                _limit_key(role),
                broker=image.configs.broker(self._config.node_id),
                cluster=image.configs.default_broker(),
            )


def _limit_key(role: str) -> str:
    return f"{role}.replication.throttled.rate"
