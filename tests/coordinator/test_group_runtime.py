"""Shards on the event loop: loading, resigning, group commit, exclusive operations, timers."""

import asyncio
import gc
import weakref
from dataclasses import replace
from typing import Any

import pytest
from coordinator_log import (
    CONFIG,
    Broker,
    MemoryLog,
    image_of,
    settle,
    standing_clock,
    start_broker,
    topic,
)

from spindle.common.errors import ApiError, CorruptRecords, ErrorCode
from spindle.common.ids import OFFSETS_TOPIC, TopicPartition
from spindle.common.uuids import ZERO_UUID
from spindle.coordinator.coordinator_result import Client, GroupResult, TimerKey
from spindle.coordinator.partitioning import partition_for
from spindle.coordinator.records import CommittedOffset, OffsetRecord, encode_record
from spindle.coordinator.shard import GROUP_RECORDS, GroupShard
from spindle.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from spindle.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from spindle.protocol.messages.list_groups import ListGroupsRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.sync_group import SyncGroupRequest
from spindle.protocol.records.batch import read_header
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.compression import Codec, compress
from spindle.protocol.records.control import EndTransactionMarker, build_end_transaction
from spindle.protocol.records.record import decode_records, decoded_bytes_limit
from spindle.runtime.coordinator.shard_driver import ShardDriver, ShardState
from spindle.runtime.coordinator.shard_writer import ShardSettings
from verification.fuzz.hostile_records import forge, sound

CLIENT = Client("app", "/127.0.0.1", 9)
GROUP = "orders"
RequestedGroup = OffsetFetchRequest.OffsetFetchRequestGroup


def partition_of(group: str, count: int = 2) -> TopicPartition:
    return TopicPartition(OFFSETS_TOPIC, partition_for(group, count))


def commit_request(
    offset: int, group: str = GROUP, metadata: str = "", topic_id: bytes = ZERO_UUID
) -> OffsetCommitRequest:
    topic_type = OffsetCommitRequest.OffsetCommitRequestTopic
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            topic_type(
                name="t",
                topic_id=topic_id,
                partitions=[
                    topic_type.OffsetCommitRequestPartition(
                        partition_index=0, committed_offset=offset, committed_metadata=metadata
                    )
                ],
            )
        ],
    )


async def commit(
    broker: Broker,
    offset: int,
    group: str = GROUP,
    metadata: str = "",
    topic_id: bytes = ZERO_UUID,
) -> int:
    request = commit_request(offset, group, metadata, topic_id)
    response = await broker.groups.commit_offsets(request, CLIENT)
    return response.topics[0].partitions[0].error_code


async def fetch(broker: Broker, group: str = GROUP, *, require_stable: bool = False) -> int:
    requested = RequestedGroup(
        group_id=group,
        topics=[RequestedGroup.OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
    )
    fetched = await broker.groups.fetch_offsets(requested, require_stable=require_stable)
    return fetched.topics[0].partitions[0].committed_offset


async def join(
    broker: Broker, member_id: str = "", group: str = GROUP, **fields: Any
) -> JoinGroupResponse:
    request = JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        **{"protocols": [JoinGroupRequest.JoinGroupRequestProtocol(name="range")], **fields},
    )
    return await broker.groups.join_group(request, CLIENT)


# ---------------------------------------------------------------- life of a shard


async def test_a_group_of_a_partition_led_elsewhere_is_refused() -> None:
    broker = start_broker(elect=False)
    with pytest.raises(ApiError) as raised:
        await commit(broker, 1)
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    broker.groups.on_elected(1 - partition_of(GROUP).partition, 0)
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await fetch(broker)
    await broker.groups.wait_loaded()
    broker.groups.close()


async def test_requests_of_members_wait_while_their_shard_is_loaded() -> None:
    log = MemoryLog()
    log.load_gate = asyncio.Event()
    broker = start_broker(log=log)
    committed = asyncio.ensure_future(commit(broker, 1))
    fetched = asyncio.ensure_future(fetch(broker))
    joined = asyncio.ensure_future(join(broker))
    await settle()
    assert not any(request.done() for request in (committed, fetched, joined))
    log.load_gate.set()
    assert await committed == ErrorCode.NONE
    assert await fetched in (-1, 1)
    assert (await joined).error_code == ErrorCode.MEMBER_ID_REQUIRED
    broker.groups.close()


