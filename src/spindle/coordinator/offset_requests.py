"""OffsetCommit, OffsetFetch, OffsetDelete and expiry, for one shard.

The handler has checked that topics and partitions exist and has translated between names and ids.
Here a topic has a name, and an id if one is known.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition, TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.rebalance import keep_alive
from spindle.coordinator.consumer.consumer_group import ConsumerGroup
from spindle.coordinator.coordinator_result import GroupRequest, GroupResult, TimerKey
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.offset_store import OffsetStore
from spindle.coordinator.partitioning import utf16_length
from spindle.coordinator.records import CommittedOffset, GroupRecord, OffsetRecord
from spindle.coordinator.streams.streams_group import StreamsGroup
from spindle.metadata.topics import TopicsImage
from spindle.protocol import versions
from spindle.protocol.messages.delete_groups import DeleteGroupsResponse
from spindle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from spindle.protocol.sentinels import NO_OFFSET, NO_TIMESTAMP

NO_RETENTION_MS: Final = -1
TopicIdOf = Callable[[str], Uuid | None]
"""The id of the topic that has this name now; None if there is none."""
_LAST_TIMESTAMP_MS: Final = 2**63 - 1

FetchedGroup = OffsetFetchResponse.OffsetFetchResponseGroup
FetchedTopic = FetchedGroup.OffsetFetchResponseTopics
FetchedPartition = FetchedTopic.OffsetFetchResponsePartitions
CommittedTopic = OffsetCommitResponse.OffsetCommitResponseTopic
TransactionalTopic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
CommitTopicT = TypeVar("CommitTopicT", CommittedTopic, TransactionalTopic)
RequestedTopic: TypeAlias = (
    OffsetCommitRequest.OffsetCommitRequestTopic
    | TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
)
"""OffsetCommit and TxnOffsetCommit have the same fields for topics and partitions."""
_PARTITION_TYPES: Final = {
    CommittedTopic: CommittedTopic.OffsetCommitResponsePartition,
    TransactionalTopic: TransactionalTopic.TxnOffsetCommitResponsePartition,
}
DeletedTopic = OffsetDeleteResponse.OffsetDeleteResponseTopic
DeletedPartition = DeletedTopic.OffsetDeleteResponsePartition


def commit_topic(
    topic_type: type[CommitTopicT], topic: RequestedTopic, results: Iterable[tuple[int, ErrorCode]]
) -> CommitTopicT:
    """Return a topic of the response to a commit.

    Args:
        results: number and error code of each of its partitions.
    """
    partition_type: Any = _PARTITION_TYPES[topic_type]
    partitions = [partition_type(partition_index=index, error_code=code) for index, code in results]
    return topic_type(name=topic.name, topic_id=topic.topic_id, partitions=partitions)


def refused_topics(
    topic_type: type[CommitTopicT], topics: Iterable[RequestedTopic], code: ErrorCode
) -> list[CommitTopicT]:
    """Return the response to a commit that gives every partition the same error."""
    return [
        commit_topic(topic_type, topic, [(p.partition_index, code) for p in topic.partitions])
        for topic in topics
    ]


def add_offsets(
    topic_type: type[CommitTopicT],
    group_id: str,
    topics: Iterable[RequestedTopic],
    out: GroupResult,
    *,
    present: TopicsImage,
    metadata_max_bytes: int,
    expire_ms: int = NO_TIMESTAMP,
) -> list[CommitTopicT]:
    """Add one record per partition; a partition whose metadata is too long gets an error.

    A commit may wait until the topic is deleted, and another one has its name: it gets an error.

    Args:
        present: the topics of the cluster when this is decided.
    """
    committed = []
    for topic in topics:
        if topic.topic_id != ZERO_UUID and topic.topic_id not in present.by_id:
            committed += refused_topics(topic_type, [topic], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            continue
        results = []
        for partition in topic.partitions:
            metadata, index = partition.committed_metadata or "", partition.partition_index
            if metadata and utf16_length(metadata) > metadata_max_bytes:
                results.append((index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            offset = CommittedOffset(
                partition.committed_offset,
                partition.committed_leader_epoch,
                metadata,
                out.now_ms,
                expire_ms,
                topic.topic_id,
            )
            out.records.append(OffsetRecord(group_id, TopicPartition(topic.name, index), offset))
            results.append((index, ErrorCode.NONE))
        committed.append(commit_topic(topic_type, topic, results))
    return committed


class OffsetRequests:
    """Decides on commits, fetches and deletions of offsets."""

    __slots__ = ("_config", "_groups", "_offsets")

    def __init__(self, groups: GroupTable, offsets: OffsetStore) -> None:
        self._config = groups.config
        self._groups = groups
        self._offsets = offsets

    # ------------------------------------------------------------ commit

    def commit(self, request: GroupRequest[OffsetCommitRequest]) -> OffsetCommitResponse:
        """Add one record per partition; a partition whose metadata is too long gets an error.

        Raises:
            ApiError: the caller may not commit for this group.
        """
        self._check_commit(request)
        message, out = request.message, request.out
        expire_ms = NO_TIMESTAMP
        if message.retention_time_ms != NO_RETENTION_MS:
            # The client chooses the retention time, so the sum may exceed what a record can hold.
            expire_ms = min(out.now_ms + message.retention_time_ms, _LAST_TIMESTAMP_MS)
        return OffsetCommitResponse(
            topics=add_offsets(
                CommittedTopic,
                message.group_id,
                message.topics,
                out,
                present=self._groups.view.topics,
                metadata_max_bytes=self._config.offset_metadata_max_bytes,
                expire_ms=expire_ms,
            )
        )

    def _check_commit(self, request: GroupRequest[OffsetCommitRequest]) -> None:
        message, api_version = request.message, request.client.api_version
        group = self._groups.get(message.group_id)
        generation_id = message.generation_id_or_member_epoch
        consumer_group = self._groups.consumer.get(message.group_id)
        if group is None and consumer_group is not None:
            consumer_group.check_offset_commit(
                message.member_id,
                generation_id,
                api_version,
                [
                    TopicIdPartition(topic.topic_id, partition.partition_index)
                    for topic in message.topics
                    for partition in topic.partitions
                ],
            )
            return
        streams_group = self._groups.streams.get(message.group_id)
        if group is None and streams_group is not None:
            streams_group.check_offset_commit(
                message.member_id, generation_id, api_version, named_partitions(message.topics)
            )
            return
        self._groups.check_has_offsets(message.group_id)
        if group is None:
            # Without a generation the caller assigns partitions itself; the record of its first
            # offset creates the group.
            if generation_id >= 0:
                if api_version >= versions.OFFSET_COMMIT_GROUP_ID_NOT_FOUND:
                    raise group_not_found(message.group_id)
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            return
        group.check_offset_commit(message.member_id, message.group_instance_id, generation_id)
        member = group.members.get(message.member_id)
        if member is not None and group.state in (
            GroupState.STABLE,
            GroupState.PREPARING_REBALANCE,
        ):
            keep_alive(group, member, request.out)

    # ------------------------------------------------------------ fetch

    def fetch(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> FetchedGroup:
        """Return the committed offsets of the partitions in `topics`, or of all if that is None.

        A partition without a committed offset has offset -1, and so has one whose stored topic id
        is not the requested one. If all are asked for, each has its topic's name and stored id,
        which is zero if an older release wrote the record. With `require_stable`, a partition with
        an offset in an open transaction has the error UNSTABLE_OFFSET_COMMIT.

        Raises:
            ApiError: the group's members have epochs, and the caller is not a member in this one.
        """
        owner = self._groups.offset_owner(request.group_id)
        if owner is not None:
            owner.check_offset_fetch(request.member_id, request.member_epoch)
        if request.topics is None:
            topics = self._fetch_all(request.group_id, require_stable)
        else:
            known = self._exists(request.group_id)
            topics = [
                FetchedTopic(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._fetch_one(
                            request.group_id,
                            TopicPartition(topic.name, index),
                            topic.topic_id,
                            known,
                            require_stable,
                        )
                        for index in topic.partition_indexes
                    ],
                )
                for topic in request.topics
            ]
        return FetchedGroup(group_id=request.group_id, topics=topics)

    def _exists(self, group_id: str) -> bool:
        groups = self._groups
        return groups.get(group_id) is not None or groups.offset_owner(group_id) is not None

    def _fetch_one(
        self,
        group_id: str,
        partition: TopicPartition,
        topic_id: Uuid,
        group_exists: bool,
        require_stable: bool,
    ) -> FetchedPartition:
        if require_stable and self._offsets.is_open(group_id, partition):
            return _unstable(partition.partition)
        committed = self._offsets.get(group_id, partition) if group_exists else None
        if committed is None or _is_other_topic(committed.topic_id, topic_id):
            return FetchedPartition(
                partition_index=partition.partition,
                committed_offset=NO_OFFSET,
                metadata="",
            )
        return _fetched(partition.partition, committed)

    def _fetch_all(self, group_id: str, require_stable: bool) -> list[FetchedTopic]:
        topics: dict[tuple[str, Uuid], FetchedTopic] = {}
        if not self._exists(group_id):
            return []
        for partition, committed in self._offsets.of_group(group_id).items():
            named = (partition.topic, committed.topic_id)
            topic = topics.get(named)
            if topic is None:
                topic = topics[named] = FetchedTopic(
                    name=partition.topic, topic_id=committed.topic_id
                )
            if require_stable and self._offsets.is_open(group_id, partition):
                topic.partitions.append(_unstable(partition.partition))
            else:
                topic.partitions.append(_fetched(partition.partition, committed))
        return list(topics.values())

    # ------------------------------------------------------------ delete

    def delete(self, request: OffsetDeleteRequest, out: GroupResult) -> OffsetDeleteResponse:
        """Delete offsets of topics that the group does not subscribe to (exclusive).

        Raises:
            ApiError: GROUP_ID_NOT_FOUND; NON_EMPTY_GROUP if the group has members and another
                protocol type than `consumer`.
        """
        group = self._groups.get(request.group_id)
        reader = group or self._groups.offset_owner(request.group_id)
        if reader is None:
            raise group_not_found(request.group_id)
        if group is not None:
            group.check_offset_delete()
        out.is_atomic = False
        topics = []
        for topic in request.topics:
            is_read = reader.is_subscribed_to(topic.name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if is_read else ErrorCode.NONE
            indexes = [partition.partition_index for partition in topic.partitions]
            if not is_read:
                self._add_tombstones(request.group_id, topic.name, indexes, out)
            topics.append(
                DeletedTopic(
                    name=topic.name,
                    partitions=[
                        DeletedPartition(partition_index=index, error_code=code)
                        for index in indexes
                    ],
                )
            )
        return OffsetDeleteResponse(topics=topics)

    def _add_tombstones(
        self, group_id: str, topic: str, indexes: Sequence[int], out: GroupResult
    ) -> None:
        for index in indexes:
            partition = TopicPartition(topic, index)
            is_known = self._offsets.get(group_id, partition) is not None
            if is_known or self._offsets.is_open(group_id, partition):
                out.records.append(OffsetRecord(group_id, partition, None))

    def delete_groups(self, group_ids: Sequence[str], out: GroupResult) -> DeleteGroupsResponse:
        """Delete each group that is Empty, with its offsets (exclusive)."""
        out.is_atomic = False
        return DeleteGroupsResponse(
            results=[
                DeleteGroupsResponse.DeletableGroupResult(
                    group_id=group_id, error_code=self._delete_group(group_id, out)
                )
                for group_id in group_ids
            ]
        )

    def _delete_group(self, group_id: str, out: GroupResult) -> ErrorCode:
        group = self._groups.get(group_id)
        owner = self._groups.offset_owner(group_id)
        if group is not None:
            try:
                group.check_delete()
            except ApiError as error:
                return error.code
        elif owner is None:
            return ErrorCode.GROUP_ID_NOT_FOUND
        elif owner.members:
            return ErrorCode.NON_EMPTY_GROUP
        self._add_group_tombstones(group_id, out)
        return ErrorCode.NONE

    def _add_group_tombstones(self, group_id: str, out: GroupResult) -> None:
        """Add tombstones for a group and all its offsets, those of open transactions included."""
        deleted: dict[TopicPartition, None] = dict.fromkeys(self._offsets.of_group(group_id))
        deleted.update(dict.fromkeys(self._offsets.open_partitions(group_id)))
        for partition in deleted:
            out.records.append(OffsetRecord(group_id, partition, None))
        owner = self._groups.offset_owner(group_id)
        if owner is not None:
            out.records += owner.deletion_records()
        else:
            out.records.append(GroupRecord(group_id, None))

    def on_topics_deleted(
        self, topics: Sequence[tuple[Uuid, str]], out: GroupResult
    ) -> OffsetDeleteResponse:
        """Delete the offsets of topics (id and name) that the cluster has deleted (exclusive)."""
        ids = {name: topic_id for topic_id, name in topics}

        def is_gone(topic: str, stored_id: Uuid) -> bool:
            return topic in ids and not _is_other_topic(stored_id, ids[topic])

        return self._delete_where(is_gone, out)

    def delete_missing_topics(
        self, topic_id_of: TopicIdOf, out: GroupResult
    ) -> OffsetDeleteResponse:
        """Delete the offsets of topics that no longer exist (exclusive).

        Such topics were deleted while the partition had no coordinator.
        """

        def is_gone(topic: str, stored_id: Uuid) -> bool:
            topic_id = topic_id_of(topic)
            return topic_id is None or _is_other_topic(stored_id, topic_id)

        return self._delete_where(is_gone, out)

    def _delete_where(
        self, is_gone: Callable[[str, Uuid], bool], out: GroupResult
    ) -> OffsetDeleteResponse:
        """Add tombstones for all offsets, also pending ones, of topics that are deleted."""
        out.is_atomic = False
        deleted: dict[tuple[str, TopicPartition], None] = {}
        for group_id in self._offsets.group_ids():
            for partition, committed in self._offsets.of_group(group_id).items():
                if is_gone(partition.topic, committed.topic_id):
                    deleted[group_id, partition] = None
        for producer_id in self._offsets.pending_producers():
            for group_id, partition, committed in self._offsets.pending_of(producer_id):
                if is_gone(partition.topic, committed.topic_id):
                    deleted[group_id, partition] = None
        out.records += [OffsetRecord(group_id, partition, None) for group_id, partition in deleted]
        return OffsetDeleteResponse()

    # ------------------------------------------------------------ expiry

    def start_expiration_timer(self, out: GroupResult) -> None:
        """Set the timer of the next `expire`."""
        out.start_timer(TimerKey("expiration"), self._config.offsets_retention_check_interval_ms)

    def expire(self, out: GroupResult) -> None:
        """Add tombstones for expired offsets, and for Empty groups that have no offset left."""
        out.is_atomic = False
        for consumer_group in self._groups.consumer.values():
            self._expire_modern_group(consumer_group, out)
        for streams_group in self._groups.streams.values():
            self._expire_modern_group(streams_group, out)
        for group in self._groups:
            is_last = self._expire_offsets(group, out)
            if is_last and group.state is GroupState.EMPTY and not group.pending_joins:
                out.records.append(GroupRecord(group.group_id, None))

    def _expire_modern_group(self, group: ConsumerGroup | StreamsGroup, out: GroupResult) -> None:
        """Add tombstones for offsets of topics that no member reads, and for an empty group."""
        group_id = group.group_id
        is_last = not self._offsets.has_open_transactions(group_id)
        for partition, committed in self._offsets.of_group(group_id).items():
            if (
                self._is_older_than_retention(committed, committed.commit_timestamp_ms, out.now_ms)
                and not group.is_subscribed_to(partition.topic)
                and not self._offsets.is_open(group_id, partition)
            ):
                out.records.append(OffsetRecord(group_id, partition, None))
            else:
                is_last = False
        if is_last and not group.members:
            out.records += group.deletion_records()

    def _expire_offsets(self, group: ClassicGroup, out: GroupResult) -> bool:
        """Add tombstones for a group's expired offsets; return True if no offset is left."""
        group_id = group.group_id
        has_open = self._offsets.has_open_transactions(group_id)
        offsets = self._offsets.of_group(group_id)
        if not offsets:
            return not has_open
        if not _may_expire(group):
            return False
        all_expired = True
        for partition, committed in offsets.items():
            if (
                not group.is_subscribed_to(partition.topic)
                and self._is_expired(group, committed, out.now_ms)
                and not self._offsets.is_open(group_id, partition)
            ):
                out.records.append(OffsetRecord(group_id, partition, None))
            else:
                all_expired = False
        return all_expired and not has_open

    def _is_expired(self, group: ClassicGroup, committed: CommittedOffset, now_ms: int) -> bool:
        since_ms = committed.commit_timestamp_ms
        if group.protocol_type is not None and group.state is GroupState.EMPTY:
            # The retention of a group's offsets begins when its last member has left.
            stamp_ms = group.state_timestamp_ms
            since_ms = since_ms if stamp_ms is None else stamp_ms
        return self._is_older_than_retention(committed, since_ms, now_ms)

    def _is_older_than_retention(
        self, committed: CommittedOffset, since_ms: int, now_ms: int
    ) -> bool:
        if committed.expire_timestamp_ms != NO_TIMESTAMP:
            return now_ms >= committed.expire_timestamp_ms
        return now_ms - since_ms >= self._config.offsets_retention_ms


