"""Controllers join and leave a running quorum (KIP-853), step by step as recorded from Kafka.

The recorded run (Apache Kafka 4.3.1): node 1 is formatted as the only voter, 2 and 3 are added, 3
is removed, 4 joins by itself, loses its disk and joins again, and the leader is removed.
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest
from cluster_harness import free_ports
from metadata_files import directory_id, logged_batches, quorum_state
from node_harness import CLUSTER_ID, Client, Home
from waiting import until

from spindle.common.errors import ErrorCode
from spindle.common.uuids import parse_uuid
from spindle.protocol.message import Message
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.api_versions import ApiVersionsRequest
from spindle.protocol.messages.describe_cluster import DescribeClusterRequest
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest
from spindle.protocol.messages.metadata_records import RegisterControllerRecord
from spindle.protocol.messages.raft_records import (
    KRaftVersionRecord,
    LeaderChangeMessage,
    VotersRecord,
)
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.runtime.node import Node

RECORDED_CHANGES: list[list[tuple[Any, ...]]] = [
    [("leader", 1, [1]), ("kraft.version", 1), ("voters", [1])],
    [("controller", 1)],
    [("controller", 2)],
    [("voters", [1, 2])],
    [("controller", 3)],
    [("voters", [1, 2, 3])],
    [("voters", [1, 2])],
    [("controller", 4)],
    [("voters", [1, 2, 4])],
    [("controller", 4)],
    [("voters", [1, 2])],
    [("voters", [1, 2, 4])],
    [("voters", [2, 4])],
]
"""Each line is a batch; then one of the rest leads, whichever it is."""


class Controllers:
    """Controllers 1 to 4 with a folder each; they are started and stopped one by one."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(4)
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        self.homes: dict[int, Home] = {}
        self.nodes: dict[int, Node] = {}
        self.ports = dict(enumerate(ports, 1))
        for node_id, port in self.ports.items():
            place = folder / f"node{node_id}"
            place.mkdir()
            self.homes[node_id] = Home(
                place,
                1,
                process_roles="controller",
                node_id=str(node_id),
                listeners=f"CONTROLLER://127.0.0.1:{port}",
                controller_quorum_voters="",
                controller_quorum_bootstrap_servers=servers,
                controller_quorum_election_timeout_ms="100",
                controller_quorum_auto_join_enable=str(node_id == 4).lower(),
            )

    def directory(self, node_id: int) -> Path:
        return self.homes[node_id].directories[0]

    def directory_id(self, node_id: int) -> bytes:
        return parse_uuid(directory_id(self.directory(node_id)))

    async def start(self, node_id: int) -> None:
        self.nodes[node_id] = Node(self.homes[node_id].config())
        await self.nodes[node_id].start()

    async def stop(self, node_id: int) -> None:
        await self.nodes.pop(node_id).stop()

    async def ask(self, node_id: int, request: Message) -> Any:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.ports[node_id]))
        try:
            return await client.ask(request)
        finally:
            client.close()

    async def described(self, leader_id: int) -> Any:
        topic = DescribeQuorumRequest.TopicData(
            topic_name="__cluster_metadata",
            partitions=[DescribeQuorumRequest.TopicData.PartitionData(partition_index=0)],
        )
        return await self.ask(leader_id, DescribeQuorumRequest(topics=[topic]))

    async def quorum(self, leader_id: int) -> tuple[list[int], list[int]]:
        """Return (voters, observers) as the leader describes them; nothing by another node."""
        partition = (await self.described(leader_id)).topics[0].partitions[0]
        return (
            sorted(replica.replica_id for replica in partition.current_voters),
            sorted(replica.replica_id for replica in partition.observers),
        )

    async def until(self, leader_id: int, voters: list[int], observers: list[int]) -> None:
        async def are_there() -> bool:
            return await self.quorum(leader_id) == (voters, observers)

        await until(are_there)

    async def add(self, node_id: int, at: int) -> Any:
        listener = AddRaftVoterRequest.Listener(
            name="CONTROLLER", host="127.0.0.1", port=self.ports[node_id]
        )
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=5000,
            voter_id=node_id,
            voter_directory_id=self.directory_id(node_id),
            listeners=[listener],
        )
        return await self.ask(at, request)

    async def remove(self, node_id: int, directory: bytes, at: int) -> Any:
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=directory
        )
        return await self.ask(at, request)

    async def registered(self, node_id: int, at: int, incarnations: int = 1) -> None:
        """Wait until a controller has registered so often."""

        async def has() -> bool:
            logged = changes(self.directory(at))
            return sum(("controller", node_id) in batch for batch in logged) >= incarnations

        await until(has)


def changes(directory: Path) -> list[list[tuple[Any, ...]]]:
    """Return the changes of leader, voters and controllers in a metadata log, by batch."""
    batches = [
        [change for change in map(_change, records) if change]
        for _, _, records in logged_batches(directory)
    ]
    return [batch for batch in batches if batch]


