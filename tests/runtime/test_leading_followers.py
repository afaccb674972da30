"""A leader and its followers, message by message: the high watermark, the ISR, who waits."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from fake_broker import create_replicated, fake_broker
from leader_pair import Data, Pair, pair
from node_harness import (
    Client,
    batch_of,
    connected,
    fetch_request,
    produce_request,
    records_in,
)
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.log.log import Log
from spindle.log.log_values import FetchedRecords
from spindle.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.runtime.coordinator.replica_log import ReplicaCoordinatorLog


async def test_records_are_committed_when_the_follower_has_them(tmp_path: Path) -> None:
    async with pair(tmp_path) as p, connected(p.node) as consumer:
        await p.create()
        assert p.registration.isr == (1, 2)
        produced = asyncio.create_task(p.client.produce("t", 0, batch_of(b"a", b"b")))
        waiting = await p.follow(0, max_wait_ms=50_000)
        assert [r.value for r in records_in(waiting.records)] == [b"a", b"b"]
        assert waiting.high_watermark == 0
        unseen = await consumer.fetch("t", 0, 0, max_wait_ms=0)
        assert (unseen.high_watermark, bytes(unseen.records or b"")) == (0, b"")
        assert not produced.done()
        # Asking for what comes next says that all before is there.
        assert (await p.follow(2, last_epoch=0)).high_watermark == 2
        assert (await produced).error_code == 0
        seen = await consumer.fetch("t", 0, 0)
        assert [r.value for r in records_in(seen.records)] == [b"a", b"b"]


async def test_a_reader_of_finished_transactions_is_woken_by_the_commit(tmp_path: Path) -> None:
    async with pair(tmp_path) as p, connected(p.node) as consumer:
        await p.create()
        await p.follow(0, max_wait_ms=0)
        request = fetch_request("t", 0, 0)
        request.max_wait_ms, request.isolation_level = 50_000, 1
        waiting = asyncio.create_task(consumer.ask(request, version=12))
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        await p.follow(1, last_epoch=0, max_wait_ms=0)
        data = (await waiting).responses[0].partitions[0]
        assert [r.value for r in records_in(data.records)] == [b"a"]
        assert data.last_stable_offset == data.high_watermark == 1


async def test_appended_records_reach_waiting_fetches_without_a_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        await p.follow(0, max_wait_ms=0)
        assert p.node.broker is not None
        partition = p.node.broker.replicas.lookup("t", 0)
        assert partition is not None
        reads: list[int] = []
        read = Log.read

        def counted(log: Log, offset: int, *rest: Any, **more: Any) -> FetchedRecords:
            reads.append(offset)
            return read(log, offset, *rest, **more)

        monkeypatch.setattr(Log, "read", counted)
        waiting = asyncio.create_task(p.follow(0, max_wait_ms=20_000))
        await until(lambda: partition.has_append_watchers, pause_s=0)
        await p.client.produce("t", 0, batch_of(b"a", b"b"), acks=1)
        assert [r.value for r in records_in((await waiting).records)] == [b"a", b"b"]
        assert reads == []
        assert partition.current_append_bytes(0, 2) is None, "nothing is kept for later"
        late = await p.follow(0)
        assert [r.value for r in records_in(late.records)] == [b"a", b"b"]
        assert reads == [0]


async def test_a_follower_gets_the_offset_at_which_its_log_diverges(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        data = await p.follow(5, last_epoch=0)
        assert (data.diverging_epoch.epoch, data.diverging_epoch.end_offset) == (0, 1)
        assert data.error_code == 0
        # It said nothing of what it has.
        assert (await p.client.fetch("t", 0, 0, max_wait_ms=0)).high_watermark == 0


async def test_fetches_of_unknown_replicas_and_old_epochs_are_refused(tmp_path: Path) -> None:
    async with pair(tmp_path) as p, fake_broker(p.node, 3) as stranger:
        await p.create()
        response = await p.link.ask(stranger.fetch(p.topic_id, 0))
        answer = response.responses[0].partitions[0]
        assert answer.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        past = await p.follow(0, broker_epoch=p.other.epoch - 1)
        assert past.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await p.follow(0, leader_epoch=7)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH


async def test_a_silent_follower_leaves_the_isr_and_comes_back(tmp_path: Path) -> None:
    async with pair(tmp_path, replica_lag_time_max_ms="200", replica_fetch_wait_max_ms="100") as p:
        await p.create()
        answer = await p.client.produce("t", 0, batch_of(b"a"))
        assert answer.error_code == 0  # committed without the follower, once it has left
        assert p.registration.isr == (1,)
        await p.follow(0)
        assert p.registration.isr == (1,)  # it does not have what is committed
        await p.follow(1, last_epoch=0)
        await p.until(lambda r: r.isr == (1, 2))


async def test_too_few_replicas_refuse_before_and_after_the_append(tmp_path: Path) -> None:
    async with pair(tmp_path) as p, connected(p.node) as other_client:
        await p.create(min_insync_replicas="2")
        await p.follow(0)
        request = produce_request("t", 0, batch_of(b"a"))
        request.timeout_ms = 20_000
        parked = asyncio.create_task(p.client.ask(request, version=12))
        await p.follow(0, max_wait_ms=50_000)  # the record is there
        await p.other.heartbeat(fence=True)
        await p.until(lambda r: r.isr == (1,))
        refused = await other_client.produce("t", 0, batch_of(b"b"))
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        # Below min.insync.replicas nothing more is committed, and so not seen.
        assert (await other_client.fetch("t", 0, 0, max_wait_ms=0)).high_watermark == 0
        await p.other.heartbeat()
        await p.follow(1, last_epoch=0)
        await p.until(lambda r: r.isr == (1, 2))
        part = (await parked).responses[0].partition_responses[0]
        assert part.error_code == 0


async def test_a_produce_that_nobody_confirms_times_out(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        request = produce_request("t", 0, batch_of(b"a"))
        request.timeout_ms = 1
        response = await p.client.ask(request, version=12)
        part = response.responses[0].partition_responses[0]
        assert part.error_code == ErrorCode.REQUEST_TIMED_OUT


async def test_a_dead_disk_of_a_follower_holds_nothing_up(tmp_path: Path) -> None:
    """Kafka's leader waits for such a follower as long as for one that lags, 30 s."""

    async with pair(tmp_path) as p:
        await p.create()
        await p.follow(0)
        await assign(p, p.other.directory_ids[0])
        produced = asyncio.create_task(p.client.produce("t", 0, batch_of(b"a")))
        await p.follow(0, max_wait_ms=50_000)
        await p.other.heartbeat(offline=[p.other.directory_ids[0]])
        assert (await produced).error_code == 0
        assert p.registration.isr == (1,)


