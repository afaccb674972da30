"""An idempotent producer that tries until it succeeds, one batch at a time."""

import asyncio
from typing import Final

from spindle.common.errors import ErrorCode
from spindle.common.uuids import uuid_text
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.sentinels import ACKS_ALL
from spindle.runtime.peers.port import PeerUnavailable
from verification.simulation.client import SimulatedClient
from verification.simulation.record_oracle import Payload, RecordOracle
from verification.simulation.topic import Topic
from verification.simulation.trace import History
from verification.simulation.verdict import Verdict

_GONE: Final = (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_RETRIABLE: Final = (
    *_GONE,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
)
_TOMBSTONES: Final = 0.25
_FORGOTTEN: Final = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


class Producer:
    """Writes numbered records into one partition; with acks=1, some of them may be lost.

    Attributes:
        acknowledged: how many records the brokers have confirmed.
        partition: where it writes, topic and index.
        waits_for: what it is at, for whoever asks why it does not end.
    """

    def __init__(
        self,
        name: str,
        client: SimulatedClient,
        topic: Topic,
        index: int,
        records: RecordOracle,
        verdict: Verdict,
        history: History,
        acks: int = ACKS_ALL,
    ) -> None:
        self.name = name
        self.acknowledged = 0
        self.partition = (topic.name, index)
        self.waits_for = "nothing"
        self._client = client
        self._topic = topic
        self._index = index
        self._oracle = records.of(topic.topic_id, topic.name, index)
        self._records = records
        self._verdict = verdict
        self._history = history
        self._producer_id = -1
        self._producer_epoch = -1
        self._acks = acks
        self._number = 0
        self._sequence = 0

    async def start(self) -> None:
        """Get a producer id."""
        self.waits_for = "a producer id"
        while True:
            try:
                answer = await self._client.ask_any(InitProducerIdRequest(transactional_id=None))
            except PeerUnavailable:
                await self._client.pause()
                continue
            if answer.error_code == ErrorCode.NONE:
                self._producer_id = answer.producer_id
                self._producer_epoch = answer.producer_epoch
                return
            await self._client.pause()

    async def send(self) -> bool:
        """Send one batch until it is acknowledged; return False if the topic is gone."""
        first = self._number
        count = self._client.random.randint(1, 3)
        payloads = [
            Payload(uuid_text(self._topic.topic_id), self.name, number)
            for number in range(first, first + count)
        ]
        # Producers whose newest record is old are forgotten by their brokers.
        now_ms = int(asyncio.get_running_loop().time() * 1000)
        batch = build_batch(
            [self._record(p, now_ms) for p in payloads],
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self._sequence,
        )
        while True:
            self.waits_for = f"{self.name}: {payloads[0].number} in {self._oracle}"
            code, offset = await self._try(batch)
            if code == ErrorCode.NONE:
                is_committed = self._acks == ACKS_ALL
                if is_committed and (
                    not self._topic.is_deleted or offset < self._oracle.end_offset
                ):
                    # A leader may commit records and delete their log in one event.
                    self._records.acknowledged(self._oracle, offset, payloads)
                self._number += count
                self._sequence += count
                self.acknowledged += count
                self.waits_for = "nothing"
                return True
            if code in _FORGOTTEN and (self._oracle.has_lost or self._acks != ACKS_ALL):
                # The new leader does not know this producer, or less of it: it is another one now.
                await self.start()
                self._number += count
                self._sequence = 0
                return True
            if code is not None and code not in _RETRIABLE:
                self._verdict.violated(
                    f"{self.name} was told {ErrorCode(code).name} for number {first} in "
                    f"{self._oracle}"
                )
                return False
            if self._topic.is_deleted:
                return False
            self._client.forget(self._topic.topic_id, self._index)
            await self._client.pause()

    def _record(self, payload: Payload, now_ms: int) -> SimpleRecord:
        data = payload.encode()
        if self._oracle.is_compacted and self._client.random.random() < _TOMBSTONES:
            return SimpleRecord(payload.key, None, now_ms, (("payload", data),))
        return SimpleRecord(payload.key, data, now_ms)

    async def _try(self, batch: bytes) -> tuple[int | None, int]:
        """Error code and offset of an answer; None where there is none."""
        topic = self._topic
        leader = await self._client.leader(topic.topic_id, topic.name, self._index)
        if leader is None:
            return None, -1
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            acks=self._acks,
            timeout_ms=1500,
            topic_data=[
                data(
                    topic_id=topic.topic_id,
                    name=topic.name,
                    partition_data=[data.PartitionProduceData(index=self._index, records=batch)],
                )
            ],
        )
        try:
            answer = await self._client.ask(leader.destination, request)
        except PeerUnavailable:
            return None, -1
        row = answer.responses[0].partition_responses[0]
        return row.error_code, row.base_offset
