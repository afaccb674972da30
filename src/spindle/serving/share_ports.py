"""The port to the share partitions of this broker, for the handlers of share groups (KIP-932)."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from spindle.common.errors import ApiError
from spindle.common.ids import TopicIdPartition
from spindle.common.ports import Bytes
from spindle.coordinator.share.share_partition import (
    AcknowledgedBatch,
    AcquiredRange,
    AcquisitionRequest,
    DeliverySettings,
)
from spindle.coordinator.share.share_sessions import SessionKey, ShareSession, ShareSessions
from spindle.serving.fetch.fetch_memory import FetchMemory


class ShareFetchTerms(NamedTuple):
    """A fetch of a member.

    Attributes:
        partitions: the partitions to read, the first ones first, with the names of their topics.
        min_bytes: the fetch waits for this size, at most `max_wait_ms`.
        max_bytes: limit of the response; its first batch may be larger.
    """

    group_id: str
    partitions: Mapping[TopicIdPartition, str]
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    acquisition: AcquisitionRequest


class FetchedSharePartition(NamedTuple):
    """The result of a partition: an error, or records of which the member has acquired some."""

    error: ApiError | None
    records: Bytes = b""
    acquired: Sequence[AcquiredRange] = ()


class SharePartitionsPort(Protocol):
    """The share partitions of the partitions that this broker leads."""

    sessions: ShareSessions

    def delivery_settings(self, group_id: str) -> DeliverySettings:
        """Return the settings of records in flight that a group has now."""
        ...

    def open_session(self, key: SessionKey) -> ShareSession:
        """Open a session; raise ApiError SHARE_SESSION_LIMIT_REACHED if there are too many."""
        ...

    def end_session(self, session: ShareSession) -> None:
        """Close a session, unless that is done already, and release what its member holds."""
        ...

    async def acknowledge(
        self,
        key: SessionKey,
        batches: Mapping[TopicIdPartition, tuple[str, Sequence[AcknowledgedBatch]]],
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Take acknowledgements of a member by partition, with the names of the topics.

        Return an error for each that is refused or not stored.
        """
        ...

    async def fetch(
        self,
        terms: ShareFetchTerms,
        memory: FetchMemory,
        has_read: Callable[[str, int], None],
    ) -> dict[TopicIdPartition, FetchedSharePartition]:
        """Return records for a member, and the errors of partitions.

        Args:
            memory: grants the memory into which records are read.
            has_read: is called with a topic and the size of its records in bytes.
        """
        ...
