"""Three drivers in one process: election, replication to listeners, failover."""

import asyncio
from errno import ENOSPC
from pathlib import Path
from random import Random
from time import monotonic, time

import pytest
from quorum_node import CLUSTER_ID, endpoints, key, static_voters
from quorum_wire import Network
from test_metadata_quorum import LEVEL, TOPIC, Recorder
from waiting import until

from spindle.common.filesystem import OsFileSystem
from spindle.common.ids import NO_LEADER, OffsetAndEpoch
from spindle.log.storage import LogStorage
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.metadata_log import MetadataLog, RetentionSettings
from spindle.metadata_log.partition_log import DIRECTORY_NAME, PartitionLog, metadata_log_config
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import NoOpRecord
from spindle.raft.settings import LocalNode, QuorumSettings
from spindle.runtime.disks.directory_thread import DirectoryThread
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum

FAST = QuorumSettings(
    election_timeout_ms=100,
    fetch_timeout_ms=600,
    election_backoff_max_ms=50,
    request_timeout_ms=500,
    retry_backoff_ms=5,
    fetch_snapshot_max_bytes=40,
)
_OFFSET_S = time() - monotonic()


class Member:
    """One node: voters are 1, 2 and 3, others observe."""

    def __init__(
        self, node_id: int, root: Path, network: Network, settings: QuorumSettings = FAST
    ) -> None:
        self.node_id = node_id
        self._settings = settings
        self.heard = Recorder()
        self.faults: list[BaseException] = []
        self._directory = root / f"node{node_id}"
        self._directory.mkdir(exist_ok=True)
        self._network = network

    async def start(self) -> None:
        path = str(self._directory)
        files = OsFileSystem()
        loop = asyncio.get_running_loop()
        self.thread = DirectoryThread(path, loop, self.faults.append)
        storage = await self.thread.submit(
            PartitionLog.open, LogStorage(files, path), metadata_log_config(), 0
        )
        log = MetadataLog(
            files, f"{path}/{DIRECTORY_NAME}", storage, RetentionSettings(max_bytes=1, max_ms=-1)
        )
        can_vote = self.node_id <= 3
        local = LocalNode(
            key(self.node_id),
            CLUSTER_ID,
            endpoints=endpoints(self.node_id) if can_vote else (),
            can_vote=can_vote,
        )
        self.quorum = RaftMetadataQuorum(
            local,
            self._settings,
            static_voters(1, 2, 3),
            log,
            self.thread,
            self._network,
            Random(self.node_id),
            lambda: int((_OFFSET_S + monotonic()) * 1000),
            self.faults.append,
        )
        await self.quorum.start()
        self.quorum.subscribe(self.heard)
        self._network.nodes[9000 + self.node_id] = self.quorum

    async def stop(self) -> None:
        await self.quorum.stop(5)
        self._network.nodes.pop(9000 + self.node_id, None)
        self.thread.stop(5)

    def append(self, record: Message) -> int:
        """Append a record as the leader of its epoch; return its offset."""
        return self.quorum.append(
            self.quorum.leader.epoch, [record], metadata_version=LEVEL, is_atomic=True
        )

    @property
    def leads(self) -> bool:
        return self.quorum.leader.leader_id == self.node_id


async def the_leader(members: list[Member]) -> Member:
    async with asyncio.timeout(20):
        while True:
            for member in members:
                if member.leads:
                    return member
            await asyncio.sleep(0.005)


async def started(members: list[Member]) -> tuple[Member, int, int]:
    """Start the members, and append a record; return the leader, its epoch and the offset."""
    for member in members:
        await member.start()
    leader = await the_leader(members)
    epoch = leader.quorum.leader.epoch
    return leader, epoch, leader.append(TOPIC)


async def test_records_reach_every_node_and_survive_the_leader(tmp_path: Path) -> None:
    network = Network()
    members = [Member(node_id, tmp_path, network) for node_id in (1, 2, 3, 4)]
    leader, epoch, last = await started(members)
    for member in members:
        await member.heard.wait_for_offset(last)
        assert member.heard.records == [TOPIC]
        assert member.heard.leaders[-1] == leader.quorum.leader

    await leader.stop()
    rest = [member for member in members if member is not leader]
    successor = await the_leader(rest)
    assert any(
        seen.epoch > epoch and seen.leader_id not in (NO_LEADER, leader.node_id)
        for seen in leader.heard.leaders
    ), "it stayed for the election"
    assert successor.quorum.leader.epoch > epoch
    epoch = successor.quorum.leader.epoch
    last = successor.append(NoOpRecord())
    for member in rest:
        await member.heard.wait_for_offset(last)
        assert member.heard.records == [TOPIC, NoOpRecord()]

    returned = Member(leader.node_id, tmp_path, network)
    await returned.start()
    await returned.heard.wait_for_offset(last)
    assert returned.heard.records == [TOPIC, NoOpRecord()]
    members = [*rest, returned]
    for member in members:
        assert not member.faults
        await member.stop()