async def test_requests_of_members_do_not_wait_for_ever_for_their_shard() -> None:
    log = MemoryLog()
    log.load_gate = asyncio.Event()
    broker = start_broker(log=log, settings=ShardSettings(commit_timeout_ms=20))
    for request in (commit(broker, 1), fetch(broker), join(broker)):
        with pytest.raises(ApiError) as raised:
            await request
        assert raised.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        broker.groups.list_groups(ListGroupsRequest())
    log.load_gate.set()
    await broker.groups.wait_loaded()
    assert await commit(broker, 1) == ErrorCode.NONE
    broker.groups.close()


async def test_next_coordinator_knows_what_the_log_says() -> None:
    first = start_broker()
    await first.groups.wait_loaded()
    await commit(first, 41)
    await commit(first, 42)
    await commit(first, 7, group="other")
    member_id = (await join(first, group_instance_id="a")).member_id
    first.groups.close()
    second = start_broker(log=first.log)
    await second.groups.wait_loaded()
    assert (await fetch(second), await fetch(second, "other")) == (42, 7)
    listed = second.groups.list_groups(ListGroupsRequest())
    assert sorted(group.group_id for group in listed.groups) == ["orders", "other"]
    # The assignment was never stored, so the loaded group does not have the member.
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        await second.groups.heartbeat(
            HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=member_id)
        )
    second.groups.close()


@pytest.mark.parametrize(("is_commit", "offset"), [(True, 9), (False, 5)])
async def test_transactions_in_the_log_are_replayed(is_commit: bool, offset: int) -> None:
    log = MemoryLog()
    where = partition_of(GROUP)
    record = OffsetRecord(GROUP, TopicPartition("t", 0), CommittedOffset(5))
    log.put(where, build_batch([SimpleRecord(*encode_record(record), 1)], base_sequence=0))
    later = record._replace(committed=CommittedOffset(9))
    log.put(
        where,
        build_batch(
            [SimpleRecord(*encode_record(later), 1)],
            producer_id=3,
            producer_epoch=0,
            base_sequence=0,
            is_transactional=True,
        ),
    )
    unknown = SimpleRecord(b"\0\x63\0\1g\0\1m", b"\0\0", 1)
    log.put(where, build_batch([unknown], base_sequence=0))
    broker = start_broker(log=log)
    await broker.groups.wait_loaded()
    assert (await fetch(broker), await fetch(broker, require_stable=True)) == (5, -1)
    broker.groups.close()
    log.put(where, build_end_transaction(EndTransactionMarker(is_commit, 0), 3, 0, 1))
    broker = start_broker(log=log)
    await broker.groups.wait_loaded()
    assert await fetch(broker, require_stable=True) == offset
    broker.groups.close()


async def test_partition_that_this_broker_is_about_to_lead_is_loading() -> None:
    broker = start_broker(elect=False)
    broker.metadata.is_behind = True
    with pytest.raises(ApiError, match="COORDINATOR_LOAD_IN_PROGRESS"):
        await fetch(broker)
    broker.metadata.image = image_of(topic(OFFSETS_TOPIC, b"o" * 16, 2, leader=2))
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await fetch(broker)


async def test_first_group_waits_for_the_partition_that_this_broker_is_about_to_lead() -> None:
    broker = start_broker(elect=False)
    broker.metadata.is_behind = True
    broker.metadata.on_catch_up = lambda: broker.groups.on_elected(partition_of(GROUP).partition, 0)
    assert (await join(broker)).error_code == ErrorCode.MEMBER_ID_REQUIRED
    broker.groups.close()


async def test_a_commit_whose_topic_is_deleted_while_it_waits_is_refused() -> None:
    broker = start_broker(elect=False)
    offsets = broker.metadata.image.topics.by_name[OFFSETS_TOPIC]
    broker.metadata.is_behind = True

    def catch_up() -> None:
        broker.metadata.image = image_of(offsets, topic("t", b"u" * 16, 1))
        broker.groups.on_elected(partition_of(GROUP).partition, 0)

    broker.metadata.on_catch_up = catch_up
    code = await commit(broker, 5, topic_id=b"t" * 16)
    assert code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broker.groups.close()


