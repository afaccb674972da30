"""Handlers of the group and offset APIs, at every version of requests and answers.

Requests and responses go through the codec at their version, which proves that the version can
carry the answer.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from coordinator_log import (
    Broker,
    context,
    image_of,
    start_broker,
    topic,
)

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC
from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Message
from spindle.protocol.messages.delete_groups import DeleteGroupsRequest
from spindle.protocol.messages.describe_groups import DescribeGroupsRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.heartbeat import HeartbeatRequest
from spindle.protocol.messages.join_group import JoinGroupRequest
from spindle.protocol.messages.leave_group import LeaveGroupRequest
from spindle.protocol.messages.list_groups import ListGroupsRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.offset_delete import OffsetDeleteRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest
from spindle.serving.handlers import committed_offsets
from spindle.serving.handlers import groups as handlers

R = TypeVar("R", bound=Message)
Handler = Callable[[Any, Any, Any], Awaitable[R]]

ID_T, ID_U, ID_GONE = b"t" * 16, b"u" * 16, b"g" * 16
TOPICS = (topic("t", ID_T, 2), topic("u", ID_U, 1))

CommitTopic = OffsetCommitRequest.OffsetCommitRequestTopic
CommitPartition = CommitTopic.OffsetCommitRequestPartition
FetchGroup = OffsetFetchRequest.OffsetFetchRequestGroup
FetchTopic = FetchGroup.OffsetFetchRequestTopics
OldFetchTopic = OffsetFetchRequest.OffsetFetchRequestTopic
DeleteTopic = OffsetDeleteRequest.OffsetDeleteRequestTopic


async def ask(broker: Broker, handler: Handler[R], version: int, request: Message) -> R:
    """Return the response as a client of that version decodes it."""
    received, _ = decode(type(request), version, encode(request, version))
    response = await handler(broker, context(version), received)
    read, _ = decode(type(response), version, encode(response, version))
    return read


async def loaded(**arguments: Any) -> Broker:
    broker = start_broker(*TOPICS, **arguments)
    await broker.groups.wait_loaded()
    return broker


def told(code: ErrorCode) -> Callable[[Any], bool]:
    return lambda response: bool(response.error_code == code)


# ---------------------------------------------------------------- FindCoordinator


@pytest.mark.parametrize("version", range(7))
async def test_coordinator_is_the_leader_of_the_groups_partition(version: int) -> None:
    broker = await loaded()
    request = FindCoordinatorRequest()
    if version < 4:
        request.key = "orders"
    else:
        request.coordinator_keys = ["orders"]
    response = await ask(broker, handlers.handle_find_coordinator, version, request)
    coordinator = response if version < 4 else response.coordinators[0]
    assert (coordinator.error_code, coordinator.node_id) == (ErrorCode.NONE, 1)
    assert (coordinator.host, coordinator.port) == ("broker-1", 9092)
    assert broker.created == []
    broker.groups.close()


async def test_coordinator_is_named_for_the_listener_of_the_request() -> None:
    broker = await loaded()
    request = FindCoordinatorRequest(coordinator_keys=["orders"])
    inside = context(4, listener="INSIDE")
    response = await handlers.handle_find_coordinator(broker, inside, request)
    assert (response.coordinators[0].host, response.coordinators[0].port) == ("inner", 9093)
    elsewhere = context(4, listener="OTHER")
    response = await handlers.handle_find_coordinator(broker, elsewhere, request)
    assert told(ErrorCode.COORDINATOR_NOT_AVAILABLE)(response.coordinators[0])
    broker.groups.close()


@pytest.mark.parametrize("is_quick", [True, False])
@pytest.mark.parametrize("version", [0, 1, 4, 6])
async def test_first_look_up_creates_the_topic(version: int, is_quick: bool) -> None:
    broker = await loaded(elect=False)
    broker.metadata.image = image_of()

    def create(name: str) -> None:
        broker.metadata.image = image_of(topic(name, b"o" * 16, 2))

    broker.on_create = create if is_quick else None
    request = FindCoordinatorRequest()
    if version < 4:
        request.key = "orders"
    else:
        request.coordinator_keys = ["orders"]
    response = await ask(broker, handlers.handle_find_coordinator, version, request)
    coordinator = response if version < 4 else response.coordinators[0]
    assert broker.created == [OFFSETS_TOPIC]
    code = ErrorCode.NONE if is_quick else ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (coordinator.error_code, coordinator.node_id) == (code, 1 if is_quick else -1)
    broker.groups.close()


@pytest.mark.parametrize("version", [1, 4])
async def test_a_transactional_producer_that_finds_no_coordinator_is_named_in_the_log(
    version: int, caplog: pytest.LogCaptureFixture
) -> None:
    broker = await loaded()
    request = FindCoordinatorRequest(key_type=1)
    if version < 4:
        request.key = "tx-1"
    else:
        request.coordinator_keys = ["tx-1"]
    await ask(broker, handlers.handle_find_coordinator, version, request)
    broker.groups.close()
    assert (
        "transactions have no coordinator: __transaction_state cannot be created, so "
        "init_transactions of transactional.id 'tx-1' times out"
    ) in caplog.text


async def test_a_group_named_twice_is_described_once_with_its_offsets() -> None:
    broker = await loaded()
    described = await ask(
        broker,
        handlers.handle_describe_groups,
        5,
        DescribeGroupsRequest(groups=["a", "b", "a"]),
    )
    assert [group.group_id for group in described.groups] == ["a", "b"]
    groups = [FetchGroup(group_id=name, topics=None) for name in ("a", "a")]
    fetched = await ask(
        broker, committed_offsets.handle_offset_fetch, 9, OffsetFetchRequest(groups=groups)
    )
    assert [group.error_code for group in fetched.groups] == [0, ErrorCode.INVALID_REQUEST]
    broker.groups.close()


async def test_the_topic_is_asked_for_once_however_many_keys_there_are() -> None:
    broker = await loaded(elect=False)
    broker.metadata.image = image_of()
    request = FindCoordinatorRequest(coordinator_keys=["a", "b", "c"])
    response = await ask(broker, handlers.handle_find_coordinator, 4, request)
    assert len(response.coordinators) == 3
    assert broker.created == [OFFSETS_TOPIC]
    broker.groups.close()


@pytest.mark.parametrize("leader", [-1, 2])
async def test_partition_without_a_live_leader_has_no_coordinator(leader: int) -> None:
    broker = await loaded()
    broker.metadata.image = image_of(topic(OFFSETS_TOPIC, b"o" * 16, 2, leader=leader))
    request = FindCoordinatorRequest(coordinator_keys=["a", "b"])
    response = await ask(broker, handlers.handle_find_coordinator, 4, request)
    assert [c.key for c in response.coordinators] == ["a", "b"]
    assert all(map(told(ErrorCode.COORDINATOR_NOT_AVAILABLE), response.coordinators))
    broker.metadata.image = image_of(topic(OFFSETS_TOPIC, b"o" * 16, 2), is_fenced=True)
    response = await ask(broker, handlers.handle_find_coordinator, 4, request)
    assert all(map(told(ErrorCode.COORDINATOR_NOT_AVAILABLE), response.coordinators))
    broker.groups.close()


async def test_share_groups_have_no_coordinator() -> None:
    broker = await loaded()
    request = FindCoordinatorRequest(coordinator_keys=["a"], key_type=2)
    response = await ask(broker, handlers.handle_find_coordinator, 6, request)
    assert told(ErrorCode.INVALID_REQUEST)(response.coordinators[0])
    broker.groups.close()


# ---------------------------------------------------------------- members


async def become_member(broker: Broker, version: int) -> str:
    """Join with any version and return the member id."""
    request = JoinGroupRequest(
        group_id="orders",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000 if version else -1,
        protocol_type="consumer",
        protocols=[JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"m")],
    )
    response = await ask(broker, handlers.handle_join_group, version, request)
    if version >= 4:
        assert told(ErrorCode.MEMBER_ID_REQUIRED)(response)
        assert response.protocol_name == (None if version >= 7 else "")
        request.member_id = response.member_id
        response = await ask(broker, handlers.handle_join_group, version, request)
    assert (response.error_code, response.generation_id) == (ErrorCode.NONE, 1)
    assert (response.leader, response.protocol_name) == (response.member_id, "range")
    assert response.protocol_type == ("consumer" if version >= 7 else None)
    assert [(m.member_id, m.metadata) for m in response.members] == [(response.member_id, b"m")]
    return response.member_id


@pytest.mark.parametrize("version", range(10))
async def test_member_of_every_version_joins_syncs_beats_and_leaves(version: int) -> None:
    moving = iter(range(10**12, 10**13, 1))
    broker = await loaded(clock=lambda: next(moving))
    member_id = await become_member(broker, version)
    timeouts = {
        m.rebalance_timeout_ms
        for shard in broker.groups.shards.values()
        for group in shard.shard.groups
        for m in group.members.values()
    }
    assert timeouts == {60_000 if version else 10_000}
    sync = SyncGroupRequest(
        group_id="orders",
        generation_id=1,
        member_id=member_id,
        assignments=[
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=member_id, assignment=b"p")
        ],
    )
    sync_version = min(version, 5)
    if sync_version >= 5:
        refused = await ask(broker, handlers.handle_sync_group, sync_version, sync)
        assert told(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)(refused)
        sync.protocol_type, sync.protocol_name = "consumer", "range"
    synced = await ask(broker, handlers.handle_sync_group, sync_version, sync)
    assert (synced.error_code, synced.assignment) == (ErrorCode.NONE, b"p")
    beat = HeartbeatRequest(group_id="orders", generation_id=1, member_id=member_id)
    beaten = await ask(broker, handlers.handle_heartbeat, min(version, 4), beat)
    assert told(ErrorCode.NONE)(beaten)
    leave_version = min(version, 5)
    leave = LeaveGroupRequest(group_id="orders")
    if leave_version < 3:
        leave.member_id = member_id
    else:
        leave.members = [LeaveGroupRequest.MemberIdentity(member_id=member_id)]
    left = await ask(broker, handlers.handle_leave_group, leave_version, leave)
    assert told(ErrorCode.NONE)(left)
    assert len(left.members) == (1 if leave_version >= 3 else 0)
    again = await ask(broker, handlers.handle_leave_group, leave_version, leave)
    person = again if leave_version < 3 else again.members[0]
    assert told(ErrorCode.UNKNOWN_MEMBER_ID)(person)
    beaten = await ask(broker, handlers.handle_heartbeat, min(version, 4), beat)
    assert told(ErrorCode.UNKNOWN_MEMBER_ID)(beaten)
    broker.groups.close()


@pytest.mark.parametrize("version", [2, 5])
async def test_leaving_a_group_that_does_not_exist(version: int) -> None:
    broker = await loaded()
    request = LeaveGroupRequest(group_id="nope")
    if version < 3:
        request.member_id = "x"
    else:
        request.members = [LeaveGroupRequest.MemberIdentity(member_id="x")]
    response = await ask(broker, handlers.handle_leave_group, version, request)
    top = ErrorCode.UNKNOWN_MEMBER_ID if version < 3 else ErrorCode.NONE
    assert told(top)(response)
    assert [m.error_code for m in response.members] == [25] * (version >= 3)
    broker.groups.close()


async def test_heartbeat_is_accepted_while_the_group_is_loading() -> None:
    broker = start_broker(*TOPICS)
    request = HeartbeatRequest(group_id="orders", generation_id=1, member_id="x")
    assert told(ErrorCode.NONE)(await ask(broker, handlers.handle_heartbeat, 4, request))
    await broker.groups.wait_loaded()
    response = await ask(broker, handlers.handle_heartbeat, 4, request)
    assert told(ErrorCode.UNKNOWN_MEMBER_ID)(response)
    broker.groups.close()


@pytest.mark.parametrize(
    ("handler", "version", "request_"),
    [
        (handlers.handle_join_group, 9, JoinGroupRequest(session_timeout_ms=10_000)),
        (handlers.handle_sync_group, 4, SyncGroupRequest()),
        (handlers.handle_heartbeat, 4, HeartbeatRequest()),
        (handlers.handle_leave_group, 5, LeaveGroupRequest()),
        (committed_offsets.handle_offset_delete, 0, OffsetDeleteRequest()),
    ],
)
async def test_empty_group_id_is_invalid(handler: Any, version: int, request_: Message) -> None:
    broker = await loaded()
    response = await ask(broker, handler, version, request_)
    assert told(ErrorCode.INVALID_GROUP_ID)(response)
    broker.groups.close()


@pytest.mark.parametrize(
    ("code", "named"),
    [
        (ErrorCode.INVALID_GROUP_ID, "m"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, "m"),
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, ""),
        (ErrorCode.NOT_COORDINATOR, ""),
    ],
)
async def test_a_refused_join_names_its_member_only_if_no_group_has_seen_it(
    monkeypatch: pytest.MonkeyPatch, code: ErrorCode, named: str
) -> None:
    broker = await loaded()

    async def refuse(*_: object) -> None:
        raise ApiError(code)

    monkeypatch.setattr(broker.groups, "join_group", refuse)
    request = JoinGroupRequest(group_id="orders", member_id="m")
    response = await ask(broker, handlers.handle_join_group, 9, request)
    assert told(code)(response)
    assert response.member_id == named
    broker.groups.close()


# ---------------------------------------------------------------- offsets


def commit_request(version: int) -> OffsetCommitRequest:
    """Return a commit for t-0, the missing t-9 and a partition of a topic that does not exist."""
    by_id = version >= 10
    t, gone = (CommitTopic(topic_id=ID_T), CommitTopic(topic_id=ID_GONE))
    if not by_id:
        t, gone = CommitTopic(name="t"), CommitTopic(name="gone")
    t.partitions = [
        CommitPartition(partition_index=0, committed_offset=7, committed_metadata="note"),
        CommitPartition(partition_index=9, committed_offset=8),
    ]
    gone.partitions = [CommitPartition(partition_index=0, committed_offset=9)]
    return OffsetCommitRequest(group_id="orders", topics=[t, gone])


def fetch_request(version: int) -> OffsetFetchRequest:
    """Return a fetch of t-0, t-1 and a partition of a topic that does not exist."""
    if version < 8:
        return OffsetFetchRequest(
            group_id="orders",
            topics=[
                OldFetchTopic(name="t", partition_indexes=[0, 1]),
                OldFetchTopic(name="gone", partition_indexes=[0]),
            ],
        )
    t = FetchTopic(partition_indexes=[0, 1])
    gone = FetchTopic(partition_indexes=[0])
    if version < 10:
        t.name, gone.name = "t", "gone"
    else:
        t.topic_id, gone.topic_id = ID_T, ID_GONE
    return OffsetFetchRequest(groups=[FetchGroup(group_id="orders", topics=[t, gone])])


@pytest.mark.parametrize("version", range(2, 11))
async def test_commit_of_every_version(version: int) -> None:
    broker = await loaded()
    request = commit_request(version)
    response = await ask(broker, committed_offsets.handle_offset_commit, version, request)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    missing = unknown if version < 10 else ErrorCode.UNKNOWN_TOPIC_ID
    codes = {
        (topic.name if version < 10 else topic.topic_id, p.partition_index): p.error_code
        for topic in response.topics
        for p in topic.partitions
    }
    t, gone = ("t", "gone") if version < 10 else (ID_T, ID_GONE)
    assert codes == {(t, 0): 0, (t, 9): unknown, (gone, 0): missing}
    assert len(response.topics) == 2
    fetched = await ask(broker, committed_offsets.handle_offset_fetch, 9, fetch_request(9))
    partition = fetched.groups[0].topics[0].partitions[0]
    assert (partition.committed_offset, partition.metadata) == (7, "note")
    broker.groups.close()


async def test_commit_that_names_a_topic_twice_answers_each_of_its_partitions() -> None:
    broker = await loaded()
    topics = [
        CommitTopic(name="t", partitions=[CommitPartition(partition_index=i, committed_offset=1)])
        for i in (8, 0, 9)
    ]
    request = OffsetCommitRequest(group_id="orders", topics=topics)
    response = await ask(broker, committed_offsets.handle_offset_commit, 9, request)
    indexes = [p.partition_index for topic in response.topics for p in topic.partitions]
    assert sorted(indexes) == [0, 8, 9]
    broker.groups.close()


async def test_commit_stores_the_topics_id_also_for_clients_that_name_it() -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 2, commit_request(2))
    (stored,) = [
        committed
        for shard in broker.groups.shards.values()
        for committed in shard.shard.offsets.of_group("orders").values()
    ]
    assert stored.topic_id == ID_T
    # The topic is created again under the same name; the offset belongs to the deleted one.
    broker.metadata.image = image_of(topic(OFFSETS_TOPIC, b"o" * 16, 2), topic("t", ID_GONE, 2))
    request = OffsetFetchRequest(
        groups=[
            FetchGroup(
                group_id="orders",
                topics=[FetchTopic(topic_id=ID_GONE, partition_indexes=[0])],
            )
        ]
    )
    response = await ask(broker, committed_offsets.handle_offset_fetch, 10, request)
    assert response.groups[0].topics[0].partitions[0].committed_offset == -1
    broker.groups.close()


async def test_commit_of_nothing_that_exists_asks_nobody() -> None:
    broker = start_broker(topic("another", ID_T, 1), elect=False)
    response = await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    codes = {p.error_code for topic in response.topics for p in topic.partitions}
    assert codes == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


async def test_refused_commit_has_its_error_on_every_partition() -> None:
    broker = await loaded(elect=False)
    response = await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    codes = [p.error_code for topic in response.topics for p in topic.partitions]
    assert sorted(codes) == [3, 3, ErrorCode.NOT_COORDINATOR]


@pytest.mark.parametrize("version", range(1, 11))
async def test_fetch_of_every_version(version: int) -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    response = await ask(
        broker, committed_offsets.handle_offset_fetch, version, fetch_request(version)
    )
    topics: Any = response.topics if version < 8 else response.groups[0].topics
    offsets = {
        (topic.name or topic.topic_id, p.partition_index): (p.committed_offset, p.error_code)
        for topic in topics
        for p in topic.partitions
    }
    if version < 10:
        assert offsets == {("t", 0): (7, 0), ("t", 1): (-1, 0), ("gone", 0): (-1, 0)}
    else:
        unknown = ErrorCode.UNKNOWN_TOPIC_ID
        assert offsets == {(ID_T, 0): (7, 0), (ID_T, 1): (-1, 0), (ID_GONE, 0): (-1, unknown)}
    broker.groups.close()


@pytest.mark.parametrize("version", [2, 7, 9, 10])
@pytest.mark.parametrize("asks_for_all", [True, False])
async def test_a_topic_that_is_created_again_has_no_offsets(
    version: int, asks_for_all: bool
) -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    broker.metadata.image = image_of(topic(OFFSETS_TOPIC, b"o" * 16, 2), topic("t", ID_GONE, 2))
    request = fetch_request(version)
    if asks_for_all:
        request.topics = None
        for group in request.groups:
            group.topics = None
    response = await ask(broker, committed_offsets.handle_offset_fetch, version, request)
    topics: Any = response.topics if version < 8 else response.groups[0].topics
    assert asks_for_all or topics
    assert {p.committed_offset for t in topics for p in t.partitions} <= {-1}
    broker.groups.close()


@pytest.mark.parametrize("version", [2, 7, 8, 10])
@pytest.mark.parametrize("is_gone", [True, False])
async def test_fetch_of_all_offsets(version: int, is_gone: bool) -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    if is_gone:
        broker.metadata.image = image_of(topic(OFFSETS_TOPIC, b"o" * 16, 2))
    if version < 8:
        request = OffsetFetchRequest(group_id="orders", topics=None)
    else:
        request = OffsetFetchRequest(groups=[FetchGroup(group_id="orders", topics=None)])
    response = await ask(broker, committed_offsets.handle_offset_fetch, version, request)
    topics: Any = response.topics if version < 8 else response.groups[0].topics
    shown = [(t.name or t.topic_id, t.partitions[0].committed_offset) for t in topics]
    name = "t" if version < 10 else ID_T
    assert shown == ([] if is_gone and version >= 10 else [(name, 7)])
    broker.groups.close()


@pytest.mark.parametrize("version", [1, 2, 7, 8, 10])
async def test_fetch_error_is_where_the_version_has_it(version: int) -> None:
    broker = await loaded(elect=False)
    request = fetch_request(version)
    response = await ask(broker, committed_offsets.handle_offset_fetch, version, request)
    code = ErrorCode.NOT_COORDINATOR
    if version == 1:
        codes = [p.error_code for topic in response.topics for p in topic.partitions]
        assert codes == [code] * 3
    else:
        assert told(code)(response if version < 8 else response.groups[0])


async def test_fetch_of_several_groups() -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    asked = [FetchTopic(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(
        groups=[FetchGroup(group_id=g, topics=asked) for g in ("orders", "nope")],
        require_stable=True,
    )
    response = await ask(broker, committed_offsets.handle_offset_fetch, 8, request)
    offsets_ = [g.topics[0].partitions[0].committed_offset for g in response.groups]
    assert offsets_ == [7, -1]
    broker.groups.close()


async def test_offset_deletion_is_answered_for_every_partition() -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    request = OffsetDeleteRequest(
        group_id="orders",
        topics=[
            DeleteTopic(
                name=name,
                partitions=[
                    DeleteTopic.OffsetDeleteRequestPartition(partition_index=i) for i in indexes
                ],
            )
            for name, indexes in (("t", (0, 9)), ("gone", (0,)))
        ],
    )
    response = await ask(broker, committed_offsets.handle_offset_delete, 0, request)
    codes = {
        (topic.name, p.partition_index): p.error_code
        for topic in response.topics
        for p in topic.partitions
    }
    assert codes == {("t", 0): 0, ("t", 9): 3, ("gone", 0): 3}
    request.group_id = "nope"
    response = await ask(broker, committed_offsets.handle_offset_delete, 0, request)
    assert told(ErrorCode.GROUP_ID_NOT_FOUND)(response)
    assert response.topics == []
    broker.groups.close()


# ---------------------------------------------------------------- groups


@pytest.mark.parametrize("version", range(7))
async def test_groups_are_described(version: int) -> None:
    broker = await loaded()
    member_id = await become_member(broker, 3)
    request = DescribeGroupsRequest(
        groups=["orders", "nope"], include_authorized_operations=version >= 3
    )
    response = await ask(broker, handlers.handle_describe_groups, version, request)
    orders, nope = response.groups
    assert (orders.group_state, orders.protocol_type) == ("CompletingRebalance", "consumer")
    assert [m.member_id for m in orders.members] == [member_id]
    assert nope.group_state == "Dead"
    assert nope.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)
    operations = 0b1101_0100_1000 if version >= 3 else -(1 << 31)
    assert orders.authorized_operations == operations
    broker.groups.close()


@pytest.mark.parametrize("version", range(6))
async def test_groups_are_listed(version: int) -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    response = await ask(broker, handlers.handle_list_groups, version, ListGroupsRequest())
    (group,) = response.groups
    assert (group.group_id, group.protocol_type) == ("orders", "")
    assert group.group_state == ("Empty" if version >= 4 else "")
    assert group.group_type == ("classic" if version >= 5 else "")
    broker.groups.close()


async def test_listing_says_that_groups_are_loading() -> None:
    broker = start_broker(*TOPICS)
    response = await ask(broker, handlers.handle_list_groups, 5, ListGroupsRequest())
    assert told(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)(response)
    await broker.groups.wait_loaded()
    broker.groups.close()


@pytest.mark.parametrize("version", range(3))
async def test_groups_are_deleted_once(version: int) -> None:
    broker = await loaded()
    await ask(broker, committed_offsets.handle_offset_commit, 9, commit_request(9))
    request = DeleteGroupsRequest(groups_names=["orders", "nope", "orders"])
    response = await ask(broker, handlers.handle_delete_groups, version, request)
    codes = {result.group_id: result.error_code for result in response.results}
    assert codes == {"orders": 0, "nope": ErrorCode.GROUP_ID_NOT_FOUND}
    assert len(response.results) == 2
    broker.groups.close()


async def test_describing_and_deleting_say_when_the_coordinator_is_elsewhere() -> None:
    broker = start_broker(elect=False)
    described = await ask(
        broker, handlers.handle_describe_groups, 6, DescribeGroupsRequest(groups=["a"])
    )
    deleted = await ask(
        broker, handlers.handle_delete_groups, 2, DeleteGroupsRequest(groups_names=["a"])
    )
    assert told(ErrorCode.NOT_COORDINATOR)(described.groups[0])
    assert told(ErrorCode.NOT_COORDINATOR)(deleted.results[0])
