"""Small value types: partitions, offsets with their epochs, endpoints."""

from typing import NamedTuple

from spindle.common.uuids import Uuid


class TopicPartition(NamedTuple):
    """A partition by topic name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class TopicIdPartition(NamedTuple):
    """A partition by the id of its topic, which a topic created again does not share."""

    topic_id: Uuid
    partition: int


class OffsetAndEpoch(NamedTuple):
    """An end offset (exclusive) and the leader epoch before it; also a snapshot id."""

    offset: int
    epoch: int


class Endpoint(NamedTuple):
    """The address of a listener; `security_protocol` by the number of `SecurityProtocol`."""

    listener: str
    host: str
    port: int
    security_protocol: int = 0


METADATA_TOPIC = "__cluster_metadata"
OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
SHARE_STATE_TOPIC = "__share_group_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC, SHARE_STATE_TOPIC))
METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
NO_LEADER = -1
