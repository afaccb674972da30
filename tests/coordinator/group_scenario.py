"""A shard with a virtual clock and a log in memory, for tests that tell a story about a group.

The scenario does the driver's work: it keeps timers, appends records, reports commits and collects
answers. After `hold()`, appends stay under way until `commit()` or `fail(code)`.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.coordinator.append_errors import coordinator_error
from spindle.coordinator.classic.classic_group import ClassicGroup
from spindle.coordinator.classic.requests import ClassicGroupRequests
from spindle.coordinator.config import ConsumerGroupConfig, GroupCoordinatorConfig
from spindle.coordinator.consumer.classic_members import ClassicMembers
from spindle.coordinator.coordinator_result import Client, GroupRequest, GroupResult, TimerKey
from spindle.coordinator.records import (
    CommittedOffset,
    CoordinatorRecord,
    GroupRecord,
    encode_record,
    parse_record,
)
from spindle.coordinator.shard import GroupShard
from spindle.coordinator.timers import TimerQueue
from spindle.coordinator.transactional_offsets import commit_transactional_offsets
from spindle.protocol.codec import encode
from spindle.protocol.message import Message
from spindle.protocol.messages.coordinator_records import GroupMetadataValue
from spindle.protocol.messages.delete_groups import DeleteGroupsResponse
from spindle.protocol.messages.group_protocol import ConsumerProtocolSubscription
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from spindle.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

GROUP = "orders"
SESSION_MS = 10_000
REBALANCE_MS = 60_000
DELAY_MS = 3_000
START_MS = 1_700_000_000_000

Protocols = tuple[tuple[str, bytes], ...]


def subscription(*topics: str) -> bytes:
    """Return the metadata of a consumer that subscribes to these topics."""
    return b"\0\0" + encode(ConsumerProtocolSubscription(topics=list(topics)), 0)


RANGE: Protocols = (("range", subscription("t")),)


class Scenario:
    """One shard, its log, its clock and the answers to its requests by token."""

    def __init__(self, config: GroupCoordinatorConfig | None = None) -> None:
        self.config = config or GroupCoordinatorConfig()
        self.now_ms = START_MS
        self.log: list[CoordinatorRecord] = []
        self.answers: dict[str, Any] = {}
        self.open: set[str] = set()
        self.held: list[GroupResult] | None = None
        self._ids = 0
        self._tokens = 0
        self.start()

    def consumer_config_of(self, _: str) -> ConsumerGroupConfig:
        """Return the settings of consumer groups."""
        return self.config.consumer

    def start(self) -> None:
        """Load the shard from the log, as a newly elected coordinator does."""
        self.open.clear()
        self.shard = GroupShard(self.config, self._new_uuid, self.consumer_config_of)
        self.timers: TimerQueue[TimerKey] = TimerQueue()
        for offset, record in enumerate(self.log):
            key, value = encode_record(record)
            parsed = parse_record(key, value, offset)
            assert parsed is not None
            self.shard.replay(parsed)
        self._run(self.shard.loaded)

    def _new_uuid(self) -> Uuid:
        self._ids += 1
        return self._ids.to_bytes(16, "big")

    def _token(self) -> str:
        self._tokens += 1
        return f"request{self._tokens}"

    def _ask(self, operation: Callable[[str, GroupResult], Message | None]) -> str:
        """Send a request and return its token."""
        token = self._token()
        out = GroupResult(self.now_ms)
        response = operation(token, out)
        if response is not None:
            out.answer_after_commit(token, response)
        self.open.add(token)
        self._execute(out)
        return token

    def _members(self, group_id: str) -> ClassicGroupRequests | ClassicMembers:
        return self.shard.members(group_id)

    def _run(self, operation: Callable[..., None], *arguments: Any) -> None:
        """Run an operation that no request waits for."""
        out = GroupResult(self.now_ms)
        operation(*arguments, out)
        self._execute(out)

    def lost_requests(self) -> set[str]:
        """Return the unanswered requests that are neither parked nor waiting for an append."""
        kept: set[Any] = set()
        for group in self.shard.groups:
            for member in group.members.values():
                kept |= {member.awaiting_join, member.awaiting_sync}
        for outcome in self.held or ():
            kept |= {token for token, _ in outcome.answers_after_commit}
        return self.open - kept

    def _answer(self, token: object, answer: Any) -> None:
        assert token in self.open, f"{token} was answered twice"
        self.open.remove(str(token))
        self.answers[str(token)] = answer

    # ------------------------------------------------------------ the driver's part

    def _execute(self, outcome: GroupResult) -> None:
        for change in outcome.timers:
            self.timers.apply(change)
        for token, response in outcome.answers:
            self._answer(token, response)
        if outcome.records:
            if self.held is None:
                self._finish(outcome, ErrorCode.NONE)
            else:
                self.held.append(outcome)
        else:
            assert not outcome.answers_after_commit
            assert not outcome.completions
        self.shard.check()

    def _finish(self, outcome: GroupResult, code: ErrorCode) -> None:
        if code is ErrorCode.NONE:
            self._run(self.shard.committed, outcome.records, len(self.log), outcome.transaction)
            self.log += outcome.records
        for token, response in outcome.answers_after_commit:
            self._answer(token, response if code is ErrorCode.NONE else ApiError(code))
        for completion in outcome.completions:
            self._run(self.shard.complete, completion, code)

    def hold(self) -> None:
        """Let later appends stay under way."""
        self.held = []

    def commit(self) -> None:
        """Commit all appends that are under way."""
        held, self.held = self.held or [], None
        for outcome in held:
            self._finish(outcome, ErrorCode.NONE)

    def fail(self, code: ErrorCode) -> None:
        """Let all appends that are under way fail with an error of the log."""
        held, self.held = self.held or [], None
        for outcome in held:
            self._finish(outcome, coordinator_error(code))

    def advance(self, duration_ms: int) -> None:
        """Advance the clock; timers fire in order, on average at most one per ms."""
        end_ms = self.now_ms + duration_ms
        fired = 0
        while (next_ms := self.timers.next_ms()) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            while (key := self.timers.pop_due(self.now_ms)) is not None:
                fired += 1
                assert fired <= duration_ms + 100, f"{key} fires without end"
                self._run(self.shard.on_timer, key)
        self.now_ms = end_ms

    def advance_until_joined(self, token: str) -> None:
        """Advance the clock just far enough that a join is answered."""
        while self.waits(token):
            self.advance(DELAY_MS)

    # ------------------------------------------------------------ requests

    def ask_join(
        self,
        member_id: str = "",
        *,
        instance_id: str | None = None,
        protocols: Protocols = RANGE,
        protocol_type: str = "consumer",
        version: int = 9,
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        client_id: str = "app",
        group: str = GROUP,
    ) -> str:
        """Send a JoinGroup and return its token."""
        request = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocols=[
                JoinGroupRequest.JoinGroupRequestProtocol(name=name, metadata=metadata)
                for name, metadata in protocols
            ],
        )
        client = Client(client_id, "/127.0.0.1", version)
        return self._ask(
            lambda token, out: self._members(group).join(GroupRequest(token, request, out, client))
        )

    def join(self, **arguments: Any) -> tuple[str, str]:
        """Join as a new dynamic member, in the two steps of KIP-394; return member id and token."""
        first = self.joined(self.ask_join(**arguments))
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        return first.member_id, self.ask_join(first.member_id, **arguments)

    def ask_sync(
        self,
        member_id: str,
        generation: int,
        assignment: dict[str, bytes] | None = None,
        *,
        instance_id: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        group: str = GROUP,
    ) -> str:
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=m, assignment=a)
                for m, a in (assignment or {}).items()
            ],
        )
        return self._ask(
            lambda token, out: self._members(group).sync(GroupRequest(token, request, out))
        )

    def heartbeat(
        self,
        member_id: str,
        generation: int,
        *,
        instance_id: str | None = None,
        group: str = GROUP,
    ) -> ErrorCode:
        request = HeartbeatRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance_id,
        )
        try:
            token = self._ask(
                lambda token, out: self._members(group).heartbeat(GroupRequest(token, request, out))
            )
        except ApiError as error:
            return error.code
        return ErrorCode(self.answers.pop(token).error_code)

    def ask_leave(self, *members: str | tuple[str, str | None], group: str = GROUP) -> str:
        """Leave with member ids, or pairs of member id and instance id; return the token."""
        pairs = [(m, None) if isinstance(m, str) else m for m in members]
        request = LeaveGroupRequest(
            group_id=group,
            members=[
                LeaveGroupRequest.MemberIdentity(member_id=m, group_instance_id=i) for m, i in pairs
            ],
        )
        return self._ask(
            lambda token, out: self._members(group).leave(GroupRequest(token, request, out))
        )

    def leave(self, *members: str | tuple[str, str | None], group: str = GROUP) -> list[ErrorCode]:
        """Leave as with `ask_leave`, and return the error code of each member."""
        response: LeaveGroupResponse = self.answers.pop(self.ask_leave(*members, group=group))
        return [ErrorCode(member.error_code) for member in response.members]

    def ask_commit(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 9,
        topic_id: bytes = ZERO_UUID,
        group: str = GROUP,
    ) -> str:
        topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            retention_time_ms=retention_ms,
            topics=[
                topic_type(
                    name=topic,
                    topic_id=topic_id,
                    partitions=[
                        topic_type.OffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        client = Client("app", "/127.0.0.1", version)
        return self._ask(
            lambda token, out: self.shard.offset_requests.commit(
                GroupRequest(token, request, out, client)
            )
        )

    def commit_offsets(self, offsets: dict[tuple[str, int], int], **arguments: Any) -> ErrorCode:
        """Commit offsets and return the one error code of all partitions."""
        try:
            token = self.ask_commit(offsets, **arguments)
        except ApiError as error:
            return error.code
        response: OffsetCommitResponse = self.answers.pop(token)
        (code,) = {p.error_code for topic in response.topics for p in topic.partitions}
        return ErrorCode(code)

    def add_offsets(
        self,
        offsets: dict[tuple[str, int], int],
        *,
        producer_id: int = 7,
        member_id: str = "",
        generation: int = -1,
        instance_id: str | None = None,
        metadata: str = "",
        topic_ids: dict[str, bytes] | None = None,
        group: str = GROUP,
        version: int = 5,
    ) -> ErrorCode:
        """Commit offsets in a producer's transaction; return the one error of all partitions."""
        topic_type = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        request = TxnOffsetCommitRequest(
            transactional_id="tx",
            group_id=group,
            producer_id=producer_id,
            generation_id_or_member_epoch=generation,
            member_id=member_id,
            group_instance_id=instance_id,
            topics=[
                topic_type(
                    name=topic,
                    topic_id=(topic_ids or {}).get(topic, ZERO_UUID),
                    partitions=[
                        topic_type.TxnOffsetCommitRequestPartition(
                            partition_index=partition,
                            committed_offset=offset,
                            committed_metadata=metadata,
                        )
                    ],
                )
                for (topic, partition), offset in offsets.items()
            ],
        )
        client = Client("", "", version)
        try:
            token = self._ask(
                lambda token, out: commit_transactional_offsets(
                    self.shard.groups, GroupRequest(token, request, out, client)
                )
            )
        except ApiError as error:
            return error.code
        response: TxnOffsetCommitResponse = self.answers.pop(token)
        (code,) = {p.error_code for topic in response.topics for p in topic.partitions}
        return ErrorCode(code)

    def fetch(
        self,
        *partitions: tuple[str, int],
        require_stable: bool = False,
        topic_id: bytes = ZERO_UUID,
        group: str = GROUP,
    ) -> dict[tuple[str, int], int | ErrorCode]:
        """Return the committed offsets of these partitions, or of all; -1 where there is none."""
        request = OffsetFetchRequest.OffsetFetchRequestGroup(
            group_id=group,
            topics=[
                OffsetFetchRequest.OffsetFetchRequestGroup.OffsetFetchRequestTopics(
                    name=topic, topic_id=topic_id, partition_indexes=[partition]
                )
                for topic, partition in partitions
            ]
            if partitions
            else None,
        )
        fetched = self.shard.offset_requests.fetch(request, require_stable=require_stable)
        return {
            (topic.name, p.partition_index): ErrorCode(p.error_code)
            if p.error_code
            else p.committed_offset
            for topic in fetched.topics
            for p in topic.partitions
        }

    def delete_offsets(
        self, *partitions: tuple[str, int], group: str = GROUP
    ) -> list[ErrorCode] | ErrorCode:
        topic_type = OffsetDeleteRequest.OffsetDeleteRequestTopic
        request = OffsetDeleteRequest(
            group_id=group,
            topics=[
                topic_type(
                    name=topic,
                    partitions=[topic_type.OffsetDeleteRequestPartition(partition_index=partition)],
                )
                for topic, partition in partitions
            ],
        )
        try:
            token = self._ask(lambda _, out: self.shard.offset_requests.delete(request, out))
        except ApiError as error:
            return error.code
        response: OffsetDeleteResponse = self.answers.pop(token)
        return [ErrorCode(p.error_code) for t in response.topics for p in t.partitions]

    def delete_groups(self, *group_ids: str) -> list[ErrorCode]:
        token = self._ask(lambda _, out: self.shard.offset_requests.delete_groups(group_ids, out))
        response: DeleteGroupsResponse = self.answers.pop(token)
        return [ErrorCode(result.error_code) for result in response.results]

    # ------------------------------------------------------------ looking

    def joined(self, token: str) -> JoinGroupResponse:
        """Return the answer to a join, which must have come."""
        response: JoinGroupResponse = self.answers[token]
        return response

    def synced(self, token: str) -> SyncGroupResponse:
        response: SyncGroupResponse = self.answers[token]
        return response

    def waits(self, token: str) -> bool:
        """Return True if the request is still parked."""
        return token not in self.answers

    def group(self, group_id: str = GROUP) -> ClassicGroup:
        group = self.shard.groups.get(group_id)
        assert group is not None
        return group

    def offset(self, topic: str, partition: int, group: str = GROUP) -> CommittedOffset | None:
        return self.shard.offsets.get(group, TopicPartition(topic, partition))

    def stable_group(self, count: int = 1, **arguments: Any) -> list[str]:
        """Make a Stable group of `count` members at generation 1; the first returned id is the
        leader."""
        joins = [self.join(**arguments) for _ in range(count)]
        self.advance_until_joined(joins[0][1])
        self.sync_all([member_id for member_id, _ in joins])
        return [member_id for member_id, _ in joins]

    def sync_all(self, member_ids: list[str], group: str = GROUP) -> list[str]:
        """Send SyncGroup for all members, with an assignment from the leader; return the tokens."""
        state = self.group(group)
        given = {member_id: f"for {member_id}".encode() for member_id in member_ids}
        return [
            self.ask_sync(
                member_id,
                state.generation_id,
                given if member_id == state.leader_id else None,
                group=group,
            )
            for member_id in member_ids
        ]


def with_config(**changes: Any) -> Scenario:
    """Start a scenario with other settings."""
    return Scenario(replace(GroupCoordinatorConfig(), **changes))


def last_generation(s: Scenario) -> GroupMetadataValue:
    """Return what the last record of the log says about a classic group."""
    record = s.log[-1]
    assert isinstance(record, GroupRecord)
    assert record.value is not None
    return record.value
