"""Voters of a dynamic quorum that are removed and added, as an operator does it (KIP-853).

A controller is known by its id and the id of its metadata directory: one that has lost its disk is
another voter. It may lose it only while no other voter is missing and no change is running:
otherwise nothing might ever be committed again.
"""

from random import Random
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.common.ids import METADATA_TOPIC
from spindle.common.uuids import Uuid, uuid_text
from spindle.disks.identity import load_ensemble
from spindle.protocol.messages.add_raft_voter import AddRaftVoterRequest
from spindle.protocol.messages.describe_quorum import DescribeQuorumRequest
from spindle.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from spindle.raft.roles import Leader
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.cluster import CONTROLLER_PORT, SimulatedCluster, SimulatedNode
from verification.simulation.trace import History

_TIMEOUT_MS: Final = 3000
_MIN_VOTERS: Final = 2

Voter = tuple[int, Uuid]
"""The id of a node and that of its metadata directory."""


class VoterAdmin:
    """Changes one voter at a time.

    Attributes:
        is_certain: the fate of every request so far is known.
    """

    def __init__(
        self, client: SimulatedClient, cluster: SimulatedCluster, history: History, random: Random
    ) -> None:
        self.is_certain = True
        self._is_busy = False
        self._client = client
        self._cluster = cluster
        self._history = history
        self._random = random

    @property
    def can_spare_one(self) -> bool:
        """All are voters, that is committed, no request may change it now, and two are enough."""
        if self._is_busy or not self.is_certain:
            return False
        for node in self._cluster.controllers:
            core = node.quorum_core
            if core is not None and isinstance(core.role, Leader):
                offset = core.history.voters_offset
                is_committed = offset is None or offset < core.leader_high_watermark
                wanted = {directory_of(node) for node in self._cluster.controllers}
                voters = {tuple(key) for key in core.voters.keys}
                return is_committed and voters == wanted and len(voters) > _MIN_VOTERS
        return False

    async def change(self) -> None:
        """Remove a voter whose disk is lost, add one that is missing, or remove any."""
        self._is_busy = True
        try:
            await self._change()
        finally:
            self._is_busy = False

    async def _change(self) -> None:
        voters = await self._describe()
        if voters is None:
            return
        wanted = {directory_of(node): node for node in self._cluster.controllers}
        gone = [voter for voter in voters if voter not in wanted]
        missing = [node for voter, node in wanted.items() if voter not in voters]
        if gone:
            await self._remove(gone[0])
        elif missing:
            await self._add(missing[0])
        elif len(voters) > _MIN_VOTERS and self._random.random() < 0.7:
            await self._remove(self._random.choice(voters))

    async def complete(self) -> None:
        """Make every controller a voter again."""
        wanted = {directory_of(node) for node in self._cluster.controllers}
        while (voters := await self._describe()) is None or set(voters) != wanted:
            if voters is not None:
                gone = [voter for voter in voters if voter not in wanted]
                missing = [n for n in self._cluster.controllers if directory_of(n) not in voters]
                if gone:
                    await self._remove(gone[0])
                else:
                    await self._add(missing[0])
            await self._client.pause()

    async def _describe(self) -> list[Voter] | None:
        kind = DescribeQuorumRequest.TopicData
        answer = await self._ask(
            DescribeQuorumRequest(
                topics=[
                    kind(topic_name=METADATA_TOPIC, partitions=[kind.PartitionData()]),
                ]
            )
        )
        if answer is None or answer.error_code or not answer.topics:
            return None
        partition = answer.topics[0].partitions[0]
        if partition.error_code:
            return None
        return [(v.replica_id, v.replica_directory_id) for v in partition.current_voters]

    async def _remove(self, voter: Voter) -> None:
        voter_id, directory_id = voter
        self._history.note(f"voter {voter_id} in {uuid_text(directory_id)} is to be removed")
        self._take(
            await self._ask(
                RemoveRaftVoterRequest(
                    cluster_id=self._cluster.cluster_id,
                    voter_id=voter_id,
                    voter_directory_id=directory_id,
                )
            )
        )

    async def _add(self, node: SimulatedNode) -> None:
        voter_id, directory_id = directory_of(node)
        self._history.note(f"voter {voter_id} in {uuid_text(directory_id)} is to be added")
        listener = AddRaftVoterRequest.Listener(
            name="CONTROLLER", host=node.host, port=CONTROLLER_PORT
        )
        self._take(
            await self._ask(
                AddRaftVoterRequest(
                    cluster_id=self._cluster.cluster_id,
                    timeout_ms=_TIMEOUT_MS,
                    voter_id=voter_id,
                    voter_directory_id=directory_id,
                    listeners=[listener],
                )
            )
        )

    def _take(self, answer: Any) -> None:
        if answer is None or answer.error_code == ErrorCode.REQUEST_TIMED_OUT:
            self.is_certain = False

    async def _ask(self, request: Any) -> Any:
        try:
            return await self._client.ask_any(request)
        except PeerUnavailable:
            return None


def directory_of(node: SimulatedNode) -> Voter:
    """Return a controller as a voter of the quorum."""
    disks = node.machine.disks
    with disks.observed():
        path = node.config.metadata_log_dir
        properties = load_ensemble(disks, [path]).formatted[path]
    assert properties.directory_id is not None
    return node.plan.node_id, properties.directory_id
