"""An ordinary transactional producer next to the attackers: its transactions end as it says."""

import asyncio
import time
from typing import Any, Final

from spindle.common.errors import ErrorCode
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.end_txn import EndTxnRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from verification.fuzz.wire import Finding, NoAnswer, RawConnection

_TOPIC: Final = "canary-transactions"
_ID: Final = "canary"
_LIMIT_S: Final = 20.0
_PAUSE_S: Final = 0.02
_READ_COMMITTED: Final = 1
_NAMED_PRODUCE: Final = 12
_NAMED_LIST_OFFSETS: Final = 9
_WAITING: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


class TransactionalCanary:
    """One producer with a topic and a transactional id of its own.

    Each transaction is a record and a marker, so it adds two offsets, all of them stable once the
    transaction has ended.
    """

    def __init__(self, client: RawConnection) -> None:
        self._client = client
        self._producer_id = -1
        self._epoch = -1
        self._end = 0
        self._rounds = 0

    async def prepare(self) -> None:
        """Create the topic, find the coordinator and get a producer id."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=_TOPIC, num_partitions=1, replication_factor=1
        )
        await self._client.ask(CreateTopicsRequest(timeout_ms=10_000, topics=[topic]))
        find = FindCoordinatorRequest(key_type=1, coordinator_keys=[_ID])
        await self._until_ready("find coordinator", find, lambda a: a.coordinators[0].error_code)
        init = InitProducerIdRequest(transactional_id=_ID, transaction_timeout_ms=600_000)
        answer = await self._until_ready("producer id", init, lambda a: a.error_code, 5)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._end = await self._stable_end()

    async def check(self) -> None:
        """Play one transaction; they are committed and aborted in turn.

        Raises:
            Finding: an answer that is wrong, or a transaction that does not end.
        """
        self._rounds += 1
        await self._until_ready(
            "produce", self._batch(), lambda a: a.responses[0].partition_responses[0].error_code,
            _NAMED_PRODUCE,
        )  # fmt: skip
        _expect("stable end of an open transaction", await self._stable_end(), self._end)
        end = EndTxnRequest(
            transactional_id=_ID,
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=self._rounds % 2 == 1,
        )
        answer = await self._until_ready("end", end, lambda a: a.error_code, 5)
        is_next_epoch = answer.producer_id == self._producer_id
        _expect("epoch", answer.producer_epoch, self._epoch + 1 if is_next_epoch else 0)
        self._producer_id, self._epoch = answer.producer_id, answer.producer_epoch
        self._end += 2
        deadline_s = time.monotonic() + _LIMIT_S
        while (end_now := await self._stable_end()) < self._end:
            if time.monotonic() > deadline_s:
                text = f"canary: no marker, the stable end is {end_now}, not {self._end}"
                raise NoAnswer(text, _LIMIT_S)
            await asyncio.sleep(_PAUSE_S)
        _expect("stable end", end_now, self._end)

    def close(self) -> None:
        self._client.close()

    async def _until_ready(
        self, what: str, request: Any, error_of: Any, version: int | None = None
    ) -> Any:
        """Ask again while the coordinator is not ready; any other error is a finding."""
        deadline_s = time.monotonic() + _LIMIT_S
        while True:
            answer = await self._client.ask(request, version)
            error = error_of(answer)
            if error not in _WAITING:
                _expect(what, error, ErrorCode.NONE)
                return answer
            if time.monotonic() > deadline_s:
                raise NoAnswer(f"transactional canary: {what} gave {error!r}", _LIMIT_S)
            await asyncio.sleep(_PAUSE_S)

    def _batch(self) -> ProduceRequest:
        records = build_batch(
            [SimpleRecord(value=b"%d" % self._rounds)],
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=0, records=records)
        return ProduceRequest(
            transactional_id=_ID,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[data(name=_TOPIC, partition_data=[part])],
        )

    async def _stable_end(self) -> int:
        wanted = ListOffsetsRequest.ListOffsetsTopic
        part = wanted.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=_READ_COMMITTED,
            topics=[wanted(name=_TOPIC, partitions=[part])],
        )
        answer = await self._client.ask(request, _NAMED_LIST_OFFSETS)
        partition = answer.topics[0].partitions[0]
        _expect("list offsets", partition.error_code, ErrorCode.NONE)
        return int(partition.offset)


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Finding(f"transactional canary: {what} gave {found!r}, not {wanted!r}")
