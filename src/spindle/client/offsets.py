"""ListOffsets: offsets by position in the log or by time (KIP-79; KIP-734: newest timestamp)."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from spindle.client.errors import raise_for
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.sentinels import NO_NODE

MAX_TIMESTAMP: Final = -3


class FoundOffset(NamedTuple):
    """An offset and the timestamp of its record; both are -1 if no record matches."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


def list_offsets_request(
    timestamps: Mapping[TopicPartition, int], *, isolation_level: int, timeout_ms: int
) -> ListOffsetsRequest:
    """Return a request to one leader for its partitions.

    Args:
        timestamps: For each partition a time in ms, or LATEST, EARLIEST, MAX_TIMESTAMP.
        isolation_level: READ_COMMITTED makes LATEST the last stable offset.
    """
    topics: dict[str, ListOffsetsRequest.ListOffsetsTopic] = {}
    for (name, partition), timestamp in timestamps.items():
        topic = topics.setdefault(name, ListOffsetsRequest.ListOffsetsTopic(name=name))
        topic.partitions.append(
            ListOffsetsRequest.ListOffsetsTopic.ListOffsetsPartition(
                partition_index=partition, timestamp=timestamp
            )
        )
    return ListOffsetsRequest(
        replica_id=NO_NODE,
        isolation_level=isolation_level,
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def found_offsets(response: ListOffsetsResponse) -> dict[TopicPartition, FoundOffset]:
    """Return the offsets in an answer.

    Raises:
        ApiError: the first partition that was refused.
    """
    offsets = {}
    for topic in response.topics:
        for row in topic.partitions:
            partition = TopicPartition(topic.name, row.partition_index)
            raise_for(row.error_code, f"offset of partition {partition}")
            offsets[partition] = FoundOffset(row.offset, row.timestamp, row.leader_epoch)
    return offsets
