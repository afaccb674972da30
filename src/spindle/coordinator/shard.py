"""The coordinator of one partition of `__consumer_offsets`: the entry to this package.

Requests go to the parts of a shard: `members` decides on JoinGroup, SyncGroup, Heartbeat and
LeaveGroup, `consumers` on ConsumerGroupHeartbeat, `share` on ShareGroupHeartbeat, `streams` on
StreamsGroupHeartbeat, `offset_requests` on offsets and deletions.
Durable state comes from records: `replay` takes them while the log is loaded, `committed` takes the
shard's own records after each append, in order. Rebalances are soft state that is ahead of the log:
the committed record of a group that is in memory does not change it; the record is for the next
coordinator.

Operations marked *exclusive* decide on durable state. The driver runs them only while no append is
running, and decides nothing else until their records are committed. The operations of consumer
groups (KIP-848), share groups and streams groups are exclusive, so these have no durable state that
is ahead of the log.
Members that only take their own steps to the target assignment share appends: each step depends on
durable state alone.
"""

from collections.abc import Callable, Sequence
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import UuidSource, uuid_hex_text, uuid_text
from spindle.coordinator.classic.classic_group import ClassicGroup, GroupState
from spindle.coordinator.classic.group_record import group_of
from spindle.coordinator.classic.rebalance import ClassicRebalance, answer_parked, keep_alive
from spindle.coordinator.classic.requests import ClassicGroupRequests
from spindle.coordinator.classic.static_rejoin import finish_static_rejoin
from spindle.coordinator.config import (
    ConsumerGroupConfig,
    GroupCoordinatorConfig,
    ShareGroupConfig,
    StreamsGroupConfig,
)
from spindle.coordinator.consumer.classic_members import ClassicMembers
from spindle.coordinator.consumer.coordinator import CONSUMER_TIMERS, ConsumerGroups
from spindle.coordinator.consumer.records import ConsumerGroupRecord
from spindle.coordinator.coordinator_result import (
    AssignmentStored,
    Completion,
    EndOfTransaction,
    GroupResult,
    StaticMemberStored,
    TimerKey,
    Transaction,
)
from spindle.coordinator.group_table import GroupTable
from spindle.coordinator.offset_requests import OffsetRequests
from spindle.coordinator.offset_store import OffsetStore
from spindle.coordinator.ports import ShardRecordFormat
from spindle.coordinator.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    OffsetRecord,
    encode_record,
    parse_record,
)
from spindle.coordinator.share.group_records import ShareGroupRecord
from spindle.coordinator.share.heartbeat import ShareGroups
from spindle.coordinator.streams.heartbeat import STREAMS_TIMERS, StreamsGroups
from spindle.coordinator.streams.records import StreamsGroupRecord
from spindle.protocol.records.batch import NO_PRODUCER_ID

GROUP_RECORDS: Final[ShardRecordFormat[CoordinatorRecord]] = ShardRecordFormat(
    encode_record, parse_record, base_sequence=0
)
_EXCLUSIVE_TIMERS: Final = frozenset(
    {"expiration", "share_session", *CONSUMER_TIMERS, *STREAMS_TIMERS}
)


