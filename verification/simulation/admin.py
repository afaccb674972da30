"""Topics that come and go, leaders that are elected, replicas that move; each until it is done."""

from collections.abc import Sequence
from typing import Any

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid, uuid_text
from spindle.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
)
from spindle.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.delete_topics import DeleteTopicsRequest
from spindle.protocol.messages.elect_leaders import ElectLeadersRequest
from spindle.raft.ready import Destination
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.metadata_oracle import MetadataOracle
from verification.simulation.topic import Topic
from verification.simulation.trace import History
from verification.simulation.verdict import Verdict

_TIMEOUT_MS = 3000


class Admin:
    """Checks that an acknowledged change is committed at that moment."""

    def __init__(
        self, client: SimulatedClient, metadata: MetadataOracle, verdict: Verdict, history: History
    ) -> None:
        self.waits_for = "nothing"
        self._client = client
        self._metadata = metadata
        self._verdict = verdict
        self._history = history
        self.deleted: dict[Uuid, str] = {}
        """The names of deleted topics by id."""

    async def create(
        self, name: str, partitions: int, replication_factor: int, configs: dict[str, str]
    ) -> Topic:
        self.waits_for = f"the creation of {name}"
        request = CreateTopicsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[
                        CreateTopicsRequest.CreatableTopic.CreatableTopicConfig(
                            name=key, value=value
                        )
                        for key, value in configs.items()
                    ],
                )
            ],
        )
        while True:
            answer = await self._ask(request)
            code = None if answer is None else answer.topics[0].error_code
            topic_id = None
            if answer is not None and code == ErrorCode.NONE:
                topic_id = answer.topics[0].topic_id
                self._verdict.check(
                    topic_id in self._metadata.newest.topics.by_id,
                    f"the creation of {name} with id {uuid_text(topic_id)} was acknowledged, but "
                    "is not committed",
                )
            elif code == ErrorCode.TOPIC_ALREADY_EXISTS:
                # An attempt whose answer was lost. Only one admin is at work.
                topic_id = await self._client.topic_id(name)
                if topic_id in self.deleted:
                    topic_id = None  # the queried node does not know it yet
            if topic_id is not None:
                self._history.note(f"{name} is created with id {uuid_text(topic_id)}")
                self.waits_for = "nothing"
                return Topic(name, topic_id, partitions)
            await self._client.pause()

    async def delete(self, topic: Topic) -> None:
        self.waits_for = f"the deletion of {topic.name}"
        self._history.note(f"{topic.name} with id {uuid_text(topic.topic_id)} is to be deleted")
        topic.is_deleted = True
        self.deleted[topic.topic_id] = topic.name
        request = DeleteTopicsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic.topic_id)],
        )
        while True:
            answer = await self._ask(request)
            code = None if answer is None else answer.responses[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID):
                self._verdict.check(
                    topic.topic_id not in self._metadata.newest.topics.by_id,
                    f"the deletion of {topic.name} was acknowledged, but is not committed",
                )
                self.waits_for = "nothing"
                return
            await self._client.pause()

    async def delete_records(self, topic: Topic, index: int, offset: int) -> None:
        """Try once to delete the records below `offset` (-1: below the high watermark)."""
        leader = await self._client.leader(topic.topic_id, topic.name, index)
        if leader is None:
            return
        kind = DeleteRecordsRequest.DeleteRecordsTopic
        self._history.note(f"records of {topic.name}-{index} below {offset} are to be deleted")
        request = DeleteRecordsRequest(
            timeout_ms=_TIMEOUT_MS,
            topics=[
                kind(
                    name=topic.name,
                    partitions=[kind.DeleteRecordsPartition(partition_index=index, offset=offset)],
                )
            ],
        )
        try:
            await self._client.ask(leader.destination, request)
        except PeerUnavailable:
            self._client.forget(topic.topic_id, index)

    async def elect_preferred(self) -> None:
        """Try once."""
        await self._ask(
            ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=_TIMEOUT_MS)
        )

    async def elect_uncleanly(self, name: str, partitions: Sequence[int]) -> None:
        """Try once. Only where losses are allowed, or nothing was committed."""
        kind = ElectLeadersRequest.TopicPartitions
        await self._ask(
            ElectLeadersRequest(
                election_type=1,
                topic_partitions=[kind(topic=name, partitions=list(partitions))],
                timeout_ms=_TIMEOUT_MS,
            )
        )

    async def reassign(self, topic: Topic, index: int, replicas: list[int]) -> None:
        """Try once."""
        kind = AlterPartitionReassignmentsRequest.ReassignableTopic
        self._history.note(f"{topic.name}-{index} is to move to {replicas}")
        await self._ask(
            AlterPartitionReassignmentsRequest(
                timeout_ms=_TIMEOUT_MS,
                topics=[
                    kind(
                        name=topic.name,
                        partitions=[
                            kind.ReassignablePartition(partition_index=index, replicas=replicas)
                        ],
                    )
                ],
            )
        )

    async def move(self, topic: Topic, index: int, broker: Destination, path: str) -> None:
        """Try once to move a broker's replica to one of its directories."""
        kind = AlterReplicaLogDirsRequest.AlterReplicaLogDir
        self._history.note(f"{topic.name}-{index} on broker {broker.host} is to move to {path}")
        moved = kind.AlterReplicaLogDirTopic(name=topic.name, partitions=[index])
        request = AlterReplicaLogDirsRequest(dirs=[kind(path=path, topics=[moved])])
        try:
            await self._client.ask(broker, request)
        except PeerUnavailable:
            return

    async def _ask(self, request: Any) -> Any:
        try:
            return await self._client.ask_any(request)
        except PeerUnavailable:
            return None
