"""The part of a topic's configuration that replicas use."""

from spindle.log.log_config import LogConfig
from spindle.replication.throttling import ThrottledPartitions


class TopicSettings:
    """Settings that all replicas of a topic share."""

    __slots__ = (
        "accepts_dead_letters",
        "log_config",
        "min_isr",
        "throttled_as_follower",
        "throttled_as_leader",
    )

    def __init__(
        self,
        log_config: LogConfig,
        min_isr: int,
        throttled_as_leader: ThrottledPartitions,
        throttled_as_follower: ThrottledPartitions,
        *,
        accepts_dead_letters: bool = False,
    ) -> None:
        """Create settings; share groups may use the topic if it `accepts_dead_letters`."""
        self.accepts_dead_letters = accepts_dead_letters
        self.log_config = log_config
        self.min_isr = min_isr
        self.throttled_as_leader = throttled_as_leader
        self.throttled_as_follower = throttled_as_follower
