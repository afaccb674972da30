"""The group coordinators of a broker, as request handlers see them."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from spindle.common.ids import TopicPartition
from spindle.coordinator.consumer.descriptions import DescribedConsumerGroup
from spindle.coordinator.descriptions import DescribedGroup
from spindle.coordinator.offset_requests import FetchedGroup
from spindle.coordinator.outcome import Client
from spindle.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from spindle.protocol.messages.delete_groups import DeleteGroupsResponse
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from spindle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)


class GroupCoordinatorPort(Protocol):
    """All groups whose partition this broker leads.

    Every method raises ApiError if it refuses the whole request: NOT_COORDINATOR,
    COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_GROUP_ID, or a code of its own.
    """

    async def join_group(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse: ...
    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse: ...
    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse: ...
    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse: ...

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse: ...

    def describe_consumer_groups(
        self, group_ids: Sequence[str]
    ) -> list[DescribedConsumerGroup]: ...

    async def commit_offsets(
        self, request: OffsetCommitRequest, client: Client
    ) -> OffsetCommitResponse:
        """Commit offsets. Every topic has its name, and its id if the cluster knows one."""
        ...

    async def commit_transactional_offsets(
        self,
        request: TxnOffsetCommitRequest,
        client: Client,
        verify: Callable[[TopicPartition], Awaitable[None]] | None = None,
    ) -> TxnOffsetCommitResponse:
        """Append offsets to the producer's transaction. Every topic of the request exists.

        Args:
            verify: raises ApiError unless the partition of `__consumer_offsets` belongs to the
                transaction (KIP-890); None to append without asking.
        """
        ...

    def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        transaction_version: int,
    ) -> Awaitable[None]:
        """Append the marker of a producer's transaction to a partition of `__consumer_offsets`.

        The result comes when the marker is committed and the transaction's offsets are visible.

        Raises:
            ApiError: also INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED.
        """
        ...

    async def fetch_offsets(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> FetchedGroup: ...

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse: ...

    def describe_groups(
        self, group_ids: Sequence[str], api_version: int
    ) -> list[DescribedGroup]: ...

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse: ...

    async def delete_groups(
        self, group_ids: Sequence[str]
    ) -> list[DeleteGroupsResponse.DeletableGroupResult]: ...