async def test_shards_that_are_loaded_together_are_logged_in_one_line(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "spindle.runtime.coordinator")
    first = start_broker(partitions=8)
    await first.groups.wait_loaded()
    assert await commit(first, 5) == ErrorCode.NONE
    first.groups.close()
    second = start_broker(partitions=8, log=first.log)
    await second.groups.wait_loaded()
    second.groups.close()
    assert caplog.messages == ["Loaded 1 groups of 8 partitions of __consumer_offsets (1 records)"]


async def test_shard_that_cannot_be_loaded_is_no_coordinator() -> None:
    log = MemoryLog()
    log.load_failure = CorruptRecords("broken")
    broker = start_broker(log=log)
    await broker.groups.wait_loaded()
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await commit(broker, 1)
    assert broker.groups.list_groups(ListGroupsRequest()).groups == []
    log.load_failure = None
    broker.groups.on_elected(partition_of(GROUP).partition, 1)
    await broker.groups.wait_loaded()
    assert await commit(broker, 1) == ErrorCode.NONE
    broker.groups.close()


async def test_a_batch_that_unpacks_beyond_the_limit_of_a_broker_is_not_loaded() -> None:
    log = MemoryLog()
    payload = compress(Codec.ZSTD, bytes(decoded_bytes_limit(0) + 1))
    log.put(partition_of(GROUP), forge(sound(1), payload, attributes=int(Codec.ZSTD)))
    broker = start_broker(log=log)
    await broker.groups.wait_loaded()
    with pytest.raises(ApiError, match="NOT_COORDINATOR"):
        await commit(broker, 1)
    broker.groups.close()


async def test_stale_elections_and_resignations_are_passed_over() -> None:
    broker = start_broker(elect=False)
    partition = partition_of(GROUP).partition
    broker.groups.on_elected(partition, 5)
    await broker.groups.wait_loaded()
    shard = broker.groups.shards[partition]
    broker.groups.on_elected(partition, 4)
    broker.groups.on_resigned(partition, 4)
    assert broker.groups.shards[partition] is shard
    broker.groups.on_elected(partition, 6)
    assert broker.groups.shards[partition] is shard
    broker.groups.on_resigned(partition, 5)
    is_active = shard.state is ShardState.ACTIVE
    broker.groups.on_resigned(partition, 7)
    assert (is_active, shard.state) == (True, ShardState.CLOSED)
    assert broker.groups.shards == {}


async def test_resigning_answers_all_parked_requests() -> None:
    config = replace(CONFIG, initial_rebalance_delay_ms=60_000)
    broker = start_broker(config=config)
    await broker.groups.wait_loaded()
    parked = asyncio.ensure_future(join(broker, group_instance_id="a"))
    await settle()
    broker.log.gate = asyncio.Event()
    in_flight = asyncio.ensure_future(commit(broker, 1, group="other"))
    await settle()
    queued = asyncio.ensure_future(commit(broker, 2, group="other"))
    waiting = asyncio.ensure_future(fetch(broker, "other", require_stable=True))
    await settle()
    broker.groups.close()
    assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
    results = await asyncio.gather(in_flight, queued, waiting, return_exceptions=True)
    assert [getattr(r, "code", None) for r in results] == [ErrorCode.NOT_COORDINATOR] * 3


async def test_records_loaded_after_a_resignation_are_dropped() -> None:
    log = MemoryLog()
    log.load_gate = asyncio.Event()
    broker = start_broker(log=log)
    await settle()
    shards = list(broker.groups.shards.values())
    assert {shard.state for shard in shards} == {ShardState.LOADING}
    broker.groups.close()
    log.load_gate.set()
    await settle()
    assert {shard.state for shard in shards} == {ShardState.CLOSED}, "what was read is too late"


# ---------------------------------------------------------------- appends


async def test_commits_that_wait_together_are_one_append() -> None:
    broker = start_broker(partitions=1)
    await broker.groups.wait_loaded()
    where = partition_of(GROUP, 1)
    broker.log.gate = asyncio.Event()
    first = asyncio.ensure_future(commit(broker, 0))
    await settle()
    others = [asyncio.ensure_future(commit(broker, n)) for n in range(1, 50)]
    await settle()
    broker.log.gate.set()
    assert await asyncio.gather(first, *others) == [0] * 50
    counts = [read_header(batch).record_count for batch in broker.log.batches[where]]
    assert counts == [1, 49]
    assert await fetch(broker) == 49
    stored = broker.groups.shards[0].shard.offsets.get(GROUP, TopicPartition("t", 0))
    assert stored is not None
    assert stored.record_offset == 49
    broker.groups.close()