async def test_a_leader_whose_disk_dies_stops_and_the_others_continue(tmp_path: Path) -> None:
    network = Network()
    members = [Member(node_id, tmp_path, network) for node_id in (1, 2, 3)]
    leader, _, last = await started(members)
    for member in members:
        await member.heard.wait_for_offset(last)
    leader.thread.fail(OSError(ENOSPC, "No space left on device"))
    # This record is to be lost: it is on no disk.
    leader.append(NoOpRecord())
    await until(lambda: bool(leader.faults))
    del network.nodes[9000 + leader.node_id]
    rest = [member for member in members if member is not leader]
    successor = await the_leader(rest)
    last = successor.append(TOPIC)
    for member in rest:
        await member.heard.wait_for_offset(last)
        assert member.heard.records == [TOPIC, TOPIC]
        assert not member.faults
        await member.stop()
    assert leader.heard.records == [TOPIC]
    assert "No space left on device" in str(leader.faults[0])
    leader.thread.stop(5)


async def test_a_leader_whose_disk_dies_asks_the_others_to_elect(tmp_path: Path) -> None:
    """They hear it from the leader: here they would wait for its silence longer than the test."""
    patient = FAST._replace(fetch_timeout_ms=10_000_000)

    network = Network()
    members = [Member(node_id, tmp_path, network, patient) for node_id in (1, 2, 3)]
    leader, epoch, last = await started(members)
    for member in members:
        await member.heard.wait_for_offset(last)
    leader.thread.fail(OSError(ENOSPC, "No space left on device"))
    leader.append(NoOpRecord())
    rest = [member for member in members if member is not leader]
    successor = await the_leader(rest)
    assert successor.quorum.leader.epoch > epoch
    assert {peer.id for peer in leader.quorum.peers_after_fault()} == {
        member.node_id for member in rest
    }
    assert not successor.quorum.peers_after_fault()
    for member in members:
        await member.stop()


async def test_a_snapshot_damaged_at_its_leader_does_no_harm_elsewhere(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network()
    members = [Member(node_id, tmp_path, network) for node_id in (1, 2)]
    leader, epoch, last = await started(members)
    await leader.heard.wait_for_offset(last)
    await leader.quorum.write_snapshot(OffsetAndEpoch(last + 1, epoch), encode_records([TOPIC]), 5)
    (file,) = (tmp_path / f"node{leader.node_id}" / DIRECTORY_NAME).glob("*.checkpoint")
    file.chmod(0o644)
    file.write_bytes(file.read_bytes()[:-1] + b"x")
    late = Member(3, tmp_path, network)
    await late.start()
    await until(lambda: "the snapshot that the leader sent" in caplog.text)
    leader = await the_leader(members)
    epoch = leader.quorum.leader.epoch
    last = leader.append(NoOpRecord())
    await leader.heard.wait_for_offset(last)
    await leader.quorum.write_snapshot(OffsetAndEpoch(last + 1, epoch), encode_records([TOPIC]), 5)
    await late.heard.wait_for(lambda heard: bool(heard.snapshots))
    assert late.heard.snapshots == [OffsetAndEpoch(last + 1, epoch)]
    assert not late.faults
    for member in [*members, late]:
        await member.stop()


async def test_a_node_that_comes_late_begins_with_the_snapshot(tmp_path: Path) -> None:
    network = Network()
    members = [Member(node_id, tmp_path, network) for node_id in (1, 2)]
    leader, epoch, last = await started(members)
    await leader.heard.wait_for_offset(last)
    await leader.quorum.write_snapshot(OffsetAndEpoch(last + 1, epoch), encode_records([TOPIC]), 5)
    late = Member(3, tmp_path, network)
    await late.start()
    await late.heard.wait_for(lambda heard: bool(heard.snapshots))
    assert late.heard.snapshots == [OffsetAndEpoch(last + 1, epoch)]
    assert late.heard.records == [TOPIC]
    leader = await the_leader(members)
    last = leader.append(NoOpRecord())
    await late.heard.wait_for_offset(last)
    assert late.heard.records == [TOPIC, NoOpRecord()]
    for member in [*members, late]:
        await member.stop()
