"""The ports of this package: a shard for its driver, the group coordinator for request handlers."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, NamedTuple, Protocol

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.coordinator.consumer.descriptions import DescribedConsumerGroup
from spindle.coordinator.coordinator_result import (
    Client,
    CompletionT,
    CoordinatorResult,
    RecordT,
    TimerKeyT,
    Transaction,
)
from spindle.coordinator.descriptions import DescribedGroup
from spindle.coordinator.offset_requests import FetchedGroup
from spindle.coordinator.streams.descriptions import DescribedStreamsGroup
from spindle.coordinator.streams.topology import InternalTopic
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
from spindle.protocol.messages.streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from spindle.protocol.records.batch import NO_SEQUENCE


class ShardRecordFormat(NamedTuple, Generic[RecordT]):
    """The format of the records of an internal topic."""

    encode: Callable[[RecordT], tuple[bytes, bytes | None]]
    """Return key and value. Raises struct.error if a value does not fit its field."""
    parse: Callable[[bytes | None, bytes | None, int], RecordT | None]
    """Return the record with this key, value and offset; None if its type is unknown.

    Raises CorruptRecords.
    """
    base_sequence: int = NO_SEQUENCE
    """The base sequence of each batch, as Kafka writes it."""


class Shard(Protocol[RecordT, TimerKeyT, CompletionT]):
    """The coordinator of one partition of an internal topic: `__consumer_offsets` for groups,
    `__transaction_state` for transactional ids.

    It decides at once, appends records, and answers when these are committed. The driver calls one
    method at a time, and executes the result that the method has added to.
    """

    def replay(self, record: RecordT, producer_id: int) -> None:
        """Apply a record of the log.

        `producer_id` is that of a transactional batch, NO_PRODUCER_ID for other batches.
        """
        ...

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """Apply a marker of the log, which ends a producer's transaction."""
        ...

    def loaded(self, out: CoordinatorResult[RecordT, TimerKeyT, CompletionT]) -> None:
        """Begin the work of a coordinator, after all records of the log were replayed."""
        ...

    def unloaded(self, out: CoordinatorResult[RecordT, TimerKeyT, CompletionT]) -> None:
        """Answer every parked request, because another broker is the coordinator now."""
        ...

    def committed(
        self,
        records: Sequence[RecordT],
        base_offset: int,
        transaction: Transaction,
        out: CoordinatorResult[RecordT, TimerKeyT, CompletionT],
    ) -> None:
        """Apply the shard's own batch, which is committed from `base_offset` on."""
        ...

    def failed(
        self,
        records: Sequence[RecordT],
        out: CoordinatorResult[RecordT, TimerKeyT, CompletionT],
    ) -> None:
        """Handle records of the shard that will never be appended.

        A request that waits too long is answered before the result of its append is known:
        `complete` gets the result of the request, `committed` and `failed` that of the records.
        """
        ...

    def complete(
        self,
        completion: CompletionT,
        code: ErrorCode,
        out: CoordinatorResult[RecordT, TimerKeyT, CompletionT],
    ) -> None:
        """Finish what waited for an append that ended with `code` (NONE: it is committed)."""
        ...

    def on_timer(
        self, key: TimerKeyT, out: CoordinatorResult[RecordT, TimerKeyT, CompletionT]
    ) -> None:
        """Handle a timer that fired."""
        ...

    def is_exclusive_timer(self, key: TimerKeyT) -> bool:
        """Return True if the timer's operation must run while no append is running."""
        ...


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

    async def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: Client
    ) -> tuple[StreamsGroupHeartbeatResponse, Sequence[InternalTopic]]:
        """Return the response, and the internal topics of the group that do not exist."""
        ...

    def describe_streams_groups(self, group_ids: Sequence[str]) -> list[DescribedStreamsGroup]: ...

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