async def test_batches_keep_below_their_limit() -> None:
    broker = start_broker(partitions=1)
    await broker.groups.wait_loaded()
    broker.log.limit_bytes = 1_000
    await asyncio.gather(*[commit(broker, n, metadata="x" * 150) for n in range(20)])
    batches = broker.log.batches[partition_of(GROUP, 1)]
    assert len(batches) > 1
    assert max(map(len, batches)) <= 1_000
    offsets = []
    for batch in batches:
        offsets += [r.offset for r in decode_records(batch, 0, read_header(batch))]
    assert offsets == list(range(20))
    assert await fetch(broker) == 19
    broker.groups.close()


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
    ],
)
async def test_a_failed_append_is_reported_as_an_error_of_the_coordinator(
    failure: ErrorCode, told: ErrorCode
) -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    await commit(broker, 1)
    broker.log.failure = failure
    with pytest.raises(ApiError) as raised:
        await commit(broker, 2)
    assert raised.value.code is told
    assert await fetch(broker) == 1
    broker.log.failure = None
    assert await commit(broker, 3) == 0
    assert await fetch(broker) == 3
    broker.groups.close()


async def test_slow_commit_is_given_up_and_still_counts() -> None:
    broker = start_broker(settings=ShardSettings(commit_timeout_ms=20))
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    with pytest.raises(ApiError) as raised:
        await commit(broker, 5)
    assert raised.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.log.gate.set()
    assert await fetch(broker, require_stable=True) == 5
    broker.groups.close()


async def test_commits_behind_a_hanging_append_are_given_up_in_their_own_time() -> None:
    broker = start_broker(settings=ShardSettings(commit_timeout_ms=20))
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    commits = [asyncio.ensure_future(commit(broker, 5))]
    await settle()
    commits.append(asyncio.ensure_future(commit(broker, 6)))
    commits.append(asyncio.ensure_future(fetch(broker, require_stable=True)))
    for outcome in await asyncio.gather(*commits, return_exceptions=True):
        assert isinstance(outcome, ApiError)
        assert outcome.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.log.gate.set()
    assert await fetch(broker, require_stable=True) == 6
    broker.groups.close()


async def test_syncs_are_answered_while_the_append_of_their_assignment_hangs() -> None:
    broker = start_broker(settings=ShardSettings(commit_timeout_ms=20))
    await broker.groups.wait_loaded()
    leader = await join(broker, group_instance_id="a")
    broker.log.gate = asyncio.Event()
    assignment = SyncGroupRequest.SyncGroupRequestAssignment(member_id=leader.member_id)
    request = SyncGroupRequest(
        group_id=GROUP,
        generation_id=leader.generation_id,
        member_id=leader.member_id,
        group_instance_id="a",
        assignments=[assignment],
    )
    synced = await broker.groups.sync_group(request)
    assert synced.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    broker.log.gate.set()
    await fetch(broker, require_stable=True)
    assert broker.groups.describe_groups([GROUP], 6)[0].group_state == "PreparingRebalance"
    broker.groups.close()


async def test_record_that_cannot_be_encoded_is_answered_as_an_append_that_failed() -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    protocol = JoinGroupRequest.JoinGroupRequestProtocol(name="r" * 40_000)
    leader = await join(broker, group_instance_id="a", protocols=[protocol])
    request = SyncGroupRequest(
        group_id=GROUP, generation_id=1, member_id=leader.member_id, group_instance_id="a"
    )
    synced = await broker.groups.sync_group(request)
    assert synced.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await commit(broker, 5, group="another") == ErrorCode.NONE
    broker.groups.close()


@pytest.mark.parametrize("instance_id", [None, "i" * 32_731])
async def test_member_id_that_would_be_too_long_is_refused(instance_id: str | None) -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    request = JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10_000, group_instance_id=instance_id
    )
    with pytest.raises(ApiError, match=r"id of 32731 bytes, .* at most 32730"):
        await broker.groups.join_group(request, CLIENT._replace(client_id="i" * 32_731))
    broker.groups.close()


