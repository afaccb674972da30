"""Index entries of batches that are written in bulk."""

from typing import NamedTuple


class IndexPoint(NamedTuple):
    """A batch that gets index entries: its last offset and its position, and the largest timestamp
    up to there with the last offset of its batch.
    """

    last_offset: int
    position: int
    max_timestamp: int
    max_timestamp_offset: int


class IndexProgress(NamedTuple):
    """The state that decides when a segment gets its next index entries."""

    max_timestamp: int
    max_timestamp_offset: int
    bytes_since_entry: int
