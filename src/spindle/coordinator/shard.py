"""The coordinator of one partition of `__consumer_offsets`: the entry to this package.

The driver calls one operation at a time and executes its `Outcome`. Durable state comes from
records: `replay` takes them while the log is loaded, `committed` takes the shard's own records
after each append, in order. Rebalances are soft state that is ahead of the log: the committed
record of a group that is in memory does not change it; the record is for the next coordinator.

Operations marked *exclusive* decide on durable state. The driver runs them only while no append is
under way, and decides nothing else until their records are committed. The operations of consumer
groups (KIP-848) are exclusive, so a consumer group has no soft state that is ahead of the log.
Members that only take their own steps to the target assignment share appends: each step depends on
durable state alone.
"""

from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import Uuid, UuidSource, uuid_hex_text, uuid_text
from spindle.coordinator.classic_group import GroupState
from spindle.coordinator.config import ConsumerGroupConfig, GroupCoordinatorConfig
from spindle.coordinator.consumer.draft import TopicsView
from spindle.coordinator.consumer.groups import CONSUMER_TIMERS, ConsumerGroups
from spindle.coordinator.consumer.records import ConsumerGroupRecord
from spindle.coordinator.descriptions import (
    DescribedGroup,
    ListedGroup,
    describe_group,
    list_groups,
)
from spindle.coordinator.effects import EndOfTransaction, Token, Transaction
from spindle.coordinator.group_record import group_of
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.membership import Memberships
from spindle.coordinator.offset_requests import FetchedGroup, OffsetRequests, TopicIdOf
from spindle.coordinator.offset_store import OffsetStore
from spindle.coordinator.outcome import (
    AssignmentStored,
    Client,
    Completion,
    Outcome,
    StaticMemberStored,
    TimerKey,
)
from spindle.coordinator.rebalance import (
    Rebalances,
    answer_join,
    answer_sync,
    join_error,
    keep_alive,
)
from spindle.coordinator.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
)
from spindle.coordinator.transactional_offsets import TransactionalOffsets
from spindle.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from spindle.protocol.messages.delete_groups import DeleteGroupsResponse
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from spindle.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from spindle.protocol.messages.write_txn_markers import WriteTxnMarkersResponse
from spindle.protocol.records.batch import NO_PRODUCER_ID

_EXCLUSIVE_TIMERS: Final = frozenset({"expiration", *CONSUMER_TIMERS})


