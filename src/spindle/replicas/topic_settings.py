"""The part of a topic's configuration that replicas use."""

from spindle.log.log_config import LogConfig
from spindle.replication.throttling import ThrottledPartitions


class TopicSettings:
    """Settings that all replicas of a topic share."""

    __slots__ = ("log_config", "min_isr", "throttled_as_follower", "throttled_as_leader")

    def __init__(
        self,
        log_config: LogConfig,
        min_isr: int,
        throttled_as_leader: ThrottledPartitions,
        throttled_as_follower: ThrottledPartitions,
    ) -> None:
        self.log_config = log_config
        self.min_isr = min_isr
        self.throttled_as_leader = throttled_as_leader
        self.throttled_as_follower = throttled_as_follower
