"""A consumer that reads a partition from its beginning, and commits how far it has come."""

from typing import Final

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.coordinator_link import OF_GROUPS, CoordinatorLink
from verification.simulation.record_oracle import RecordOracle
from verification.simulation.topic import Topic
from verification.simulation.verdict import Verdict

_FATAL: Final = (ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE)


class Consumer:
    """Reads one partition.

    Attributes:
        position: the next offset to read.
    """

    def __init__(
        self,
        client: SimulatedClient,
        topic: Topic,
        index: int,
        records: RecordOracle,
        verdict: Verdict,
    ) -> None:
        self.position = 0
        self._client = client
        self._topic = topic
        self._index = index
        self._records = records
        self._oracle = records.of(topic.topic_id, topic.name, index)
        self._verdict = verdict

    @property
    def has_everything(self) -> bool:
        return self.position >= self._oracle.end_offset

    @property
    def waits_for(self) -> str:
        return f"a consumer of {self._oracle}: at {self.position} of {self._oracle.end_offset}"

    async def poll(self) -> None:
        """Fetch once and compare the records with the committed ones, from the position on."""
        topic = self._topic
        leader = await self._client.leader(topic.topic_id, topic.name, self._index)
        if leader is None:
            await self._client.pause()
            return
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=self._index,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.position,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            topics=[
                FetchRequest.FetchTopic(
                    topic_id=topic.topic_id, topic=topic.name, partitions=[part]
                )
            ],
        )
        try:
            answer = await self._client.ask(leader.destination, request)
        except PeerUnavailable:
            await self._retry()
            return
        if not answer.responses:
            await self._retry()
            return
        row = answer.responses[0].partitions[0]
        if row.error_code:
            if row.error_code in _FATAL and not topic.is_deleted:
                self._refused(ErrorCode(row.error_code), leader.epoch)
            await self._retry()
            return
        data = bytes(row.records or b"")
        if data:
            base_offset = int.from_bytes(data[:8], "big")
            self._verdict.check(
                base_offset <= self.position or self._oracle.is_compacted,
                f"a consumer of {self._oracle} got offset {base_offset} where it asked for "
                f"{self.position}",
            )
            self.position = max(
                self.position,
                self._records.seen(
                    "a consumer",
                    self._oracle,
                    self.position,
                    data,
                    leader_epoch=leader.epoch,
                    is_leader=False,
                ),
            )

    def _refused(self, code: ErrorCode, leader_epoch: int) -> None:
        """Right only below the log start, and beyond what an unclean election has left."""
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and self.position < self._oracle.start_offset:
            self.position = self._oracle.start_offset
            return
        lineage = self._oracle.at(leader_epoch)
        if (
            code is ErrorCode.OFFSET_OUT_OF_RANGE
            and self._oracle.has_lost
            and self.position > lineage.end_offset
        ):
            self.position = lineage.fork_offset
            return
        self._verdict.violated(
            f"a consumer of {self._oracle} was told {code.name} at {self.position}, where "
            f"everything below {lineage.end_offset} is committed"
        )

    async def _retry(self) -> None:
        self._client.forget(self._topic.topic_id, self._index)
        await self._client.pause()


class GroupOffsets:
    """Commits offsets of one partition for a group: what was acknowledged does not go back."""

    def __init__(
        self, group_id: str, client: SimulatedClient, topic: Topic, index: int, verdict: Verdict
    ) -> None:
        self.committed = -1
        self._attempted = -1
        self._group_id = group_id
        self._topic = topic
        self._index = index
        self._verdict = verdict
        self._link = CoordinatorLink(client, group_id, OF_GROUPS)

    @property
    def is_over(self) -> bool:
        """True once the topic is deleted: its offsets may go at any time."""
        return self._topic.is_deleted

    async def commit(self, offset: int, *, member_id: str = "", generation: int = -1) -> bool:
        """Try once, as a member of the group or for oneself; True if the coordinator took it."""
        kind = OffsetCommitRequest.OffsetCommitRequestTopic
        self._attempted = max(self._attempted, offset)
        answer = await self._link.ask(
            OffsetCommitRequest(
                group_id=self._group_id,
                member_id=member_id,
                generation_id_or_member_epoch=generation,
                topics=[
                    kind(
                        topic_id=self._topic.topic_id,
                        name=self._topic.name,
                        partitions=[
                            kind.OffsetCommitRequestPartition(
                                partition_index=self._index, committed_offset=offset
                            )
                        ],
                    )
                ],
            )
        )
        if answer is None or answer.topics[0].partitions[0].error_code:
            self._link.forget()
            return False
        self.committed = max(self.committed, offset)
        return True

    async def check(self) -> bool:
        """Ask once for what is committed; True if there was an answer."""
        kind = OffsetFetchRequest.OffsetFetchRequestGroup
        row = kind.OffsetFetchRequestTopics(
            topic_id=self._topic.topic_id, name=self._topic.name, partition_indexes=[self._index]
        )
        before = self.committed
        answer = await self._link.ask(
            OffsetFetchRequest(groups=[kind(group_id=self._group_id, topics=[row])])
        )
        if answer is None or answer.groups[0].error_code:
            self._link.forget()
            return False
        partition = answer.groups[0].topics[0].partitions[0]
        if partition.error_code or self._topic.is_deleted:
            return False
        self._verdict.check(
            before <= partition.committed_offset <= self._attempted,
            f"group {self._group_id} has offset {partition.committed_offset} of "
            f"{self._topic.name}-{self._index}, where {before} was acknowledged and "
            f"{self._attempted} was the highest sent",
        )
        # A record that was seen once is committed.
        self.committed = max(self.committed, partition.committed_offset)
        return True