class GroupShard:
    """Groups and offsets of one partition. Only one driver may use it."""

    __slots__ = (
        "_config",
        "_memberships",
        "_requests",
        "_transactional",
        "consumers",
        "groups",
        "offsets",
        "rebalances",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        new_uuid: UuidSource,
        config_of: Callable[[str], ConsumerGroupConfig] | None = None,
    ) -> None:
        """Create an empty shard.

        Args:
            new_uuid: returns the random part of a member id.
            config_of: returns the settings that a consumer group has now; None if all groups have
                those of `config`.
        """
        self._config = config
        self.groups = GroupTable()
        self.offsets = OffsetStore()
        self.rebalances = Rebalances(config)
        self.consumers = ConsumerGroups(
            config,
            self.groups,
            self.rebalances,
            lambda: uuid_text(new_uuid()),
            config_of or (lambda _: config.consumer),
        )
        self._memberships = Memberships(
            config, self.groups, self.rebalances, lambda: uuid_hex_text(new_uuid())
        )
        self._requests = OffsetRequests(config, self.groups, self.offsets)
        self._transactional = TransactionalOffsets(config, self.groups)

    # ------------------------------------------------------------ members

    def join(self, token: Token, request: JoinGroupRequest, client: Client, now_ms: int) -> Outcome:
        """Decide on JoinGroup (exclusive in a consumer group). A later outcome may hold the answer.

        Raises ApiError if a consumer group refuses the member.
        """
        out = Outcome()
        if self.consumers.serves(request.group_id):
            response = self.consumers.join(request, client, now_ms, out)
            out.answer_after_commit(token, response)
        else:
            self._memberships.join(token, request, client, now_ms, out)
        return out

    def sync(self, token: Token, request: SyncGroupRequest, now_ms: int) -> Outcome:
        """Decide on SyncGroup. A later outcome may hold the answer."""
        out = Outcome()
        if self.consumers.serves(request.group_id):
            out.answer(token, self.consumers.sync(request, now_ms, out))
        else:
            self._memberships.sync(token, request, now_ms, out)
        return out

    def heartbeat(self, token: Token, request: HeartbeatRequest, now_ms: int) -> Outcome:
        """Decide on Heartbeat. Raises ApiError if the member or its generation is unknown."""
        out = Outcome()
        if self.consumers.serves(request.group_id):
            out.answer(token, self.consumers.classic_heartbeat(request, now_ms, out))
        else:
            out.answer(token, self._memberships.heartbeat(request, now_ms, out))
        return out

    def leave(self, token: Token, request: LeaveGroupRequest, now_ms: int) -> Outcome:
        """Decide on LeaveGroup. Raises ApiError UNKNOWN_MEMBER_ID if there is no such group."""
        out = Outcome()
        if self.consumers.serves(request.group_id):
            response = self.consumers.leave(request, now_ms, out)
        else:
            response = self._memberships.leave(request, now_ms, out)
        out.answer_after_commit(token, response)
        return out

    def consumer_heartbeat(
        self,
        token: Token,
        request: ConsumerGroupHeartbeatRequest,
        client: Client,
        view: TopicsView,
        now_ms: int,
    ) -> Outcome:
        """Decide on ConsumerGroupHeartbeat. Raises ApiError if it is refused.

        It is exclusive unless `consumers.is_own_step`.
        """
        out = Outcome()
        response = self.consumers.heartbeat(request, client, view, now_ms, out)
        out.answer_after_commit(token, response)
        return out

    # ------------------------------------------------------------ offsets

    def commit_offsets(
        self, token: Token, request: OffsetCommitRequest, client: Client, now_ms: int
    ) -> Outcome:
        """Decide on OffsetCommit. Raises ApiError if the caller may not commit for the group."""
        out = Outcome()
        response = self._requests.commit(request, client, now_ms, out)
        out.answer_after_commit(token, response)
        return out

    def commit_transactional_offsets(
        self, token: Token, request: TxnOffsetCommitRequest, topic_id_of: TopicIdOf, now_ms: int
    ) -> Outcome:
        """Decide on TxnOffsetCommit. Raises ApiError if the caller may not commit for the group."""
        out = Outcome()
        response = self._transactional.commit(request, topic_id_of, now_ms, out)
        out.answer_after_commit(token, response)
        return out

    def complete_transaction(self, token: Token, transaction: EndOfTransaction) -> Outcome:
        """End a producer's transaction; the answer, without content, comes after the commit."""
        out = Outcome(transaction)
        out.answer_after_commit(token, WriteTxnMarkersResponse())
        return out

    def fetch_offsets(
        self, request: OffsetFetchRequest.OffsetFetchRequestGroup, *, require_stable: bool
    ) -> FetchedGroup:
        """Answer OffsetFetch for one group; with `require_stable` this operation is exclusive."""
        return self._requests.fetch(request, require_stable=require_stable)

    def delete_offsets(self, token: Token, request: OffsetDeleteRequest) -> Outcome:
        """Decide on OffsetDelete (exclusive). Raises ApiError if the group is missing or in use."""
        out = Outcome()
        out.is_atomic = False
        response = self._requests.delete(request, out)
        out.answer_after_commit(token, response)
        return out

    # ------------------------------------------------------------ groups

    def describe_groups(self, group_ids: Sequence[str], api_version: int) -> list[DescribedGroup]:
        """Answer DescribeGroups, in the order of the ids."""
        return [describe_group(self.groups, group_id, api_version) for group_id in group_ids]

    def list_groups(
        self, states_filter: Sequence[str], types_filter: Sequence[str]
    ) -> list[ListedGroup]:
        """Answer ListGroups."""
        return list_groups(self.groups, states_filter, types_filter)

    def delete_groups(self, token: Token, group_ids: Sequence[str]) -> Outcome:
        """Decide on DeleteGroups (exclusive)."""
        out = Outcome()
        out.is_atomic = False
        results = [
            DeleteGroupsResponse.DeletableGroupResult(group_id=group_id, error_code=code)
            for group_id, code in self._requests.delete_groups(group_ids, out)
        ]
        out.answer_after_commit(token, DeleteGroupsResponse(results=results))
        return out

    def on_topics_deleted(self, token: Token, topics: Sequence[tuple[Uuid, str]]) -> Outcome:
        """Delete the offsets of topics (id and name) that the cluster has deleted (exclusive).

        The answer comes when the tombstones are committed.
        """
        out = Outcome()
        out.is_atomic = False
        self._requests.on_topics_deleted(topics, out)
        out.answer_after_commit(token, OffsetDeleteResponse())
        return out

    def delete_missing_topics(self, token: Token, topic_id_of: TopicIdOf) -> Outcome:
        """Delete the offsets of topics that no longer exist (exclusive).

        Such topics were deleted while the partition had no coordinator. The answer comes when the
        tombstones are committed.
        """
        out = Outcome()
        out.is_atomic = False
        self._requests.delete_missing_topics(topic_id_of, out)
        out.answer_after_commit(token, OffsetDeleteResponse())
        return out

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, now_ms: int) -> Outcome:
        """Handle a timer that fired."""
        out = Outcome()
        if key.kind == "expiration":
            out.is_atomic = False
            self._requests.expire(now_ms, out)
            self._schedule_expiration(now_ms, out)
        elif key.kind in CONSUMER_TIMERS:
            self.consumers.on_timer(key, now_ms, out)
        elif key.kind == "heartbeat":
            self._memberships.expire_session(key.group_id, key.member_id, now_ms, out)
        else:
            group = self.groups.get(key.group_id)
            if group is not None and key.kind == "join":
                self.rebalances.on_join_timer(group, now_ms, out)
            elif group is not None:
                self.rebalances.on_sync_timer(group, now_ms, out)
        return out

    def is_exclusive_timer(self, key: TimerKey) -> bool:
        """Return True if the timer's operation is exclusive."""
        return key.kind in _EXCLUSIVE_TIMERS

    def _schedule_expiration(self, now_ms: int, out: Outcome) -> None:
        interval_ms = self._config.offsets_retention_check_interval_ms
        out.set_timer(TimerKey("expiration"), now_ms + interval_ms)

    # ------------------------------------------------------------ the log

    def replay(self, record: CoordinatorRecord, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply a record of the log; `producer_id` is that of a transactional batch."""
        if isinstance(record, GroupRecord):
            if record.value is None:
                self.groups.remove(record.group_id)
            else:
                self.groups.put(group_of(record))
        elif isinstance(record, ConsumerGroupRecord):
            self.groups.replay_consumer(record)
        else:
            self._replay_offset(*record, producer_id)

    def replay_marker(self, producer_id: int, is_commit: bool) -> None:
        """Apply a marker, which ends a producer's transaction."""
        self.offsets.end_transaction(producer_id, is_commit)

    def _replay_offset(
        self,
        group_id: str,
        partition: TopicPartition,
        committed: CommittedOffset | None,
        producer_id: int,
    ) -> None:
        if committed is None:
            self.offsets.delete(group_id, partition)
            return
        group = self.groups.get(group_id)
        if group is None and group_id not in self.groups.consumer:
            # Offsets without a group record belong to a simple group, which is always Empty.
            group = self.groups.create(group_id, committed.commit_timestamp_ms)
        if group is not None:
            group.is_stored = True
        if producer_id == NO_PRODUCER_ID:
            self.offsets.put(group_id, partition, committed)
        else:
            self.offsets.put_pending(producer_id, group_id, partition, committed)

    def loaded(self, now_ms: int) -> Outcome:
        """Begin the members' sessions after loading; rebalance each group over `group.max.size`."""
        out = Outcome()
        for group in self.groups:
            for member in group.members.values():
                keep_alive(group, member, now_ms, out)
            if len(group.members) > self._config.max_size:
                self.rebalances.prepare(group, now_ms, out)
        self.consumers.loaded(now_ms, out)
        self._schedule_expiration(now_ms, out)
        return out

    def unloaded(self, now_ms: int) -> Outcome:
        """Answer every parked request with NOT_COORDINATOR; the shard must not be used any more."""
        out = Outcome()
        code = ErrorCode.NOT_COORDINATOR
        for group in self.groups:
            group.transition_to(GroupState.DEAD, now_ms)
            for member in group.members.values():
                answer_join(group, member, join_error(code, member.member_id), out)
                answer_sync(member, SyncGroupResponse(error_code=code), out)
        return out

    def committed(
        self,
        records: Sequence[CoordinatorRecord],
        base_offset: int,
        transaction: Transaction,
        now_ms: int,
    ) -> Outcome:
        """Apply a batch of this shard's own outcomes, committed from `base_offset` on."""
        out = Outcome()
        producer_id = NO_PRODUCER_ID
        if isinstance(transaction, EndOfTransaction):
            self.replay_marker(transaction.producer_id, transaction.marker.is_commit)
        elif transaction is not None:
            producer_id = transaction.producer_id
        for record_offset, record in enumerate(records, base_offset):
            if isinstance(record, OffsetRecord):
                group_id, partition, committed = record
                if committed is not None:
                    committed = CommittedOffset(*committed[:-1], record_offset)
                self._replay_offset(group_id, partition, committed, producer_id)
            elif isinstance(record, ConsumerGroupRecord):
                self.groups.replay_consumer(record)
            elif record.value is None:
                self._remove_classic(record.group_id, out)
            else:
                group = self.groups.get(record.group_id)
                if group is None:
                    # The group was removed before its record was committed. Restart its members'
                    # sessions.
                    group = group_of(record)
                    self.groups.put(group)
                    for member in group.members.values():
                        keep_alive(group, member, now_ms, out)
                else:
                    group.is_stored = True
        return out

    def failed(
        self, records: Sequence[CoordinatorRecord], _code: ErrorCode, _now_ms: int
    ) -> Outcome:
        """Let members whose steps were not appended take them again; return nothing.

        The completions of an outcome undo what its other records would have stored.
        """
        for record in records:
            if isinstance(record, ConsumerGroupRecord):
                self.consumers.not_appended(record)
        return Outcome()

    def _remove_classic(self, group_id: str, out: Outcome) -> None:
        if self.groups.remove(group_id) is not None:
            out.cancel_timer(TimerKey("join", group_id))
            out.cancel_timer(TimerKey("sync", group_id))

    def complete(self, completion: Completion, code: ErrorCode, now_ms: int) -> Outcome:
        """Finish what waited for an append that ended with `code` (NONE: it is committed)."""
        out = Outcome()
        if isinstance(completion, AssignmentStored):
            self._memberships.finish_assignment(completion, code, now_ms, out)
        elif isinstance(completion, StaticMemberStored):
            self._memberships.static_returns.finish(completion, code, now_ms, out)
        elif code is not ErrorCode.NONE:
            self._undo_creation(completion.group_id, code, out)
        return out

    def _undo_creation(self, group_id: str, code: ErrorCode, out: Outcome) -> None:
        group = self.groups.get(group_id)
        if group is None or group.is_stored:
            return
        self.groups.remove(group_id)
        for member_id in [*group.members, *group.pending_joins]:
            out.cancel_timer(TimerKey("heartbeat", group_id, member_id))
        out.cancel_timer(TimerKey("join", group_id))
        out.cancel_timer(TimerKey("sync", group_id))
        for member in group.members.values():
            answer_join(group, member, join_error(code, member.member_id), out)
            answer_sync(member, SyncGroupResponse(error_code=code), out)

    def check(self) -> None:
        """Assert the invariants of all groups and of the offsets (for tests and the simulator)."""
        for group in self.groups:
            group.check()
        for consumer_group in self.groups.consumer.values():
            consumer_group.check()
        self.offsets.check()