async def test_request_that_was_given_up_does_no_harm() -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    lost = asyncio.ensure_future(commit(broker, 5))
    await settle()
    lost.cancel()
    await settle()
    broker.log.gate.set()
    assert await fetch(broker, require_stable=True) == 5
    broker.groups.close()


# ---------------------------------------------------------------- exclusive operations


async def test_stable_fetch_sees_the_commit_before_it() -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    committing = asyncio.ensure_future(commit(broker, 5))
    await settle()
    assert await fetch(broker) == -1
    fetching = asyncio.ensure_future(fetch(broker, require_stable=True))
    await settle()
    assert not fetching.done()
    broker.log.gate.set()
    assert await fetching == 5
    await committing
    broker.groups.close()


async def test_deletion_takes_the_commit_before_it_and_not_the_one_behind() -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    before = asyncio.ensure_future(commit(broker, 5))
    await settle()
    deleting = asyncio.ensure_future(broker.groups.delete_groups([GROUP, "nope"]))
    await settle()
    behind = asyncio.ensure_future(commit(broker, 6))
    await settle()
    broker.log.gate.set()
    codes = {result.group_id: result.error_code for result in await deleting}
    assert codes == {GROUP: ErrorCode.NONE, "nope": ErrorCode.GROUP_ID_NOT_FOUND}
    await asyncio.gather(before, behind)
    assert await fetch(broker) == 6
    counts = [read_header(b).record_count for b in broker.log.batches[partition_of(GROUP)]]
    assert counts == [1, 2, 1]
    broker.groups.close()


async def test_too_many_requests_behind_an_exclusive_one_are_refused() -> None:
    broker = start_broker(partitions=1, settings=ShardSettings(max_waiting_operations=2))
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    first = asyncio.ensure_future(commit(broker, 1))
    await settle()
    waiting = [asyncio.ensure_future(fetch(broker, require_stable=True)) for _ in range(2)]
    await settle()
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        await commit(broker, 2)
    broker.log.gate.set()
    assert await asyncio.gather(*waiting) == [1, 1]
    await first
    broker.groups.close()


async def test_records_that_wait_for_a_stuck_append_are_limited() -> None:
    broker = start_broker(partitions=1, settings=ShardSettings(max_pending_bytes=1_000))
    await broker.groups.wait_loaded()
    broker.log.gate = asyncio.Event()
    waiting = []
    for offset in range(2):
        waiting.append(asyncio.ensure_future(commit(broker, offset, metadata="x" * 600)))
        await settle()
    with pytest.raises(ApiError, match="COORDINATOR_NOT_AVAILABLE"):
        await commit(broker, 2)
    broker.log.gate.set()
    assert await asyncio.gather(*waiting) == [0, 0]
    assert await commit(broker, 3) == 0
    broker.groups.close()


async def test_operations_that_waited_leave_the_event_loop_to_others() -> None:
    broker = start_broker(partitions=1)
    await broker.groups.wait_loaded()
    driver = broker.groups.shards[0]
    broker.log.gate = asyncio.Event()
    first = asyncio.ensure_future(commit(broker, 1))
    await settle()
    events: list[str] = []

    def operation(*_: object) -> HeartbeatResponse:
        events.append("operation")
        return HeartbeatResponse()

    waiting = [driver.submit(operation, is_exclusive=True) for _ in range(1_000)]
    broker.log.gate.set()
    while not all(future.done() for future in waiting):
        events.append("turn")
        await asyncio.sleep(0)
    runs = "".join(event[0] for event in events).split("t")
    assert max(map(len, runs)) <= 100
    assert await first == ErrorCode.NONE
    broker.groups.close()


async def test_refusal_of_a_waiting_operation_reaches_its_caller() -> None:
    broker = start_broker(partitions=1)
    await broker.groups.wait_loaded()
    await commit(broker, 1)
    broker.log.gate = asyncio.Event()
    deleting = asyncio.ensure_future(broker.groups.delete_groups([GROUP]))
    await settle()
    beat = asyncio.ensure_future(
        broker.groups.heartbeat(HeartbeatRequest(group_id=GROUP, member_id="x"))
    )
    await settle()
    broker.log.gate.set()
    await deleting
    with pytest.raises(ApiError, match="UNKNOWN_MEMBER_ID"):
        await beat
    broker.groups.close()


