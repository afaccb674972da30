"""A broker comes back without the disk of a replica that may have the only copy of records."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cluster_harness import cluster_homes
from node_harness import Client, Home, batch_of, connected
from waiting import until

from spindle.metadata.partitions import PartitionRegistration
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.runtime.node import Node

OWNER, OTHER = 2, 3
TOPIC = CreateTopicsRequest.CreatableTopic


class Brokers:
    """A controller that stays, and the brokers 2 and 3, which come and go."""

    def __init__(self, homes: list[Home]) -> None:
        self._homes = dict(enumerate(homes, 1))
        self.nodes: dict[int, Node] = {}

    async def start(self, number: int) -> Node:
        node = self.nodes[number] = Node(self._homes[number].config())
        await node.start()
        return node

    async def stop(self, number: int) -> None:
        await self.nodes.pop(number).stop()

    async def stop_all(self) -> None:
        for number in sorted(self.nodes, reverse=True):
            await self.stop(number)

    def home(self, number: int) -> Home:
        return self._homes[number]

    def partition(self) -> PartitionRegistration:
        return self.nodes[1].publisher.image.topics.by_name["t"].partitions[0]

    async def until(self, is_so: Callable[[PartitionRegistration], bool]) -> None:
        async with asyncio.timeout(30):
            await until(lambda: is_so(self.partition()))

    def disk(self) -> Path:
        """Return the directory of the owner's replica."""
        (path,) = [d for d in self.home(OWNER).directories if (d / "t-0").exists()]
        return path

    def has_replica(self, number: int) -> bool:
        broker = self.nodes[number].broker
        assert broker is not None
        return broker.replicas.lookup("t", 0) is not None

    def log_end(self, number: int) -> int:
        broker = self.nodes[number].broker
        assert broker is not None
        partition = broker.replicas.lookup("t", 0)
        return -1 if partition is None else partition.log.log_end_offset


async def create(client: Client) -> None:
    topic = TOPIC(
        name="t",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[TOPIC.CreatableReplicaAssignment(broker_ids=[OWNER, OTHER])],
    )
    response = await client.ask(CreateTopicsRequest(timeout_ms=10_000, topics=[topic]))
    assert response.topics[0].error_code == 0, response


@asynccontextmanager
async def only_the_owner_has_all_records(folder: Path, *, has_elr: bool) -> AsyncIterator[Brokers]:
    """Both have 1 record, the owner has another one, and both brokers have been stopped."""
    homes = cluster_homes(folder, ["controller", "broker", "broker"])
    if not has_elr:
        for home in homes:
            for directory in home.directories:
                shutil.rmtree(directory)
            home.format("--feature", "eligible.leader.replicas.version=0")
    brokers = Brokers(homes)
    try:
        await brokers.start(1)
        await brokers.start(OWNER)
        await brokers.start(OTHER)
        async with connected(brokers.nodes[OWNER]) as client:
            await create(client)
            await until(lambda: brokers.has_replica(OWNER) and brokers.has_replica(OTHER))
            assert (await client.produce("t", 0, batch_of(b"both"))).error_code == 0
            await brokers.stop(OTHER)
            assert (await client.produce("t", 0, batch_of(b"owner"))).error_code == 0
        await brokers.stop(OWNER)
        yield brokers
    finally:
        await brokers.stop_all()


@pytest.mark.parametrize("has_elr", [True, False])
@pytest.mark.parametrize("loss", ["replaced", "taken out"])
async def test_a_lost_log_does_not_cost_the_other_replica_its_records(
    tmp_path: Path, has_elr: bool, loss: str
) -> None:
    async with only_the_owner_has_all_records(tmp_path, has_elr=has_elr) as brokers:
        home = brokers.home(OWNER)
        disk, aside = brokers.disk(), tmp_path / "aside"
        disk.rename(aside)
        if loss == "replaced":
            home.format("--ignore-formatted")
        else:
            (left,) = [d for d in home.directories if d != disk]
            home.properties["log.dirs"] = str(left)
        await brokers.start(OWNER)
        await brokers.start(OTHER)
        assert brokers.partition().leader == -1
        assert not brokers.has_replica(OWNER)
        assert brokers.log_end(OTHER) == 1
        # The operator accepts the loss.
        async with connected(brokers.nodes[OTHER]) as client:
            election = ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])
            answer = await client.ask(
                ElectLeadersRequest(election_type=1, topic_partitions=[election])
            )
            assert answer.replica_election_results[0].partition_result[0].error_code == 0
            await brokers.until(lambda p: p.leader == OTHER and len(p.isr) == 2)
            assert brokers.log_end(OWNER) == brokers.log_end(OTHER) == 1
            assert (await client.fetch("t", 0, 0)).high_watermark == 1


@pytest.mark.parametrize("has_elr", [True, False])
async def test_the_records_are_there_again_when_the_disk_comes_back(
    tmp_path: Path, has_elr: bool
) -> None:
    async with only_the_owner_has_all_records(tmp_path, has_elr=has_elr) as brokers:
        disk, aside = brokers.disk(), tmp_path / "aside"
        disk.rename(aside)
        brokers.home(OWNER).format("--ignore-formatted")
        await brokers.start(OTHER)
        await brokers.start(OWNER)
        assert brokers.partition().leader == -1
        await brokers.stop(OWNER)
        shutil.rmtree(disk)
        aside.rename(disk)
        await brokers.start(OWNER)
        await brokers.until(lambda p: p.leader == OWNER and len(p.isr) == 2)
        assert brokers.log_end(OTHER) == 2


async def test_a_directory_id_of_another_broker_is_refused_with_a_reason(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk of one broker was copied into another one, and its node.id changed."""
    overrides = {"initial_broker_registration_timeout_ms": "300"}
    homes = cluster_homes(tmp_path, ["controller", "broker", "broker"], **overrides)
    original, copy = (home.directories[1] / "meta.properties" for home in homes[1:])
    copy.write_text(original.read_text().replace("node.id=2", "node.id=3"))

    brokers = Brokers(homes)
    try:
        await brokers.start(1)
        await brokers.start(2)
        node = await brokers.start(3)
        fault = await asyncio.wait_for(node.wait_stopped(), 30)
        assert fault is not None
        assert "initial.broker.registration.timeout.ms=300: INVALID_REGISTRATION" in fault
        assert 3 not in brokers.nodes[1].publisher.image.cluster.brokers
    finally:
        await brokers.stop_all()
    reasons = {r.getMessage() for r in caplog.records if "was not registered" in r.getMessage()}
    assert len(reasons) == 1
    assert "broker 3 was not registered" in (text := reasons.pop())
    assert "Broker 2 is already registered with directory" in text
