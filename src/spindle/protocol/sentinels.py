"""Numbers of Kafka's protocol and files that stand for something else than a number."""

from typing import Final

ACKS_ALL: Final = -1
"""Produce: answer when all replicas of the ISR have the batch."""
DEFAULT_COUNT: Final = -1
"""CreateTopics: the broker chooses the number of partitions or replicas (KIP-464)."""
EARLIEST: Final = -2
"""ListOffsets: the log start offset."""
HIGH_WATERMARK: Final = -1
"""DeleteRecords: delete up to the high watermark."""
LATEST: Final = -1
"""ListOffsets: the high watermark, or the last stable offset (KIP-98)."""
NO_BROKER_EPOCH: Final = -1
"""The sender does not know the broker's epoch, or does not say it (KIP-903)."""
NO_LAG: Final = -1
"""DescribeLogDirs: the lag of the replica is not known."""
NO_LEADER_EPOCH: Final = -1
"""The epoch of the leader is not known or not said."""
NO_NODE: Final = -1
"""No broker: no leader, no preferred replica, or a client instead of a follower."""
NO_OFFSET: Final = -1
"""There is no such offset, or it is not known."""
NO_TIMESTAMP: Final = -1
"""There is no timestamp."""
READ_UNCOMMITTED: Final = 0
"""Fetch and ListOffsets: the isolation level up to the high watermark."""
READ_COMMITTED: Final = 1
"""Fetch and ListOffsets: the isolation level up to the last stable offset."""
