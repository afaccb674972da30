"""All group coordinator shards of a broker: each request is passed to the shard of its group.

A shard exists for each partition of `__consumer_offsets` that this broker leads. Requests for
groups of other partitions get NOT_COORDINATOR. While a partition is loaded, requests of members
wait, up to `offsets.commit.timeout.ms`, and then get COORDINATOR_LOAD_IN_PROGRESS. Heartbeats and
requests that describe, list or delete groups get it at once.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.common.uuids import Uuid
from spindle.config.broker_values import BrokerValues
from spindle.coordinator.classic.requests import ClassicGroupRequests
from spindle.coordinator.config import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from spindle.coordinator.consumer.classic_members import ClassicMembers
from spindle.coordinator.consumer.descriptions import (
    DescribedConsumerGroup,
    describe_consumer_group,
    description_error,
)
from spindle.coordinator.consumer.heartbeat import check_request
from spindle.coordinator.consumer.subscriptions import TopicsView
from spindle.coordinator.coordinator_result import (
    NO_CLIENT,
    Client,
    EndOfTransaction,
    GroupRequest,
    GroupResult,
    Token,
)
from spindle.coordinator.descriptions import (
    DescribedGroup,
    describe_error,
    describe_group,
    list_groups,
)
from spindle.coordinator.offset_requests import FetchedGroup
from spindle.coordinator.shard import GROUP_RECORDS, GroupShard
from spindle.coordinator.streams.descriptions import (
    DescribedStreamsGroup,
    describe_streams_group,
    streams_description_error,
)
from spindle.coordinator.streams.heartbeat import check_streams_request
from spindle.coordinator.streams.topology import InternalTopic
from spindle.coordinator.transactional_offsets import commit_transactional_offsets
from spindle.metadata.configs import GROUP_RESOURCE, ConfigResource
from spindle.metadata.features import GROUP_VERSION, STREAMS_VERSION
from spindle.protocol.message import Message
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
from spindle.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from spindle.protocol.records.control import EndTransactionMarker
from spindle.replicas.metadata_view import MetadataView
from spindle.runtime.coordinator.offset_verification import OffsetVerification, VerifyOffsets
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState
from spindle.runtime.coordinator.shard_table import ShardTable
from spindle.runtime.coordinator.shard_work import Operation, ResponseT
from spindle.runtime.coordinator.shard_writer import Clock, CoordinatorLog, ShardSettings


class GroupLoadTotals(NamedTuple):
    """Totals of the shards that were loaded together, for one line in the log."""

    partitions: int
    groups: int
    records: int

    def plus(self, shard: ShardDriver[GroupShard]) -> "GroupLoadTotals":
        """Return the totals with a shard that has just been loaded."""
        return GroupLoadTotals(
            self.partitions + 1,
            self.groups + len(shard.shard.groups),
            self.records + shard.loaded_records,
        )


NOTHING_LOADED: Final = GroupLoadTotals(0, 0, 0)


log = logging.getLogger(__name__)

_MemberMessageT = TypeVar(
    "_MemberMessageT", JoinGroupRequest, SyncGroupRequest, HeartbeatRequest, LeaveGroupRequest
)


class GroupCoordinator:
    """Implements `GroupCoordinatorPort`. All calls must come from one event loop."""

    def __init__(
        self,
        node_id: int,
        config: GroupCoordinatorConfig,
        coordinator_log: CoordinatorLog,
        metadata: MetadataView,
        clock: Clock,
        new_uuid: Callable[[], Uuid],
        settings: ShardSettings | None = None,
    ) -> None:
        self._config = config
        self._consumer = config.consumer
        self._share = config.share
        self._streams = config.streams
        self._log = coordinator_log
        self._metadata = metadata
        self._clock = clock
        self._new_uuid = new_uuid
        self._settings = settings or ShardSettings()
        wait_s = self._settings.commit_timeout_ms / 1000
        self._table: ShardTable[GroupShard] = ShardTable(
            node_id, OFFSETS_TOPIC, metadata, lambda: wait_s
        )
        self.shards = self._table.by_partition
        self._loaded = NOTHING_LOADED
        self._verification = OffsetVerification()
        self.delete_share_group: Callable[[str], Awaitable[None]] = _no_share_groups

    def update(self, values: BrokerValues) -> None:
        """Use these values of the keys that can change while the broker runs."""
        interval_ms = values.integer("group.consumer.assignment.interval.ms")
        self._consumer = self._config.consumer.with_assignment_interval(interval_ms)
        interval_ms = values.integer("group.share.assignment.interval.ms")
        self._share = self._config.share.with_assignment_interval(interval_ms)
        interval_ms = values.integer("group.streams.assignment.interval.ms")
        self._streams = self._config.streams.with_assignment_interval(interval_ms)

    # ------------------------------------------------------------ leadership

    def on_elected(self, partition: int, leader_epoch: int) -> None:
        """Load a partition of `__consumer_offsets` that this broker now leads.

        A shard that exists stays, with the new epoch, unless loading it failed.
        """
        shard = self.shards.get(partition)
        if shard is not None and leader_epoch <= shard.leader_epoch:
            return
        self._verification.forget(partition)
        if shard is not None:
            shard.leader_epoch = leader_epoch
            if shard.state is not ShardState.FAILED:
                return
            shard.close()
        log.debug("Loading groups of %s-%d at epoch %d", OFFSETS_TOPIC, partition, leader_epoch)
        self.shards[partition] = ShardDriver(
            TopicPartition(OFFSETS_TOPIC, partition),
            leader_epoch,
            GroupShard(
                self._config,
                self._new_uuid,
                self._consumer_config,
                self._share_config,
                self._streams_config,
            ),
            GROUP_RECORDS,
            self._log,
            self._clock,
            self._settings,
            self._on_loaded,
        )

    def _on_loaded(self, shard: ShardDriver[GroupShard]) -> None:
        """Count the loaded records, and log the totals when no other shard is loading."""
        if shard.state is ShardState.ACTIVE:
            self._loaded = self._loaded.plus(shard)
            # Topics may have been deleted while no broker coordinated these groups.
            core = shard.shard
            self.refresh(core)
            shard.submit_background(
                lambda _, out: core.offset_requests.delete_missing_topics(self._topic_id_of, out)
            )
            shard.submit_background(
                lambda _, out: core.share.forget_missing_topics(
                    self._metadata.image.topics.by_id, out
                )
            )
        if any(other.state is ShardState.LOADING for other in self.shards.values()):
            return
        loaded, self._loaded = self._loaded, NOTHING_LOADED
        log.log(
            logging.INFO if loaded.records else logging.DEBUG,
            "Loaded %d groups of %d partitions of %s (%d records)",
            loaded.groups,
            loaded.partitions,
            OFFSETS_TOPIC,
            loaded.records,
        )

    def on_resigned(self, partition: int, leader_epoch: int | None = None) -> None:
        """Close the shard of a partition that this broker no longer leads.

        `leader_epoch` is the epoch that ended the leadership, if it is known.
        """
        shard = self.shards.get(partition)
        if shard is None or (leader_epoch is not None and leader_epoch < shard.leader_epoch):
            return
        del self.shards[partition]
        shard.close()
        self._verification.forget(partition)
        log.debug("Unloaded groups of %s-%d", OFFSETS_TOPIC, partition)

    def on_topics_deleted(self, topics: Sequence[tuple[Uuid, str]]) -> None:
        """Delete the committed offsets of topics (id and name) that the cluster has deleted."""
        for shard in self.shards.values():
            if shard.state in (ShardState.LOADING, ShardState.ACTIVE):
                shard.submit_background(_delete_topics(shard.shard, topics))
                shard.submit_background(_forget_share_states(shard.shard, topics))

    def close(self) -> None:
        """Close all shards; parked requests are answered with NOT_COORDINATOR."""
        for partition in list(self.shards):
            self.on_resigned(partition)

    async def wait_loaded(self) -> None:
        """Return when no shard is loading."""
        await self._table.wait_loaded()

    # ------------------------------------------------------------ requests of members

    async def join_group(self, request: JoinGroupRequest, client: Client) -> JoinGroupResponse:
        """Pass a JoinGroup to its shard. Also raises ApiError INVALID_SESSION_TIMEOUT."""
        _check_group_id(request.group_id)
        timeout_ms = request.session_timeout_ms
        low_ms, high_ms = self._config.min_session_timeout_ms, self._config.max_session_timeout_ms
        if not low_ms <= timeout_ms <= high_ms:
            raise ApiError(
                ErrorCode.INVALID_SESSION_TIMEOUT,
                f"session timeout of {timeout_ms} ms is not between {low_ms} and {high_ms} ms",
            )
        shard = await self.wait_for_shard(request.group_id)
        return await self._submit(
            shard, request, lambda members, request: members.join(request), client
        )

    async def sync_group(self, request: SyncGroupRequest) -> SyncGroupResponse:
        shard = await self.wait_for_shard(request.group_id)
        return await self._submit(shard, request, lambda members, request: members.sync(request))

    async def heartbeat(self, request: HeartbeatRequest) -> HeartbeatResponse:
        shard = self.shard_of(request.group_id)
        # While the shard is loading, a heartbeat is refused at once; its handler answers it without
        # error.
        shard.check_active()
        return await self._submit(
            shard, request, lambda members, request: members.heartbeat(request)
        )

    async def leave_group(self, request: LeaveGroupRequest) -> LeaveGroupResponse:
        shard = await self.wait_for_shard(request.group_id)
        return await self._submit(shard, request, lambda members, request: members.leave(request))

    def _submit(
        self,
        shard: ShardDriver[GroupShard],
        message: _MemberMessageT,
        decide: Callable[
            [ClassicGroupRequests | ClassicMembers, GroupRequest[_MemberMessageT]],
            ResponseT | None,
        ],
        client: Client = NO_CLIENT,
    ) -> "asyncio.Future[ResponseT]":
        """Submit a request of a classic member; in a consumer group it is exclusive."""
        core = shard.shard
        group_id = message.group_id

        def operation(token: Token, out: GroupResult) -> ResponseT | None:
            self.refresh(core)
            return decide(core.members(group_id), GroupRequest(token, message, out, client))

        return shard.submit(operation, is_exclusive=lambda: core.groups.serves_consumers(group_id))

    async def consumer_heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, client: Client
    ) -> ConsumerGroupHeartbeatResponse:
        """Pass a ConsumerGroupHeartbeat to its shard, with the topics and the group's settings."""
        self._check_consumer_groups()
        check_request(request, client.api_version, self._config.consumer.assignors)
        shard = await self.wait_for_shard(request.group_id)
        core = shard.shard

        def is_exclusive() -> bool:
            self.refresh(core)
            return not core.consumers.is_own_step(request, client)

        def operation(token: Token, out: GroupResult) -> ConsumerGroupHeartbeatResponse:
            self.refresh(core)
            return core.consumers.heartbeat(GroupRequest(token, request, out, client))

        return await shard.submit(operation, is_exclusive=is_exclusive)

    def describe_consumer_groups(self, group_ids: Sequence[str]) -> list[DescribedConsumerGroup]:
        """Describe consumer groups. Never raises: each group has its own error."""
        described = []
        for group_id in group_ids:
            try:
                self._check_consumer_groups()
                shard = self.shard_of(group_id)
                shard.check_active()
            except ApiError as error:
                described.append(description_error(group_id, error.code))
            else:
                self.refresh(shard.shard)
                described.append(describe_consumer_group(shard.shard.groups, group_id))
        return described

    async def streams_heartbeat(
        self, request: StreamsGroupHeartbeatRequest, client: Client
    ) -> tuple[StreamsGroupHeartbeatResponse, Sequence[InternalTopic]]:
        """Pass a StreamsGroupHeartbeat to its shard; return the internal topics to create, too."""
        self._check_streams_groups()
        check_streams_request(request)
        shard = await self.wait_for_shard(request.group_id)
        core = shard.shard

        def operation(token: Token, out: GroupResult) -> StreamsGroupHeartbeatResponse:
            self.refresh(core)
            return core.streams.heartbeat(GroupRequest(token, request, out, client))

        response = await shard.submit(operation, is_exclusive=True)
        return response, core.streams.missing_topics(request.group_id) if response.status else ()

    def describe_streams_groups(self, group_ids: Sequence[str]) -> list[DescribedStreamsGroup]:
        """Describe streams groups. Never raises: each group has its own error."""
        described = []
        for group_id in group_ids:
            try:
                self._check_streams_groups()
                shard = self.shard_of(group_id)
                shard.check_active()
            except ApiError as error:
                described.append(streams_description_error(group_id, error.code))
            else:
                self.refresh(shard.shard)
                described.append(describe_streams_group(shard.shard.groups, group_id))
        return described

    def _check_streams_groups(self) -> None:
        """Raise ApiError UNSUPPORTED_VERSION unless the cluster serves streams groups."""
        level = self._metadata.image.features.levels.get(STREAMS_VERSION, 0)
        if level < 1 or not self._config.serves_streams_groups:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)

    def _check_consumer_groups(self) -> None:
        """Raise ApiError UNSUPPORTED_VERSION unless the cluster serves KIP-848's groups."""
        level = self._metadata.image.features.levels.get(GROUP_VERSION, 0)
        if level < 1 or not self._config.serves_consumer_groups:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION)

    def _consumer_config(self, group_id: str) -> ConsumerGroupConfig:
        """Return the settings of a group: its own dynamic ones over the broker's."""
        own = self._metadata.image.configs.of(ConfigResource(GROUP_RESOURCE, group_id))
        return self._consumer.of_group(own) if own else self._consumer

    def _share_config(self, group_id: str) -> ShareGroupConfig:
        """Return the settings of a share group: its own dynamic ones over the broker's."""
        own = self._metadata.image.configs.of(ConfigResource(GROUP_RESOURCE, group_id))
        return self._share.of_group(own) if own else self._share

    def _streams_config(self, group_id: str) -> StreamsGroupConfig:
        """Return the settings of a streams group: its own dynamic ones over the broker's."""
        own = self._metadata.image.configs.of(ConfigResource(GROUP_RESOURCE, group_id))
        return self._streams.of_group(own) if own else self._streams

    def refresh(self, core: GroupShard) -> None:
        """Give the shard's consumer groups the present topics."""
        image, view = self._metadata.image, core.groups.view
        offset = image.provenance.last_offset
        if view.topics is not image.topics or view.metadata_offset != offset:
            core.groups.view = TopicsView(image.topics, offset)

    # ------------------------------------------------------------ offsets

    async def commit_offsets(
        self, request: OffsetCommitRequest, client: Client
    ) -> OffsetCommitResponse:
        # Old clients use the empty group id for offsets, so it is allowed here and in
        # `fetch_offsets`.
        shard = await self.wait_for_shard(request.group_id, allow_empty=True)
        core = shard.shard

        def operation(token: Token, out: GroupResult) -> OffsetCommitResponse:
            self.refresh(core)
            return core.offset_requests.commit(GroupRequest(token, request, out, client))

        return await shard.submit(operation)

    async def commit_transactional_offsets(
        self, request: TxnOffsetCommitRequest, client: Client, verify: VerifyOffsets | None = None
    ) -> TxnOffsetCommitResponse:
        shard = await self.wait_for_shard(request.group_id)
        if verify is not None:
            await self._verification.verify(
                shard.partition, request.producer_id, request.producer_epoch, verify
            )
        core = shard.shard

        def operation(token: Token, out: GroupResult) -> TxnOffsetCommitResponse:
            self.refresh(core)
            group_request = GroupRequest(token, request, out, client)
            return commit_transactional_offsets(core.groups, group_request)

        return await shard.submit(operation)

    async def complete_transaction(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        is_commit: bool,
        transaction_version: int,
    ) -> None:
        """Append a marker; it commits or drops the offsets of its transaction."""
        shard = self.shards.get(partition)
        if shard is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        self._verification.note_marker(partition, producer_id)
        marker = EndTransactionMarker(is_commit, coordinator_epoch)
        transaction = EndOfTransaction(producer_id, producer_epoch, marker, transaction_version)

        def complete(_: Token, out: GroupResult) -> Message:
            out.transaction = transaction
            return WriteTxnMarkersResponse()

        await shard.submit(complete)

    async def fetch_offsets(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> FetchedGroup:
        shard = await self.wait_for_shard(request.group_id, allow_empty=True)
        offsets = shard.shard.offset_requests
        if not require_stable and shard.state is ShardState.ACTIVE:
            return offsets.fetch(request, require_stable=False)
        return await shard.submit(
            lambda *_: offsets.fetch(request, require_stable=require_stable),
            is_exclusive=require_stable,
        )

    async def delete_offsets(self, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
        shard = await self.wait_for_shard(request.group_id)
        offsets = shard.shard.offset_requests
        return await shard.submit(lambda _, out: offsets.delete(request, out), is_exclusive=True)

    # ------------------------------------------------------------ groups

    def describe_groups(self, group_ids: Sequence[str], api_version: int) -> list[DescribedGroup]:
        """Describe groups. Never raises: a group that cannot be described has its own error."""
        described = []
        for group_id in group_ids:
            try:
                shard = self.shard_of(group_id, allow_empty=True)
                shard.check_active()
            except ApiError as error:
                described.append(describe_error(group_id, error.code))
            else:
                described.append(describe_group(shard.shard.groups, group_id, api_version))
        return described

    def list_groups(self, request: ListGroupsRequest) -> ListGroupsResponse:
        """List the groups of all shards. Raises ApiError if a shard is still loading."""
        response = ListGroupsResponse()
        for _, shard in sorted(self.shards.items()):
            if shard.state is ShardState.LOADING:
                raise ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if shard.state is ShardState.ACTIVE:
                response.groups += list_groups(
                    shard.shard.groups, request.states_filter, request.types_filter
                )
        return response

    async def delete_groups(
        self, group_ids: Sequence[str]
    ) -> list[DeleteGroupsResponse.DeletableGroupResult]:
        """Delete groups. Never raises: every group has its result."""
        results: list[DeleteGroupsResponse.DeletableGroupResult] = []
        by_shard: dict[int, list[str]] = {}
        for group_id in group_ids:
            try:
                shard = self.shard_of(group_id, allow_empty=True)
                shard.check_active()
                if group_id in shard.shard.groups.share:
                    await self.delete_share_group(group_id)
                    results += _delete_errors([group_id], ErrorCode.NONE)
                    continue
            except ApiError as error:
                results += _delete_errors([group_id], error.code)
            else:
                by_shard.setdefault(shard.partition.partition, []).append(group_id)
        done = [self._delete_in(self.shards[at], ids) for at, ids in by_shard.items()]
        for part in await asyncio.gather(*done):
            results += part
        return results

    async def _delete_in(
        self, shard: ShardDriver[GroupShard], group_ids: list[str]
    ) -> list[DeleteGroupsResponse.DeletableGroupResult]:
        offsets = shard.shard.offset_requests
        try:
            response: DeleteGroupsResponse = await shard.submit(
                lambda _, out: offsets.delete_groups(group_ids, out), is_exclusive=True
            )
        except ApiError as error:
            return _delete_errors(group_ids, error.code)
        return response.results

    # ------------------------------------------------------------ look-up

    def shard_of(self, group_id: str, *, allow_empty: bool = False) -> ShardDriver[GroupShard]:
        if not allow_empty:
            _check_group_id(group_id)
        return self._table.of(group_id)

    async def wait_for_shard(
        self, group_id: str, *, allow_empty: bool = False
    ) -> ShardDriver[GroupShard]:
        """Return the group's shard; wait if this broker is about to lead its partition."""
        if not allow_empty:
            _check_group_id(group_id)
        return await self._table.wait_for(group_id)

    def _topic_id_of(self, topic: str) -> Uuid | None:
        image = self._metadata.image.topics.by_name.get(topic)
        return None if image is None else image.topic_id


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise ApiError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")


async def _no_share_groups(group_id: str) -> None:
    """Refuse to delete a share group, before there is a store of its states."""
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"the states of {group_id} are not known")


def _delete_topics(
    core: GroupShard, topics: Sequence[tuple[Uuid, str]]
) -> Operation[OffsetDeleteResponse]:
    return lambda _, out: core.offset_requests.on_topics_deleted(topics, out)


def _forget_share_states(
    core: GroupShard, topics: Sequence[tuple[Uuid, str]]
) -> Operation[Message]:
    return lambda _, out: core.share.forget_topics([topic_id for topic_id, _ in topics], out)


def _delete_errors(
    group_ids: Sequence[str], code: ErrorCode
) -> list[DeleteGroupsResponse.DeletableGroupResult]:
    return [
        DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
        for group_id in group_ids
    ]