async def test_a_refused_operation_that_waited_is_freed_at_once() -> None:
    broker = start_broker(partitions=1)
    await broker.groups.wait_loaded()
    driver = broker.groups.shards[0]
    broker.log.gate = asyncio.Event()
    first = asyncio.ensure_future(commit(broker, 1))
    await settle()
    refusals: list[weakref.ref[ApiError]] = []

    def refuse(*_: object) -> HeartbeatResponse:
        raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID)

    async def ask() -> None:
        try:
            await driver.submit(refuse, is_exclusive=True)
        except ApiError as error:
            refusals.append(weakref.ref(error))

    gc.disable()
    try:
        asking = asyncio.ensure_future(ask())
        await settle()
        broker.log.gate.set()
        await first
        await asking
        await settle()
        assert refusals[0]() is None
    finally:
        gc.enable()
        broker.groups.close()


async def test_offsets_of_deleted_topics_go() -> None:
    broker = start_broker(topic("t", b"t" * 16, 1))
    await broker.groups.wait_loaded()
    await commit(broker, 5)
    broker.groups.on_topics_deleted([(b"t" * 16, "t")])
    await settle()
    assert await fetch(broker) == -1
    broker.groups.close()


async def test_offsets_of_deleted_topics_go_though_the_first_append_fails() -> None:
    settings = ShardSettings(retry_ms=10)
    broker = start_broker(topic("t", b"t" * 16, 1), settings=settings)
    await broker.groups.wait_loaded()
    await commit(broker, 5)
    broker.log.failure = ErrorCode.NOT_ENOUGH_REPLICAS
    broker.groups.on_topics_deleted([(b"t" * 16, "t")])
    await settle()
    assert await fetch(broker) == 5
    broker.log.failure = None
    broker.log.grown.clear()
    await broker.log.grown.wait()
    assert await fetch(broker, require_stable=True) == -1
    broker.groups.close()


async def test_offsets_of_topics_that_are_deleted_during_loading_are_deleted() -> None:
    first = start_broker(topic("t", b"t" * 16, 1))
    await first.groups.wait_loaded()
    await commit(first, 5)
    first.groups.close()
    second = start_broker(topic("t", b"t" * 16, 1), log=first.log)
    second.groups.on_topics_deleted([(b"t" * 16, "t")])
    await second.groups.wait_loaded()
    assert await fetch(second, require_stable=True) == -1
    second.groups.close()


async def test_offsets_of_topics_that_were_deleted_while_nobody_led_go() -> None:
    first = start_broker(topic("t", b"t" * 16, 1))
    await first.groups.wait_loaded()
    await commit(first, 5, topic_id=b"t" * 16)
    await commit(first, 6, group="other", topic_id=b"t" * 16)
    first.groups.close()
    # A topic of the same name has been created since.
    second = start_broker(topic("t", b"u" * 16, 1), log=first.log)
    await second.groups.wait_loaded()
    assert await commit(second, 7, group="other", topic_id=b"u" * 16) == ErrorCode.NONE
    assert await fetch(second, require_stable=True) == -1
    assert await fetch(second, "other", require_stable=True) == 7
    second.groups.close()


async def test_deletion_of_a_large_group_takes_several_batches() -> None:
    limit = 1_000
    broker = start_broker()
    await broker.groups.wait_loaded()
    broker.log.limit_bytes = limit
    for partition in range(60):
        request = commit_request(5)
        request.topics[0].partitions[0].partition_index = partition
        await broker.groups.commit_offsets(request, CLIENT)
    at = partition_of(GROUP)
    done = len(broker.log.batches[at])
    (deleted,) = await broker.groups.delete_groups([GROUP])
    assert deleted.error_code == ErrorCode.NONE
    batches = broker.log.batches[at][done:]
    assert len(batches) > 1
    assert max(len(batch) for batch in batches) <= limit
    second = start_broker(log=broker.log)
    await second.groups.wait_loaded()
    assert second.groups.list_groups(ListGroupsRequest()).groups == []
    assert await fetch(second) == -1
    broker.groups.close()
    second.groups.close()


# ---------------------------------------------------------------- timers


