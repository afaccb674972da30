"""Errors of log operations that callers handle differently."""

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition


class OffsetOutOfRange(ApiError):
    """The offset is below the log start or above the log end."""

    def __init__(
        self, topic_partition: TopicPartition, offset: int, log_start_offset: int, end_offset: int
    ) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Received request for offset {offset} for partition {topic_partition}, but we only "
            f"have log segments from offset {log_start_offset} to {end_offset}",
        )
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.end_offset = end_offset


class LogDeleted(ApiError):
    """The log was deleted while work on it was waiting; the client has to ask for metadata."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        super().__init__(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"the replica of {topic_partition} on this broker was deleted",
        )


class CleaningAborted(Exception):
    """The log was truncated, renamed or deleted while a compaction pass read it."""

    def __init__(self, path: str) -> None:
        super().__init__(f"the compaction of {path} was aborted: the log changed meanwhile")


class UncleanableLog(Exception):
    """A batch that compaction has to read is damaged; the log stays as it is."""

    def __init__(self, path: str, finding: str) -> None:
        super().__init__(f"cannot compact {path}: {finding}")
        self.path = path


class UnexpectedAppendOffset(Exception):
    """Records for a follower begin before its log end: the two logs differ."""

    def __init__(
        self, topic_partition: TopicPartition, first_offset: int, last_offset: int, end_offset: int
    ) -> None:
        super().__init__(
            f"append of offsets {first_offset} to {last_offset} to {topic_partition}, whose log "
            f"ends at {end_offset}"
        )
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.end_offset = end_offset


class InvalidLogDirectory(Exception):
    """An operator has to repair the content of a log directory before the node can start."""


class DuplicateLogDirectories(InvalidLogDirectory):
    """Two directories hold a current (or a future) log of one partition; remove one of them."""


class UnexpectedDirectory(InvalidLogDirectory):
    """A directory that does not belong in a log directory, such as `photos`."""

    def __init__(self, path: str, finding: str) -> None:
        super().__init__(f"found directory {path}: {finding}")
        self.path = path
