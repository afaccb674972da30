"""A member of a consumer group of the classic protocol, with the range assignor.

It has no thread of its own: the caller heartbeats between polls, commits, and joins again after a
heartbeat that reports a rebalance.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from spindle.client.admin.coordinators import find_coordinator
from spindle.client.admin.groups import commit_offsets, committed_offsets, read_assignment
from spindle.client.blocking.client import WireClient
from spindle.client.errors import raise_for
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.codec import decode, encode
from spindle.protocol.messages.group_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from spindle.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_TYPE: Final = "consumer"
_ASSIGNOR: Final = "range"
_FORMAT_VERSION: Final = 0
_VERSION_PREFIX: Final = _FORMAT_VERSION.to_bytes(2, "big")
_VERSION_BYTES: Final = 2
_SESSION_TIMEOUT_MS: Final = 45_000
_REBALANCE_TIMEOUT_MS: Final = 300_000
_REJOIN: Final = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


class BlockingGroupMember:
    """A member of a group.

    Args:
        topics: The topics to read.
    """

    def __init__(self, client: WireClient, group_id: str, topics: Sequence[str]) -> None:
        self._client = client
        self._group_id = group_id
        self._topics = sorted(topics)
        self._member_id = ""
        self._generation = -1

    def join(self) -> dict[TopicPartition, int | None]:
        """Join the next generation; return its partitions with their committed offsets.

        Raises:
            ApiError: the coordinator refused for good.
            ClientError: no broker could be asked.
        """
        while True:
            try:
                joined = self._client.retrying(self._join)
                assigned = self._client.retrying(lambda j=joined: self._sync(j))  # type: ignore[misc]
            except ApiError as error:
                if error.code not in _REJOIN:
                    raise
                self._forget(error.code)
                continue
            committed = committed_offsets(self._client, self._group_id)
            return {
                partition: committed[partition].offset if partition in committed else None
                for partition in assigned
            }

    def heartbeat(self) -> bool:
        """Send a heartbeat; return False if the member has to join again.

        Raises:
            ApiError: the coordinator refused for good.
            ClientError: no broker could be asked.
        """
        request = HeartbeatRequest(
            group_id=self._group_id, generation_id=self._generation, member_id=self._member_id
        )

        def attempt() -> ErrorCode:
            coordinator = find_coordinator(self._client, self._group_id)
            answer = self._client.ask(request, HeartbeatResponse, broker=coordinator)
            code = ErrorCode(answer.error_code)
            if code not in _REJOIN:
                raise_for(answer.error_code, "Heartbeat")
            return code

        code = self._client.retrying(attempt)
        self._forget(code)
        return code is ErrorCode.NONE

    def commit(self, positions: Mapping[TopicPartition, int]) -> None:
        """Commit offsets of the group; do nothing if a rebalance has begun.

        Raises:
            ApiError: the coordinator refused for good.
            ClientError: no broker could be asked.
        """
        try:
            commit_offsets(
                self._client,
                self._group_id,
                positions,
                generation=self._generation,
                member_id=self._member_id,
            )
        except ApiError as error:
            if error.code not in _REJOIN:
                raise

    def leave(self) -> None:
        """Leave the group, so that the other members get the partitions at once.

        Raises:
            ClientError: no broker could be asked.
        """
        request = LeaveGroupRequest(
            group_id=self._group_id,
            member_id=self._member_id,
            members=[LeaveGroupRequest.MemberIdentity(member_id=self._member_id)],
        )
        coordinator = find_coordinator(self._client, self._group_id)
        self._client.ask(request, LeaveGroupResponse, broker=coordinator)

    def _forget(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id, self._generation = "", -1

    def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=list(self._topics), user_data=None)
        metadata = _VERSION_PREFIX + encode(subscription, _FORMAT_VERSION)
        protocol = JoinGroupRequest.JoinGroupRequestProtocol(name=_ASSIGNOR, metadata=metadata)
        while True:
            request = JoinGroupRequest(
                group_id=self._group_id,
                session_timeout_ms=_SESSION_TIMEOUT_MS,
                rebalance_timeout_ms=_REBALANCE_TIMEOUT_MS,
                member_id=self._member_id,
                protocol_type=_PROTOCOL_TYPE,
                protocols=[protocol],
            )
            answer = self._client.ask(
                request,
                JoinGroupResponse,
                broker=find_coordinator(self._client, self._group_id),
                wait_ms=_REBALANCE_TIMEOUT_MS,
            )
            if ErrorCode(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = answer.member_id
                continue
            raise_for(answer.error_code, f"JoinGroup {self._group_id!r}")
            self._member_id, self._generation = answer.member_id, answer.generation_id
            return answer

    def _sync(self, joined: JoinGroupResponse) -> tuple[TopicPartition, ...]:
        assignments = self._assign(joined) if joined.leader == self._member_id else {}
        request = SyncGroupRequest(
            group_id=self._group_id,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_ASSIGNOR,
            assignments=[
                SyncGroupRequest.SyncGroupRequestAssignment(member_id=member, assignment=data)
                for member, data in assignments.items()
            ],
        )
        answer = self._client.ask(
            request,
            SyncGroupResponse,
            broker=find_coordinator(self._client, self._group_id),
            wait_ms=_REBALANCE_TIMEOUT_MS,
        )
        raise_for(answer.error_code, f"SyncGroup {self._group_id!r}")
        return read_assignment(answer.assignment)

    def _assign(self, joined: JoinGroupResponse) -> dict[str, bytes]:
        wanted = {}
        for member in joined.members:
            version = int.from_bytes(member.metadata[:_VERSION_BYTES], "big", signed=True)
            known = min(version, ConsumerProtocolSubscription.LAST_VERSION)
            subscription, _ = decode(
                ConsumerProtocolSubscription, known, member.metadata, _VERSION_BYTES
            )
            wanted[member.member_id] = list(subscription.topics)
        names = sorted({name for topics in wanted.values() for name in topics})
        view = self._client.metadata(names)
        counts = {name: len(topic.partitions) for name, topic in view.topics.items()}
        return {
            member: _VERSION_PREFIX + encode(_assignment(partitions), _FORMAT_VERSION)
            for member, partitions in range_assignment(wanted, counts).items()
        }


def range_assignment(
    wanted: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[TopicPartition]]:
    """Assign each topic's partitions in runs to its members; the first runs are longer by one.

    Args:
        wanted: Topics by member.
        counts: Partitions by topic; a missing topic has none.
    """
    assigned: dict[str, list[TopicPartition]] = {member: [] for member in sorted(wanted)}
    for topic, count in sorted(counts.items()):
        members = [member for member in assigned if topic in wanted[member]]
        if not members:
            continue
        share, longer = divmod(count, len(members))
        start = 0
        for number, member in enumerate(members):
            end = start + share + (number < longer)
            assigned[member] += [TopicPartition(topic, p) for p in range(start, end)]
            start = end
    return assigned


def _assignment(partitions: Sequence[TopicPartition]) -> ConsumerProtocolAssignment:
    topics: dict[str, list[int]] = {}
    for name, partition in partitions:
        topics.setdefault(name, []).append(partition)
    return ConsumerProtocolAssignment(
        assigned_partitions=[
            ConsumerProtocolAssignment.TopicPartition(topic=name, partitions=numbers)
            for name, numbers in topics.items()
        ],
        user_data=None,
    )