async def assign(p: Pair, directory_id: bytes) -> None:
    """Report the directory of the follower's replica."""
    data = AssignReplicasToDirsRequest.DirectoryData
    topic = data.TopicData
    await p.other.ask(
        AssignReplicasToDirsRequest(
            broker_id=2,
            broker_epoch=p.other.epoch,
            directories=[
                data(
                    id=directory_id,
                    topics=[
                        topic(
                            topic_id=p.topic_id,
                            partitions=[topic.PartitionData(partition_index=0)],
                        )
                    ],
                )
            ],
        )
    )
    await p.until(lambda r: r.directory(2) == directory_id)


async def test_a_parked_produce_is_answered_when_the_topic_goes(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        parked = asyncio.create_task(p.client.produce("t", 0, batch_of(b"a")))
        await p.follow(0, max_wait_ms=50_000)
        state = DeleteTopicsRequest.DeleteTopicState(name="t")
        await p.link.ask(DeleteTopicsRequest(topics=[state], timeout_ms=5_000))
        assert (await parked).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_consumer_below_the_rack_version_needs_the_leader(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        p.topic_id = await create_replicated(p.client, "t", [2, 1])
        old = await p.client.ask(fetch_request("t", 0, 0), version=10)
        code = old.responses[0].partitions[0].error_code
        assert code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        new = await p.client.ask(fetch_request("t", 0, 0), version=12)
        assert new.responses[0].partitions[0].error_code == 0


async def test_deleted_records_are_waited_for_until_the_follower_has_deleted_them(
    tmp_path: Path,
) -> None:
    def deletion(offset: int, timeout_ms: int) -> DeleteRecordsRequest:
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=0, offset=offset)
        return DeleteRecordsRequest(
            topics=[topic(name="t", partitions=[part])], timeout_ms=timeout_ms
        )

    async with pair(tmp_path) as p:
        await p.create()
        await p.client.produce("t", 0, batch_of(b"a", b"b", b"c"), acks=1)
        await p.follow(3, last_epoch=0)
        late = (await p.client.ask(deletion(1, 1))).topics[0].partitions[0]
        assert (late.error_code, late.low_watermark) == (ErrorCode.REQUEST_TIMED_OUT, 0)
        waiting = asyncio.create_task(p.client.ask(deletion(2, 20_000)))
        data = await p.follow(3, last_epoch=0)
        while data.log_start_offset < 2:
            data = await p.follow(3, last_epoch=0)
        assert not waiting.done()
        await p.follow(3, last_epoch=0, log_start_offset=2)
        done = (await waiting).topics[0].partitions[0]
        assert (done.error_code, done.low_watermark) == (0, 2)


async def test_a_new_leader_reports_no_end_offset_below_one_already_seen(
    tmp_path: Path,
) -> None:
    def latest() -> ListOffsetsRequest:
        topic = ListOffsetsRequest.ListOffsetsTopic
        part = topic.ListOffsetsPartition(partition_index=0, timestamp=-1)
        return ListOffsetsRequest(topics=[topic(name="t", partitions=[part])], replica_id=-1)

    async def end(client: Client, version: int | None = None) -> tuple[int, int]:
        response = await client.ask(latest(), version)
        answer = response.topics[0].partitions[0]
        return answer.error_code, answer.offset

    async with pair(tmp_path) as p:
        await p.create()
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        # Elected anew with a record whose commitment it does not know of.
        await p.reassign([2, 1])
        await p.elect_preferred()
        await p.until(lambda r: r.leader == 2)
        await p.reassign([1, 2])
        await p.elect_preferred()
        await p.until(lambda r: r.leader == 1)
        assert await end(p.client) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
        assert await end(p.client, version=4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        await p.follow(1, leader_epoch=p.registration.leader_epoch, last_epoch=0)
        assert await end(p.client) == (0, 1)


async def test_a_not_leader_response_names_the_current_leader(tmp_path: Path) -> None:
    async with pair(tmp_path) as p, fake_broker(p.node, 3):
        p.topic_id = await create_replicated(p.client, "t", [2, 3])
        wrong = produce_request("t", 0, batch_of(b"a"))
        wrong.topic_data[0].topic_id = p.topic_id
        produced = await p.client.ask(wrong)
        fetched = await p.client.ask(by_id(p.topic_id))
        for answer, part in (
            (produced, produced.responses[0].partition_responses[0]),
            (fetched, fetched.responses[0].partitions[0]),
        ):
            assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            leader = part.current_leader
            assert (leader.leader_id, leader.leader_epoch) == (2, 0)
            nodes = [(n.node_id, n.host, n.port) for n in answer.node_endpoints]
            assert nodes == [(2, "fake", 9002)]


def by_id(topic_id: bytes) -> FetchRequest:
    """Return a consumer's fetch at the newest version."""
    request = fetch_request("", 0, 0)
    request.topics[0].topic_id = topic_id
    return request


class Follower:
    """A fetcher with a session, as a broker has it: it names only what it changes."""

    def __init__(self, p: Pair) -> None:
        self._pair = p
        self._session_id = 0
        self._epoch = 0

    async def fetch(
        self, offset: int | None = None, *, max_wait_ms: int = 0, **options: Any
    ) -> Data | None:
        """Return the partition in the answer to a fetch, None if it is not there."""
        p = self._pair
        request = p.other.fetch(p.topic_id, offset or 0, max_wait_ms=max_wait_ms, **options)
        if offset is None:
            request.topics = []
        request.session_id, request.session_epoch = self._session_id, self._epoch
        response = await p.link.ask(request)
        assert response.error_code == 0
        self._session_id, self._epoch = response.session_id, self._epoch + 1
        parts = [part for topic in response.responses for part in topic.partitions]
        return parts[0] if parts else None


async def test_a_follower_with_a_session_is_woken_by_records(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        follower = Follower(p)
        assert await follower.fetch(0) is not None
        assert await follower.fetch() is None
        waiting = asyncio.create_task(follower.fetch(max_wait_ms=50_000))
        produced = asyncio.create_task(p.client.produce("t", 0, batch_of(b"a")))
        data = await waiting
        assert data is not None
        assert [r.value for r in records_in(data.records)] == [b"a"]
        # Not asked for what comes next: the same is sent once more, and nothing is committed.
        again = await follower.fetch()
        assert again is not None
        assert len(records_in(again.records)) == 1
        assert not produced.done()
        told = await follower.fetch(1, last_epoch=0)
        assert told is not None
        assert (told.high_watermark, bytes(told.records or b"")) == (1, b"")
        assert (await produced).error_code == 0
        assert await follower.fetch() is None


async def test_a_follower_learns_of_a_commit_that_another_follower_brought(tmp_path: Path) -> None:
    async with pair(tmp_path) as p, fake_broker(p.node, 3) as third, connected(p.node) as link:
        p.topic_id = await create_replicated(p.client, "t", [1, 2, 3])
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        follower = Follower(p)
        data = await follower.fetch(1, last_epoch=0)
        assert data is not None
        assert data.high_watermark == 0
        await link.ask(third.fetch(p.topic_id, 1, last_epoch=0))
        data = await follower.fetch()
        assert data is not None
        assert data.high_watermark == 1


async def test_a_waiting_follower_gets_the_new_log_start_after_a_deletion(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        await p.client.produce("t", 0, batch_of(b"a", b"b"), acks=1)
        follower = Follower(p)
        await follower.fetch(2, last_epoch=0)
        waiting = asyncio.create_task(follower.fetch(max_wait_ms=50_000))
        topic = DeleteRecordsRequest.DeleteRecordsTopic
        part = topic.DeleteRecordsPartition(partition_index=0, offset=1)
        deletion = DeleteRecordsRequest(topics=[topic(name="t", partitions=[part])], timeout_ms=1)
        await p.client.ask(deletion)
        data = await waiting
        assert data is not None
        assert data.log_start_offset == 1


async def test_consumers_are_sent_to_a_replica_in_their_rack(tmp_path: Path) -> None:
    selector = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    settings = {"replica_selector_class": selector, "broker_rack": "north"}

    def from_rack(p: Pair, rack: str, offset: int) -> FetchRequest:
        request = by_id(p.topic_id)
        request.rack_id, request.max_wait_ms = rack, 0
        request.topics[0].partitions[0].fetch_offset = offset
        return request

    async with pair(tmp_path, rack="south", **settings) as p:
        await p.create()

        async def preferred(rack: str, offset: int) -> int:
            response = await p.client.ask(from_rack(p, rack, offset))
            data = response.responses[0].partitions[0]
            assert data.error_code == 0
            return int(data.preferred_read_replica)

        assert await preferred("south", 0) == -1  # the follower has not been heard of
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        await p.follow(0)
        assert await preferred("south", 0) == 2
        assert await preferred("south", 1) == -1  # it does not have that yet
        assert await preferred("north", 0) == -1
        assert await preferred("west", 0) == -1
        await p.other.heartbeat(fence=True)
        await p.until(lambda r: r.isr == (1,))
        assert await preferred("south", 0) == -1


async def test_a_throttled_follower_gets_no_more_than_its_share(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await limit_leader_rate(p.client, 1)
        await p.create(leader_replication_throttled_replicas="0:1")
        await p.other.heartbeat(fence=True)
        await p.until(lambda r: r.isr == (1,))
        await p.other.heartbeat()
        for value in (b"a", b"b"):
            await p.client.produce("t", 0, batch_of(value))
        follower = Follower(p)
        epoch = p.registration.leader_epoch
        first = await follower.fetch(0, leader_epoch=epoch)
        assert first is not None
        assert len(records_in(first.records)) == 2
        # It has had more than a second's worth.
        held_back = await follower.fetch()
        assert held_back is None or not held_back.records
        # In sync it is held back no more: everybody would wait for it.
        await follower.fetch(2, leader_epoch=epoch, last_epoch=epoch)
        await p.until(lambda r: r.isr == (1, 2))
        await p.client.produce("t", 0, batch_of(b"c"), acks=1)
        last = await follower.fetch()
        assert last is not None
        assert len(records_in(last.records)) == 1


async def limit_leader_rate(client: Client, bytes_per_s: int) -> None:
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource
    config = resource.AlterableConfig(
        name="leader.replication.throttled.rate", config_operation=0, value=str(bytes_per_s)
    )
    response = await client.ask(
        IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=4, resource_name="1", configs=[config])]
        )
    )
    assert response.responses[0].error_code == 0


async def test_a_coordinator_loads_what_is_committed_and_waits_for_the_rest(tmp_path: Path) -> None:
    async with pair(tmp_path) as p:
        await p.create()
        await p.follow(0, max_wait_ms=0)
        await p.client.produce("t", 0, batch_of(b"a"), acks=1)
        assert p.node.broker is not None
        log = ReplicaCoordinatorLog(p.node.broker.replicas, lambda: 0)

        async def load() -> list[bytes | None]:
            pieces = [piece async for piece in log.read_batches(TopicPartition("t", 0))]
            return [record.value for piece in pieces for record in records_in(piece)]

        loading = asyncio.create_task(load())
        # The leader answers this one after it has read its log.
        await p.client.fetch("t", 0, 0, max_wait_ms=0)
        assert not loading.done()
        await p.follow(1, last_epoch=0, max_wait_ms=0)
        assert await loading == [b"a"]