def _may_expire(group: ClassicGroup) -> bool:
    if group.protocol_type is None or group.state is GroupState.EMPTY:
        return True
    return (
        group.state is GroupState.STABLE
        and group.uses_consumer_protocol
        and group.subscribed_topics is not None
    )


def named_partitions(topics: Iterable[RequestedTopic]) -> list[TopicPartition]:
    """Return the partitions of a commit by the names of their topics."""
    return [
        TopicPartition(topic.name, partition.partition_index)
        for topic in topics
        for partition in topic.partitions
    ]


def group_not_found(group_id: str) -> ApiError:
    """Return the error of a group that does not exist."""
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} not found")


def _is_other_topic(stored: Uuid, asked: Uuid) -> bool:
    """Return True if the offset belongs to a deleted topic of the same name."""
    return ZERO_UUID not in (stored, asked) and stored != asked


def _fetched(index: int, committed: CommittedOffset) -> FetchedPartition:
    return FetchedPartition(
        partition_index=index,
        committed_offset=committed.offset,
        committed_leader_epoch=committed.leader_epoch,
        metadata=committed.metadata,
    )


def _unstable(index: int) -> FetchedPartition:
    return FetchedPartition(
        partition_index=index,
        committed_offset=NO_OFFSET,
        metadata="",
        error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
    )