class TimerInThePast(GroupShard):
    """Sets each timer that fires again for a time in the past; with `fails`, raises at first."""

    __slots__ = ("fails", "fired", "has_fired_often")

    def __init__(self, *, fails: bool) -> None:
        super().__init__(CONFIG, lambda: bytes(16))
        self.fails = fails
        self.fired = 0
        self.has_fired_often = asyncio.Event()

    def loaded(self, out: GroupResult) -> None:
        out.set_timer(TimerKey("join", GROUP), out.now_ms)

    def on_timer(self, key: TimerKey, out: GroupResult) -> None:
        self.fired += 1
        if self.fired == 3:
            self.has_fired_often.set()
        if self.fails and self.fired == 1:
            raise LookupError("a fault of the group")
        out.set_timer(key, out.now_ms - 3_600_000)


@pytest.mark.parametrize("fails", [False, True])
async def test_timers_leave_the_event_loop_to_others(fails: bool) -> None:
    shard = TimerInThePast(fails=fails)
    driver = ShardDriver(
        partition_of(GROUP),
        0,
        shard,
        GROUP_RECORDS,
        MemoryLog(),
        standing_clock,
        ShardSettings(retry_ms=10),
        lambda _: None,
    )
    await shard.has_fired_often.wait()
    driver.close()


# ---------------------------------------------------------------- groups and time


async def test_two_members_share_an_assignment() -> None:
    # The initial delay needs a clock that advances with the event loop.
    loop = asyncio.get_running_loop()
    broker = start_broker(
        config=replace(CONFIG, initial_rebalance_delay_ms=10),
        clock=lambda: int(loop.time() * 1000),
    )
    await broker.groups.wait_loaded()
    joins = [join(broker, group_instance_id=name) for name in ("a", "b")]
    one, two = await asyncio.gather(*joins)
    assert (one.generation_id, two.generation_id) == (1, 1)
    leader, follower = (one, two) if one.members else (two, one)
    given = [
        SyncGroupRequest.SyncGroupRequestAssignment(
            member_id=m.member_id, assignment=m.member_id.encode()
        )
        for m in leader.members
    ]
    syncs = await asyncio.gather(
        *[
            broker.groups.sync_group(
                SyncGroupRequest(
                    group_id=GROUP,
                    generation_id=1,
                    member_id=joined.member_id,
                    assignments=given if joined is leader else [],
                )
            )
            for joined in (follower, leader)
        ]
    )
    assert [s.assignment.decode() for s in syncs] == [follower.member_id, leader.member_id]
    broker.groups.close()


@pytest.mark.parametrize("jump_ms", [86_400_000, -86_400_000])
async def test_setting_the_time_of_day_moves_no_timer(jump_ms: int) -> None:
    """A jump forward expires no member, and a timer still fires after a jump back."""

    loop = asyncio.get_running_loop()
    ahead_ms = 10 * 86_400_000
    broker = start_broker(
        partitions=1,
        config=replace(CONFIG, initial_rebalance_delay_ms=10),
        clock=lambda: int(loop.time() * 1000) + ahead_ms,
    )
    await broker.groups.wait_loaded()
    one = await join(broker, group_instance_id="a")
    waiting = asyncio.ensure_future(join(broker, group="others", group_instance_id="b"))
    await settle()
    ahead_ms += jump_ms
    assert (await waiting).generation_id == 1
    await broker.groups.heartbeat(
        HeartbeatRequest(group_id=GROUP, generation_id=1, member_id=one.member_id)
    )
    broker.groups.close()


@pytest.mark.parametrize("timeout_ms", [5_999, 1_800_001])
async def test_session_timeout_has_limits(timeout_ms: int) -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    request = JoinGroupRequest(group_id=GROUP, session_timeout_ms=timeout_ms)
    with pytest.raises(ApiError, match=r"INVALID_SESSION_TIMEOUT.*1800000"):
        await broker.groups.join_group(request, CLIENT)
    broker.groups.close()


async def test_empty_group_id_is_for_offsets_only() -> None:
    broker = start_broker()
    await broker.groups.wait_loaded()
    assert await commit(broker, 5, group="") == ErrorCode.NONE
    assert await fetch(broker, "") == 5
    with pytest.raises(ApiError, match="INVALID_GROUP_ID"):
        await broker.groups.heartbeat(HeartbeatRequest())
    broker.groups.close()
