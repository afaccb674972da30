"""A consumer of one partition with an isolation level."""

from typing import Any, NamedTuple

from spindle.client.fetching import AbortedProducer
from spindle.client.isolation import shown_batches
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.records.record import decode_records
from spindle.protocol.sentinels import READ_COMMITTED
from spindle.runtime.peers.port import PeerUnavailable
from spindle.testing.histories.events import NumberedRecord
from verification.simulation.client import SimulatedClient
from verification.simulation.topic import Topic
from verification.simulation.transactional_producer import record_of


class ReadRecord(NamedTuple):
    """A record and its offset."""

    offset: int
    record: NumberedRecord


class PartitionReader:
    """Reads from a position on.

    Attributes:
        position: the next offset to read.
        is_at_end: the last answer had everything up to the end of the log: no transaction is open.
    """

    def __init__(
        self, client: SimulatedClient, topic: Topic, index: int, *, isolation_level: int
    ) -> None:
        self.position = 0
        self.is_at_end = False
        self.where = TopicPartition(topic.name, index)
        self._state = "nothing is read yet"
        self._client = client
        self._topic = topic
        self._index = index
        self._isolation_level = isolation_level

    @property
    def waits_for(self) -> str:
        return f"a reader of {self.where}: at {self.position}, {self._state}"

    async def poll(self) -> list[ReadRecord]:
        """Fetch once; nothing if there is no answer."""
        topic = self._topic
        leader = await self._client.leader(topic.topic_id, topic.name, self._index)
        if leader is None:
            await self._client.pause()
            return []
        part = FetchRequest.FetchTopic.FetchPartition(
            partition=self._index,
            current_leader_epoch=leader.epoch,
            fetch_offset=self.position,
            partition_max_bytes=1 << 20,
        )
        kind = FetchRequest.FetchTopic
        request = FetchRequest(
            max_wait_ms=200,
            min_bytes=1,
            isolation_level=self._isolation_level,
            topics=[kind(topic_id=topic.topic_id, topic=topic.name, partitions=[part])],
        )
        try:
            answer = await self._client.ask(leader.destination, request)
        except PeerUnavailable:
            answer = None
        if answer is None or not answer.responses or answer.responses[0].partitions[0].error_code:
            self._client.forget(topic.topic_id, self._index)
            await self._client.pause()
            return []
        return self._take(answer.responses[0].partitions[0])

    def _take(self, row: Any) -> list[ReadRecord]:
        data = bytes(row.records or b"")
        aborted = [
            AbortedProducer(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()
        ]
        records: list[ReadRecord] = []
        start = self.position
        for at, header, is_shown in shown_batches(data, aborted):
            self.position = max(self.position, header.next_offset)
            if is_shown:
                records += [
                    ReadRecord(record.offset, record_of(record.value or b""))
                    for record in decode_records(data, at, header)
                    if record.offset >= start
                ]
        end = row.high_watermark
        stable = row.last_stable_offset if self._isolation_level == READ_COMMITTED else end
        self.is_at_end = self.position >= end and stable >= end
        self._state = f"last stable offset {row.last_stable_offset}, high watermark {end}"
        return records
