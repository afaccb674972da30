"""Broker keys: replicas, leader elections and replication throttles."""

from spindle.config.definition import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    LONG,
    LONG_MAX,
    READ_ONLY,
    STRING,
    ConfigKey,
)
from spindle.config.no_effect import NO_TIERED_STORAGE, SYSTEM_BUFFERS
from spindle.config.validators import Range

# fmt: off
REPLICATION_KEYS = (
    ConfigKey("alter.log.dirs.replication.quota.window.num", INT, 11, Range(1), READ_ONLY,
              "Number of windows that are kept for the quota of moves between directories."),
    ConfigKey("alter.log.dirs.replication.quota.window.size.seconds", INT, 1, Range(1), READ_ONLY,
              "Length of a window of the quota of moves between directories."),
    ConfigKey("auto.leader.rebalance.enable", BOOLEAN, True, None, READ_ONLY,
              "Whether leadership is moved back to preferred replicas."),
    ConfigKey("follower.fetch.last.tiered.offset.enable", BOOLEAN, False, None, CLUSTER_WIDE,
              "Whether a new follower starts after the part that is in remote storage.",
              no_effect=NO_TIERED_STORAGE),
    ConfigKey("follower.replication.throttled.rate", LONG, LONG_MAX, Range(0), CLUSTER_WIDE,
              "Maximum bytes per second that this broker fetches for throttled partitions."),
    ConfigKey("leader.imbalance.check.interval.seconds", LONG, 300, Range(1), READ_ONLY,
              "Pause between two checks for partitions that their preferred replica does not "
              "lead."),
    ConfigKey("leader.replication.throttled.rate", LONG, LONG_MAX, Range(0), CLUSTER_WIDE,
              "Maximum bytes per second that this broker sends to followers of throttled "
              "partitions."),
    ConfigKey("min.insync.replicas", INT, 1, Range(1), CLUSTER_WIDE,
              "Number of in-sync replicas that must have a batch before a write with acks=all "
              "succeeds."),
    ConfigKey("num.replica.alter.log.dirs.threads", INT, None, None, READ_ONLY,
              "Number of threads that move replicas between directories; by default one per "
              "directory."),
    ConfigKey("num.replica.fetchers", INT, 1, Range(1), CLUSTER_WIDE,
              "Number of fetchers for each leader that this broker follows."),
    ConfigKey("replica.alter.log.dirs.io.max.bytes.per.second", LONG, LONG_MAX, Range(0),
              CLUSTER_WIDE,
              "Maximum bytes per second that moves between the directories of this broker copy."),
    ConfigKey("replica.fetch.backoff.ms", INT, 1000, Range(0), READ_ONLY,
              "Pause before a failed fetch of a partition is tried again."),
    ConfigKey("replica.fetch.max.bytes", INT, 1_048_576, Range(0), READ_ONLY,
              "Maximum bytes per partition that a follower asks for."),
    ConfigKey("replica.fetch.min.bytes", INT, 1, None, READ_ONLY,
              "Bytes that a leader gathers before it answers a follower."),
    ConfigKey("replica.fetch.response.max.bytes", INT, 10_485_760, Range(0), READ_ONLY,
              "Maximum bytes in one response to a follower."),
    ConfigKey("replica.fetch.wait.max.ms", INT, 500, None, READ_ONLY,
              "Maximum time for which a leader keeps a follower's fetch waiting."),
    ConfigKey("replica.high.watermark.checkpoint.interval.ms", LONG, 5000, None, READ_ONLY,
              "Pause between two writes of the high-watermark checkpoint."),
    ConfigKey("replica.lag.time.max.ms", LONG, 30_000, None, READ_ONLY,
              "Time after which a follower that has not caught up leaves the in-sync replicas."),
    ConfigKey("replica.selector.class", STRING, None, None, READ_ONLY,
              "Class that selects the replica from which a consumer reads; Kafka's own two are "
              "built in."),
    ConfigKey("replica.socket.receive.buffer.bytes", INT, 65_536, None, READ_ONLY,
              "Size of the receive buffer of connections to leaders.", no_effect=SYSTEM_BUFFERS),
    ConfigKey("replica.socket.timeout.ms", INT, 30_000, None, READ_ONLY,
              "Time after which a follower's request without a response fails."),
    ConfigKey("replication.quota.window.num", INT, 11, Range(1), READ_ONLY,
              "Number of windows that are kept for replication quotas."),
    ConfigKey("replication.quota.window.size.seconds", INT, 1, Range(1), READ_ONLY,
              "Length of a window of replication quotas."),
    ConfigKey("unclean.leader.election.enable", BOOLEAN, False, None, CLUSTER_WIDE,
              "Whether a replica that is not in sync may become leader, at the price of lost "
              "records."),
    ConfigKey("unclean.leader.election.interval.ms", LONG, 300_000, Range(1), READ_ONLY,
              "Pause between two searches for partitions that need an unclean election.",
              is_internal=True),
)
# fmt: on