def _change(record: Message) -> tuple[Any, ...] | None:
    match record:
        case LeaderChangeMessage():
            return ("leader", record.leader_id, sorted(v.voter_id for v in record.voters))
        case KRaftVersionRecord():
            return ("kraft.version", record.k_raft_version)
        case VotersRecord():
            return ("voters", sorted(voter.voter_id for voter in record.voters))
        case RegisterControllerRecord():
            return ("controller", record.controller_id)
    return None


async def everything(quorum: Controllers) -> None:
    async def has_joined() -> bool:
        return changes(quorum.directory(1))[-1] == [("voters", [1, 2, 4])]

    async def has_successor() -> bool:
        return quorum.nodes[2].publisher.leader.leader_id in (2, 4)

    quorum.homes[1].format("--standalone")
    for node_id in (2, 3, 4):
        quorum.homes[node_id].format("--no-initial-controllers")
    await quorum.start(1)
    await quorum.registered(1, at=1)

    for node_id, others in ((2, [1]), (3, [1, 2])):
        await quorum.start(node_id)
        await quorum.until(1, others, [node_id])
        await quorum.registered(node_id, at=1)
        assert quorum_state(quorum.directory(node_id))["leaderId"] == 1
        # A voter is added where the leader is; any other controller refuses.
        if node_id == 3:
            refused = await quorum.add(3, at=2)
            assert refused.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        added = await quorum.add(node_id, at=1)
        assert (added.error_code, added.error_message) == (0, None)
        assert await quorum.quorum(1) == (sorted([*others, node_id]), [])
    twice = await quorum.add(2, at=1)
    assert twice.error_code == ErrorCode.DUPLICATE_VOTER

    for node_id, directory in ((9, quorum.directory_id(3)), (3, quorum.directory_id(2))):
        refused = await quorum.remove(node_id, directory, at=1)
        assert refused.error_code == ErrorCode.VOTER_NOT_FOUND
    removed = await quorum.remove(3, quorum.directory_id(3), at=1)
    assert removed.error_code == 0
    await quorum.until(1, [1, 2], [3])

    await quorum.start(4)
    await quorum.until(1, [1, 2, 4], [3])
    await quorum.stop(4)
    shutil.rmtree(quorum.directory(4))
    quorum.homes[4].format("--no-initial-controllers")
    await quorum.start(4)
    await quorum.registered(4, at=1, incarnations=2)
    await until(has_joined)
    assert await quorum.quorum(1) == ([1, 2, 4], [3, 4]), "the lost disk counts as an observer"

    removed = await quorum.remove(1, quorum.directory_id(1), at=1)
    while removed.error_code == ErrorCode.REQUEST_TIMED_OUT:  # the last change is not committed yet
        removed = await quorum.remove(1, quorum.directory_id(1), at=1)
    assert removed.error_code == 0
    await until(has_successor)
    leader_id = quorum.nodes[2].publisher.leader.leader_id
    await quorum.until(leader_id, [2, 4], [1, 3])
    for node_id in quorum.nodes:
        described = await quorum.ask(node_id, DescribeClusterRequest(endpoint_type=2))
        assert described.controller_id == leader_id
        versions = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        levels = (await quorum.ask(node_id, versions)).finalized_features
        assert {f.name: f.max_version_level for f in levels}["kraft.version"] == 1


@pytest.mark.full
async def test_controllers_come_and_go_as_in_the_recorded_quorum(tmp_path: Path) -> None:
    quorum = Controllers(tmp_path)

    async def scenario() -> None:
        try:
            await everything(quorum)
        finally:
            for node_id in list(quorum.nodes):
                await quorum.stop(node_id)

    await scenario()
    played = changes(quorum.directory(1))
    assert played[: len(RECORDED_CHANGES)] == RECORDED_CHANGES
    (after_removal, *_) = played[len(RECORDED_CHANGES) :]
    assert after_removal[0][2] == [2, 4], "the first act of the next leader"
    for node_id in (1, 2, 3, 4):
        assert quorum_state(quorum.directory(node_id))["data_version"] == 1


async def test_a_voter_that_moved_sends_the_leader_its_new_address(tmp_path: Path) -> None:
    quorum = Controllers(tmp_path)

    async def voter_ports() -> dict[int, int]:
        """As the leader knows them, whichever node that is."""
        answers = [await quorum.described(node_id) for node_id in quorum.nodes]
        return {node.node_id: node.listeners[0].port for a in answers for node in a.nodes}

    try:
        quorum.homes[1].format("--standalone")
        quorum.homes[2].format("--no-initial-controllers")
        await quorum.start(1)
        await quorum.start(2)
        await quorum.registered(2, at=1)  # it has caught up
        assert (await quorum.add(2, at=1)).error_code == 0
        assert await voter_ports() == {1: quorum.ports[1], 2: quorum.ports[2]}
        await quorum.stop(2)
        quorum.ports[2] = quorum.ports[3]
        quorum.homes[2].properties["listeners"] = f"CONTROLLER://127.0.0.1:{quorum.ports[2]}"
        await quorum.start(2)

        async def has_moved() -> bool:
            return await voter_ports() == {1: quorum.ports[1], 2: quorum.ports[2]}

        await until(has_moved)
    finally:
        for node_id in list(quorum.nodes):
            await quorum.stop(node_id)