class GroupShard:
    """Groups and offsets of one partition. Only one driver may use it."""

    __slots__ = (
        "_classic",
        "_classic_members",
        "consumers",
        "groups",
        "offset_requests",
        "offsets",
        "share",
        "streams",
    )

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        new_uuid: UuidSource,
        config_of: Callable[[str], ConsumerGroupConfig] | None = None,
        share_config_of: Callable[[str], ShareGroupConfig] | None = None,
        streams_config_of: Callable[[str], StreamsGroupConfig] | None = None,
    ) -> None:
        """Create an empty shard.

        Args:
            new_uuid: returns the random part of a member id.
            config_of: returns the settings that a consumer group has now; None if all groups have
                those of `config`.
            share_config_of: the same for share groups.
            streams_config_of: the same for streams groups.
        """
        self.groups = GroupTable(config, config_of, share_config_of, streams_config_of)
        self.offsets = OffsetStore()
        self.offset_requests = OffsetRequests(self.groups, self.offsets)
        self.consumers = ConsumerGroups(self.groups, lambda: uuid_text(new_uuid()))
        self.share = ShareGroups(self.groups)
        self.streams = StreamsGroups(self.groups)
        self._classic = ClassicGroupRequests(self.groups, lambda: uuid_hex_text(new_uuid()))
        self._classic_members = ClassicMembers(self.groups, lambda: uuid_text(new_uuid()))

    def members(self, group_id: str) -> ClassicGroupRequests | ClassicMembers:
        """Return the handler of requests from classic members of the group.

        In a consumer group these requests are exclusive.
        """
        is_consumer_group = self.groups.serves_consumers(group_id)
        return self._classic_members if is_consumer_group else self._classic

    # ------------------------------------------------------------ time

    def on_timer(self, key: TimerKey, out: GroupResult) -> None:
        """Handle a timer that fired."""
        if key.kind == "expiration":
            self.offset_requests.expire(out)
            self.offset_requests.start_expiration_timer(out)
        elif key.kind in CONSUMER_TIMERS:
            self.consumers.on_timer(key, out)
        elif key.kind == "share_session":
            self.share.on_timer(key, out)
        elif key.kind in STREAMS_TIMERS:
            self.streams.on_timer(key, out)
        elif key.kind == "heartbeat":
            self._classic.expire_session(key.group_id, key.member_id, out)
        elif (group := self.groups.get(key.group_id)) is not None:
            rebalance = ClassicRebalance(group, self.groups.config, out)
            if key.kind == "join":
                rebalance.on_join_timer()
            else:
                rebalance.on_sync_timer()

    def is_exclusive_timer(self, key: TimerKey) -> bool:
        """Return True if the timer's operation is exclusive."""
        return key.kind in _EXCLUSIVE_TIMERS

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
        elif isinstance(record, ShareGroupRecord):
            self.groups.replay_share(record)
        elif isinstance(record, StreamsGroupRecord):
            self.groups.replay_streams(record)
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
        if group is None and self.groups.offset_owner(group_id) is None:
            # Offsets without a group record belong to a simple group, which is always Empty.
            group = self.groups.create(group_id, committed.commit_timestamp_ms)
        if group is not None:
            group.is_stored = True
        if producer_id == NO_PRODUCER_ID:
            self.offsets.put(group_id, partition, committed)
        else:
            self.offsets.put_pending(producer_id, group_id, partition, committed)

    def loaded(self, out: GroupResult) -> None:
        """Start the members' session timers after loading.

        Rebalance groups over `group.max.size`, and groups whose last record says that it is due.
        """
        for group in self.groups:
            self._begin(group, out)
        self.consumers.loaded(out)
        self.share.loaded(out)
        self.streams.loaded(out)
        self.offset_requests.start_expiration_timer(out)

    def _begin(self, group: ClassicGroup, out: GroupResult) -> None:
        """Start the session timers of a group that was read from its record."""
        for member in group.members.values():
            keep_alive(group, member, out)
        if group.is_rebalance_due or len(group.members) > self.groups.config.max_size:
            ClassicRebalance(group, self.groups.config, out).prepare()

    def unloaded(self, out: GroupResult) -> None:
        """Answer every parked request with NOT_COORDINATOR; the shard must not be used any more."""
        for group in self.groups:
            group.transition_to(GroupState.DEAD, out.now_ms)
            for member in group.members.values():
                answer_parked(group, member, ErrorCode.NOT_COORDINATOR, out)

    def committed(
        self,
        records: Sequence[CoordinatorRecord],
        base_offset: int,
        transaction: Transaction,
        out: GroupResult,
    ) -> None:
        """Apply a batch of this shard's own records, committed from `base_offset` on."""
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
            elif isinstance(record, ShareGroupRecord):
                self.groups.replay_share(record)
            elif isinstance(record, StreamsGroupRecord):
                self.groups.replay_streams(record)
            else:
                self._committed_group(record, out)

    def _committed_group(self, record: GroupRecord, out: GroupResult) -> None:
        group = self.groups.get(record.group_id)
        if record.value is None:
            if self.groups.remove(record.group_id) is not None:
                out.cancel_timer(TimerKey("join", record.group_id))
                out.cancel_timer(TimerKey("sync", record.group_id))
        elif group is not None:
            group.is_stored = True
        else:
            # The group was removed before its record was committed. Restart its members' session
            # timers.
            group = group_of(record)
            self.groups.put(group)
            self._begin(group, out)

    def failed(self, records: Sequence[CoordinatorRecord], _: GroupResult) -> None:
        """Let members whose steps were not appended take them again.

        Completions revert what the other records would have stored.
        """
        for record in records:
            if isinstance(record, ConsumerGroupRecord):
                self.consumers.not_appended(record)

    def complete(self, completion: Completion, code: ErrorCode, out: GroupResult) -> None:
        """Finish what waited for an append that ended with `code` (NONE: it is committed)."""
        if isinstance(completion, AssignmentStored):
            self._classic.finish_assignment(completion, code, out)
        elif isinstance(completion, StaticMemberStored):
            group = self.groups.get(completion.group_id)
            finish_static_rejoin(group, completion, code, out)
        elif code is not ErrorCode.NONE:
            self._undo_creation(completion.group_id, code, out)

    def _undo_creation(self, group_id: str, code: ErrorCode, out: GroupResult) -> None:
        group = self.groups.get(group_id)
        if group is None or group.is_stored:
            return
        self.groups.remove(group_id)
        for member_id in [*group.members, *group.pending_joins]:
            out.cancel_timer(TimerKey("heartbeat", group_id, member_id))
        out.cancel_timer(TimerKey("join", group_id))
        out.cancel_timer(TimerKey("sync", group_id))
        for member in group.members.values():
            answer_parked(group, member, code, out)

    def check(self) -> None:
        """Assert the invariants of all groups and of the offsets (for tests and the simulator)."""
        for group in self.groups:
            group.check()
        for consumer_group in self.groups.consumer.values():
            consumer_group.check()
        for share_group in self.groups.share.values():
            share_group.check()
        for streams_group in self.groups.streams.values():
            streams_group.check()
        self.offsets.check()
