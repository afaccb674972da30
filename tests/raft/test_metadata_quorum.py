"""The driver: a quorum of one on a real directory, listeners, snapshots, faults."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic, time

import pytest
from quorum_node import CLUSTER_ID, endpoints, key, static_voters

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import OffsetAndEpoch
from spindle.common.ports import FileSystem
from spindle.log.storage import LogStorage
from spindle.metadata_log.committed import CommittedBatch, decode_batches
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.metadata_log import MetadataLog, RetentionSettings
from spindle.metadata_log.partition_log import DIRECTORY_NAME, PartitionLog, metadata_log_config
from spindle.metadata_log.snapshots import SnapshotBatch
from spindle.protocol.message import Message
from spindle.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
)
from spindle.protocol.messages.fetch import FetchResponse
from spindle.protocol.messages.fetch_snapshot import FetchSnapshotResponse
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.metadata_records import (
    FeatureLevelRecord,
    NoOpRecord,
    PartitionRecord,
    TopicRecord,
)
from spindle.protocol.messages.raft_records import LeaderChangeMessage
from spindle.protocol.metadata_frame import parse_frame
from spindle.protocol.records.batch import batches
from spindle.publication.feed import SnapshotReader
from spindle.raft import requests
from spindle.raft.kraft_records import read_control_records
from spindle.raft.ready import Destination, LeaderAndEpoch, NotLeader
from spindle.raft.settings import LocalNode, QuorumSettings
from spindle.runtime.disks.directory_thread import DirectoryThread
from spindle.runtime.peers.port import PeerUnavailable
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum
from spindle.testing.filesystem import Fault, MemoryFileSystem

_OFFSET_S = time() - monotonic()
LEVEL = 20
TOPIC = TopicRecord(name="t", topic_id=b"i" * 16)


def clock() -> int:
    return int((_OFFSET_S + monotonic()) * 1000)


class NoPeers:
    """No peer answers."""

    async def request(self, destination: Destination, message: Message) -> Message:
        raise PeerUnavailable(f"{destination} is not there")

    def close(self) -> None:
        """Nothing is open."""


class RecordedSnapshot(SnapshotReader):
    """The records of a snapshot."""

    def __init__(self) -> None:
        self._records: list[Message] = []

    def replay(self, batch: SnapshotBatch) -> None:
        self._records += [parse_frame(value)[0] for value in batch.values]

    def complete(self) -> list[Message]:
        return self._records


class Recorder:
    """A listener that notes what it hears; `wait_for` waits until it has heard enough."""

    def __init__(self) -> None:
        self.records: list[Message] = []
        self.offsets: list[tuple[int, int]] = []
        self.snapshots: list[OffsetAndEpoch] = []
        self.leaders: list[LeaderAndEpoch] = []
        self._changed = asyncio.Event()

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            self.offsets.append((batch.base_offset, batch.last_offset))
            self.records += batch.records
        self._changed.set()

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> "RecordedSnapshot":
        return RecordedSnapshot()

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: list[Message]) -> None:
        self.snapshots.append(snapshot_id)
        self.offsets = []
        self.records = content
        self._changed.set()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leaders.append(leader)
        self._changed.set()

    async def wait_for(self, condition: Callable[["Recorder"], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition(self):
                self._changed.clear()
                await self._changed.wait()

    async def wait_for_leadership(self, epoch: int) -> None:
        await self.wait_for(lambda heard: LeaderAndEpoch(1, epoch) in heard.leaders)

    async def wait_for_offset(self, offset: int) -> None:
        await self.wait_for(lambda heard: bool(heard.offsets) and heard.offsets[-1][1] >= offset)


class Node:
    """A running quorum of one with a listener."""

    def __init__(self, quorum: RaftMetadataQuorum, faults: list[BaseException]) -> None:
        self.quorum = quorum
        self.faults = faults
        self.heard = Recorder()


@asynccontextmanager
async def running(
    directory: str,
    *,
    files: FileSystem | None = None,
    voters: tuple[int, ...] = (1,),
    retention: RetentionSettings | None = None,
    is_started: bool = True,
) -> AsyncIterator[Node]:
    faults: list[BaseException] = []
    thread = DirectoryThread(directory, asyncio.get_running_loop(), faults.append)
    file_system = files or OsFileSystem()
    try:
        storage = await thread.submit(
            PartitionLog.open, LogStorage(file_system, directory), metadata_log_config(), clock()
        )
        log = MetadataLog(
            file_system,
            f"{directory}/{DIRECTORY_NAME}",
            storage,
            retention or RetentionSettings(),
        )
        quorum = RaftMetadataQuorum(
            LocalNode(key(1), CLUSTER_ID, endpoints=endpoints(1)),
            QuorumSettings(),
            static_voters(*voters),
            log,
            thread,
            NoPeers(),
            Random(1),
            clock,
            faults.append,
        )
        if is_started:
            await quorum.start()
        node = Node(quorum, faults)
        if is_started:
            quorum.subscribe(node.heard)
        yield node
        if not faults:
            await quorum.stop(5)
    finally:
        thread.stop(5)


async def test_a_node_leads_alone_and_again_after_a_restart(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        assert node.heard.leaders[-1] == node.quorum.leader
        assert node.heard.offsets == [(0, 0)]
        last = node.quorum.append(1, [TOPIC, NoOpRecord()], metadata_version=LEVEL, is_atomic=True)
        assert last == 2
        assert node.quorum.high_watermark == 1, "not before it is on the disk"
        await node.heard.wait_for_offset(2)
        assert node.heard.records == [TOPIC, NoOpRecord()]
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(2)
        assert node.heard.offsets == [(0, 0), (1, 2), (3, 3)]
        assert node.heard.records == [TOPIC, NoOpRecord()]
        assert node.quorum.high_watermark == node.quorum.log_end_offset == 4
    state = tmp_path / DIRECTORY_NAME / "quorum-state"
    assert state.read_text() == (
        '{"clusterId":"","leaderId":1,"leaderEpoch":2,"votedId":-1,"appliedOffset":0,'
        '"currentVoters":[{"voterId":1}],"data_version":0}'
    )


async def test_a_log_that_a_listener_cannot_replay_ends_the_node(tmp_path: Path) -> None:
    class Strict(Recorder):
        def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
            super().on_commit(batches)
            if TOPIC in self.records:
                raise ProtocolViolation("a topic that cannot be")

    async with running(str(tmp_path)) as node:
        strict = Strict()
        node.quorum.subscribe(strict)
        await strict.wait_for_leadership(1)
        node.quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=True)
        await strict.wait_for(lambda heard: TOPIC in heard.records)
        assert [str(fault) for fault in node.faults] == ["a topic that cannot be"]
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(2)
        behind = Strict()
        node.quorum.subscribe(behind)
        await behind.wait_for(lambda heard: TOPIC in heard.records)
        assert [str(fault) for fault in node.faults] == ["a topic that cannot be"]


async def test_the_log_has_the_batches_that_were_appended(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        level = FeatureLevelRecord(name="metadata.version", feature_level=20)
        node.quorum.append(1, [level], metadata_version=LEVEL, is_atomic=False)
        partition = PartitionRecord(partition_id=3, topic_id=b"i" * 16)
        last = node.quorum.append(1, [TOPIC, partition], metadata_version=LEVEL, is_atomic=True)
        await node.heard.wait_for_offset(last)
    data = (tmp_path / DIRECTORY_NAME / "00000000000000000000.log").read_bytes()
    position, header = next(batches(data))
    (record,) = read_control_records(data, position, header)
    assert isinstance(record.message, LeaderChangeMessage)
    committed_batches = list(decode_batches(data))
    assert [(b.base_offset, b.last_offset, b.epoch) for b in committed_batches] == [
        (0, 0, 1),
        (1, 1, 1),
        (2, 3, 1),
    ]
    # At metadata.version 20 partitions are written in version 1.
    assert b"\x01\x03\x01" in data


async def test_appends_of_one_moment_are_committed_together(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        lasts = [
            node.quorum.append(1, [NoOpRecord()], metadata_version=LEVEL, is_atomic=False)
            for _ in range(50)
        ]
        assert lasts == list(range(1, 51))
        await node.heard.wait_for_offset(50)
        assert node.heard.offsets == [(n, n) for n in range(51)]


async def test_only_the_leader_of_the_epoch_appends(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        with pytest.raises(NotLeader):
            node.quorum.append(7, [NoOpRecord()], metadata_version=LEVEL, is_atomic=False)
        with pytest.raises(ValueError, match="no record to append"):
            node.quorum.append(1, [], metadata_version=LEVEL, is_atomic=False)
        assert node.quorum.append(1, [NoOpRecord()], metadata_version=LEVEL, is_atomic=False) == 1


async def test_a_resigned_lone_leader_leads_the_next_epoch(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        node.quorum.resign(1)
        await node.heard.wait_for_leadership(2)
        assert node.quorum.append(2, [NoOpRecord()], metadata_version=LEVEL, is_atomic=False) == 2


# ---------------------------------------------------------------- snapshots


async def test_a_new_listener_gets_the_snapshot_and_what_follows(tmp_path: Path) -> None:
    retention = RetentionSettings(max_bytes=1, max_ms=-1)
    async with running(str(tmp_path), retention=retention) as node:
        quorum = node.quorum
        await node.heard.wait_for_leadership(1)
        quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=False)
        await node.heard.wait_for_offset(1)
        await quorum.write_snapshot(OffsetAndEpoch(1, 1), [], 5)
        snapshot_id = OffsetAndEpoch(2, 1)
        await quorum.write_snapshot(snapshot_id, encode_records([TOPIC]), 7)
        await quorum.write_snapshot(snapshot_id, [], 8)
        quorum.append(1, [NoOpRecord()], metadata_version=LEVEL, is_atomic=False)
        await node.heard.wait_for_offset(2)
        for _ in range(100):
            if quorum.log_start_offset == 2:
                break
            await asyncio.sleep(0.01)
        late = Recorder()
        quorum.subscribe(late)
        await late.wait_for_offset(2)
        assert late.snapshots == [snapshot_id]
        assert late.records == [TOPIC, NoOpRecord()]
        assert late.leaders == [LeaderAndEpoch(1, 1)]
        assert node.heard.snapshots == []
    names = [path.name for path in (tmp_path / DIRECTORY_NAME).iterdir()]
    assert "00000000000000000002-0000000001.checkpoint" in names
    assert "00000000000000000001-0000000001.checkpoint.deleted" in names


async def test_a_restart_begins_with_the_snapshot(tmp_path: Path) -> None:
    retention = RetentionSettings(max_bytes=1, max_ms=-1)
    async with running(str(tmp_path), retention=retention) as node:
        await node.heard.wait_for_leadership(1)
        node.quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=False)
        await node.heard.wait_for_offset(1)
        await node.quorum.write_snapshot(OffsetAndEpoch(1, 1), [], 5)
        await node.quorum.write_snapshot(OffsetAndEpoch(2, 1), encode_records([TOPIC]), 7)
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(2)
        assert node.heard.snapshots == [OffsetAndEpoch(2, 1)]
        assert node.heard.records == [TOPIC]
        assert node.heard.offsets == [(2, 2)]


async def test_records_are_committed_while_a_snapshot_is_written(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        node.quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=False)
        await node.heard.wait_for_offset(1)
        is_committed = Event()

        def values() -> Iterator[bytes]:
            assert is_committed.wait(10)
            yield from encode_records([TOPIC])

        writing = asyncio.create_task(node.quorum.write_snapshot(OffsetAndEpoch(2, 1), values(), 7))
        await asyncio.sleep(0)  # the task begins
        node.quorum.append(1, [NoOpRecord()], metadata_version=LEVEL, is_atomic=False)
        await node.heard.wait_for_offset(2)
        is_committed.set()
        assert await writing > 0


async def test_a_snapshot_covers_only_what_is_committed(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        with pytest.raises(ValueError, match="above the high watermark 1"):
            await node.quorum.write_snapshot(OffsetAndEpoch(9, 1), [], 0)
        with pytest.raises(ValueError, match="below the log's start"):
            await node.quorum.write_snapshot(OffsetAndEpoch(0, 1), [], 0)


# ---------------------------------------------------------------- requests


async def test_replicas_read_the_log_and_the_snapshots(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        quorum = node.quorum
        await node.heard.wait_for_leadership(1)
        quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=False)
        await node.heard.wait_for_offset(1)
        fetch = requests.fetch_request(CLUSTER_ID, 1, key(9), OffsetAndEpoch(0, 0), -1, 1000)
        answer = await quorum.handle(fetch)
        assert isinstance(answer, FetchResponse)
        partition = answer.responses[0].partitions[0]
        assert [b.base_offset for b in decode_batches(partition.records or b"")] == [0, 1]
        assert partition.high_watermark == 2

        snapshot_id = OffsetAndEpoch(2, 1)
        await quorum.write_snapshot(snapshot_id, encode_records([TOPIC]), 7)
        for position, expected in (
            (0, ErrorCode.NONE),
            (9999, ErrorCode.POSITION_OUT_OF_RANGE),
        ):
            request = requests.fetch_snapshot_request(
                CLUSTER_ID, 1, key(9), snapshot_id, position, 50
            )
            message = await quorum.handle(request)
            assert isinstance(message, FetchSnapshotResponse)
            part = message.topics[0].partitions[0]
            assert part.error_code == expected
            assert len(part.unaligned_records) == (50 if position == 0 else 0)


async def test_a_waiting_fetch_gets_records_as_soon_as_there_are_some(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        fetch = requests.fetch_request(CLUSTER_ID, 1, key(9), OffsetAndEpoch(1, 1), 1, 1000)
        waiting = asyncio.ensure_future(node.quorum.handle(fetch))
        await asyncio.sleep(0)
        assert not waiting.done()
        node.quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=False)
        answer = await waiting
        assert isinstance(answer, FetchResponse)
        records = answer.responses[0].partitions[0].records
        assert [b.records for b in decode_batches(records or b"")] == [[TOPIC]]


async def test_the_quorum_is_described(tmp_path: Path) -> None:
    async with running(str(tmp_path)) as node:
        await node.heard.wait_for_leadership(1)
        data = DescribeQuorumRequest.TopicData
        request = DescribeQuorumRequest(
            topics=[
                data(
                    topic_name="__cluster_metadata",
                    partitions=[data.PartitionData(partition_index=0)],
                )
            ]
        )
        answer = await node.quorum.handle(request)
        assert isinstance(answer, DescribeQuorumResponse)
        partition = answer.topics[0].partitions[0]
        assert (partition.leader_id, partition.high_watermark) == (1, 1)
        assert node.quorum.leader_endpoint == endpoints(1)[0]
        with pytest.raises(ApiError, match="MetadataRequest is not for the quorum"):
            node.quorum.handle(MetadataRequest())


# ---------------------------------------------------------------- faults


async def test_a_dead_metadata_directory_stops_the_quorum() -> None:
    files = MemoryFileSystem()
    files.make_directories("/disk")
    async with running("/disk", files=files) as node:
        await node.heard.wait_for_leadership(1)
        files.faults.append(Fault("", ""))
        waiting = asyncio.ensure_future(
            node.quorum.handle(
                requests.fetch_request(CLUSTER_ID, 1, key(9), OffsetAndEpoch(1, 1), 1, 1000),
            )
        )
        node.quorum.append(1, [TOPIC], metadata_version=LEVEL, is_atomic=False)
        with pytest.raises(ApiError, match="BROKER_NOT_AVAILABLE"):
            await waiting
        assert node.heard.offsets == [(0, 0)], "what is not on the disk is not committed"
        assert node.faults
        files.faults.clear()


async def test_a_stop_does_not_wait_for_voters_that_are_not_there(tmp_path: Path) -> None:
    async with running(str(tmp_path), voters=(1, 2, 3)) as node:
        assert node.quorum.leader.leader_id == -1
        await asyncio.wait_for(node.quorum.stop(3600), 60)
        late = node.quorum.handle(
            requests.fetch_request(CLUSTER_ID, 1, key(9), OffsetAndEpoch(1, 1), 1, 1000),
        )
        with pytest.raises(ApiError, match="BROKER_NOT_AVAILABLE"):
            await late


async def test_a_quorum_that_was_not_started_can_be_stopped(tmp_path: Path) -> None:
    async with running(str(tmp_path), is_started=False) as node:
        assert node.quorum.leader == LeaderAndEpoch()
        assert node.quorum.high_watermark is None
    assert not (tmp_path / DIRECTORY_NAME / "quorum-state").exists()
