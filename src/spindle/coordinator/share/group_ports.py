"""The port to the share groups whose coordinator this broker is, for request handlers (KIP-932)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from spindle.common.errors import ApiError
from spindle.common.ids import TopicIdPartition
from spindle.common.uuids import Uuid
from spindle.coordinator.coordinator_result import Client
from spindle.coordinator.share.descriptions import DescribedShareGroup
from spindle.coordinator.share.state_records import Snapshot
from spindle.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)


class ShareGroupsPort(Protocol):
    """All share groups whose partition of `__consumer_offsets` this broker leads.

    Every method raises ApiError if it refuses the whole request.
    """

    async def heartbeat(
        self, request: ShareGroupHeartbeatRequest, client: Client
    ) -> ShareGroupHeartbeatResponse: ...

    def describe(self, group_ids: Sequence[str]) -> list[DescribedShareGroup]: ...

    def initialized_partitions(self, group_id: str) -> list[TopicIdPartition] | None:
        """Return the partitions of a group with share states; None if there is no such group."""
        ...

    async def summaries(
        self, group_id: str, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, Snapshot | ApiError | None]:
        """Return the states of partitions without their batches; None for one without a state."""
        ...

    async def reset(
        self, group_id: str, topics: Mapping[Uuid, tuple[str, Mapping[int, int]]]
    ) -> dict[TopicIdPartition, ApiError | None]:
        """Begin partitions of a group without members at other offsets: by topic id, the name and
        the offsets by partition. Return the error of each partition."""
        ...

    async def delete_offsets(
        self, group_id: str, topic_ids: Sequence[Uuid]
    ) -> dict[Uuid, ApiError | None]:
        """Delete the states of topics of a group without members; return the error of each."""
        ...
