"""DescribeLogDirs: the replicas of each log directory, and its space (KIP-113, KIP-827)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from spindle.client.errors import raise_for
from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)


@dataclass(frozen=True, slots=True)
class ReplicaOnDisk:
    """A replica in a log directory. `is_future` marks the copy of a move that has not ended."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirView:
    """A log directory. Sizes in bytes; -1 if the broker does not report them."""

    path: str
    error: ErrorCode
    total_bytes: int
    usable_bytes: int
    is_cordoned: bool
    replicas: Mapping[TopicPartition, ReplicaOnDisk]


def describe_log_dirs_request(topics: Mapping[str, Sequence[int]] | None) -> DescribeLogDirsRequest:
    """Return a request for the replicas of these partitions, or of all with None."""
    if topics is None:
        return DescribeLogDirsRequest(topics=None)
    return DescribeLogDirsRequest(
        topics=[
            DescribeLogDirsRequest.DescribableLogDirTopic(topic=name, partitions=list(partitions))
            for name, partitions in topics.items()
        ]
    )


def log_dir_views(response: DescribeLogDirsResponse) -> list[LogDirView]:
    """Return the directories in an answer, by path.

    Raises:
        ApiError: the broker refused. The error of a single directory is in its view.
    """
    raise_for(response.error_code, "DescribeLogDirs")
    return [
        LogDirView(
            path=directory.log_dir,
            error=ErrorCode(directory.error_code),
            total_bytes=directory.total_bytes,
            usable_bytes=directory.usable_bytes,
            is_cordoned=directory.is_cordoned,
            replicas={
                TopicPartition(topic.name, partition.partition_index): ReplicaOnDisk(
                    partition.partition_size, partition.offset_lag, partition.is_future_key
                )
                for topic in directory.topics
                for partition in topic.partitions
            },
        )
        for directory in sorted(response.results, key=lambda r: r.log_dir)
    ]
