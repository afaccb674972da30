"""Transactional producers that break the rules: they share ids, and send for each other.

Random requests seldom open a transaction. These producers do, and then disturb it: with the epochs
of former producers, batches and offsets of partitions that were not added, markers that no
coordinator has sent, and ends while the former end is still being completed. Each of their requests
must be answered in any case.
"""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any, Final

from spindle.protocol.message import Message
from spindle.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from spindle.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from spindle.protocol.messages.describe_transactions import DescribeTransactionsRequest
from spindle.protocol.messages.end_txn import EndTxnRequest
from spindle.protocol.messages.init_producer_id import InitProducerIdRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from spindle.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from verification.fuzz.load_clients import PlayerMove, play
from verification.fuzz.values import GROUPS, TOPICS

_IDS: Final = tuple(f"producers-{number}" for number in range(6))
"""Several, because a forged marker can leave the transaction of one without an end."""
_PLAYERS: Final = 6
_MAX_KNOWN: Final = 4
_TIMEOUTS_MS: Final = (100, 500, 60_000)
_NAMED_PRODUCE: Final = (9, 11, 12)
_OLD_ADDS: Final = 3

Identity = tuple[int, int]


class HostileProducers:
    """All producers of a few transactional ids, on a connection of each."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._host = host
        self._port = port
        self._random = Random(f"{seed}: producers")
        self._identities: dict[str, list[Identity]] = {name: [(0, 0)] for name in _IDS}

    async def play(self, is_over: Callable[[], bool]) -> None:
        """Send requests until it is over.

        Raises:
            Finding: a request was not answered in time.
        """
        await play(self._host, self._port, _PLAYERS, self._random, self._next_move, is_over)

    def _next_move(self) -> PlayerMove:
        name = self._random.choice(_IDS)
        request, version = self._request(name)
        return PlayerMove(request, version, partial(self._learn, name))

    def _learn(self, name: str, response: Any) -> None:
        """Keep the producer id and epoch of an answer, and the former ones as well."""
        producer_id = getattr(response, "producer_id", -1)
        if producer_id >= 0:
            identity = (producer_id, response.producer_epoch)
            known = [one for one in self._identities[name] if one != identity]
            self._identities[name] = [identity, *known][:_MAX_KNOWN]

    def _request(self, name: str) -> tuple[Message, int | None]:
        """Return a request and its version, or None for the newest one."""
        random = self._random
        known = self._identities[name]
        producer_id, epoch = known[0] if random.random() < 0.7 else random.choice(known)
        if random.random() < 0.1:
            epoch = random.choice((-1, epoch + 1, 32_767))
        topic, partition = random.choice(TOPICS[:2]), random.choice((0, 1, 1, 7))
        chance = random.random()
        if chance < 0.15:
            return self._init(name, producer_id, epoch)
        if chance < 0.3:
            return self._add(name, producer_id, epoch, topic, partition)
        if chance < 0.55:
            return self._produce(name, producer_id, epoch, topic, partition)
        if chance < 0.7:
            return self._commit_offsets(name, producer_id, epoch, topic)
        if chance < 0.92:
            committed = random.random() < 0.5
            end = EndTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                committed=committed,
            )
            return end, random.choice((4, 5))
        if chance < 0.99:
            return DescribeTransactionsRequest(transactional_ids=list(_IDS)), None
        return self._marker(producer_id, epoch, topic, partition)

    def _init(self, name: str, producer_id: int, epoch: int) -> tuple[Message, int]:
        random = self._random
        again = random.random() < 0.3
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=random.choice(_TIMEOUTS_MS),
            producer_id=producer_id if again else -1,
            producer_epoch=epoch if again else -1,
        )
        return request, random.choice((4, 5))

    def _add(
        self, name: str, producer_id: int, epoch: int, topic: str, partition: int
    ) -> tuple[Message, int]:
        if self._random.random() < 0.2:
            offsets = AddOffsetsToTxnRequest(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                group_id=self._random.choice(GROUPS),
            )
            return offsets, 3
        added = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(
            name=topic, partitions=[partition]
        )
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[added],
        )
        return request, _OLD_ADDS

    def _produce(
        self, name: str, producer_id: int, epoch: int, topic: str, partition: int
    ) -> tuple[Message, int]:
        random = self._random
        records = build_batch(
            [SimpleRecord(value=b"v", timestamp_ms=1_700_000_000_000)],
            producer_id=producer_id,
            producer_epoch=max(epoch, 0),
            base_sequence=random.choice((0, 0, 1, 2, 9)),
            is_transactional=random.random() < 0.9,
        )
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            transactional_id=random.choice((name, name, name, random.choice(_IDS), None)),
            acks=-1,
            timeout_ms=1_000,
            topic_data=[data(name=topic, partition_data=[part])],
        )
        return request, random.choice(_NAMED_PRODUCE)

    def _commit_offsets(
        self, name: str, producer_id: int, epoch: int, topic: str
    ) -> tuple[Message, int]:
        random = self._random
        wanted = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        part = wanted.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        request = TxnOffsetCommitRequest(
            transactional_id=name,
            group_id=random.choice(GROUPS),
            producer_id=producer_id,
            producer_epoch=epoch,
            topics=[wanted(name=topic, partitions=[part])],
        )
        return request, random.choice((2, 3, 4, 5))

    def _marker(
        self, producer_id: int, epoch: int, topic: str, partition: int
    ) -> tuple[Message, None]:
        random = self._random
        marker = WriteTxnMarkersRequest.WritableTxnMarker
        places = marker.WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])
        one = marker(
            producer_id=producer_id,
            producer_epoch=max(epoch, 0),
            transaction_result=random.random() < 0.5,
            topics=[places],
            coordinator_epoch=random.choice((0, 1, -1, 2**31 - 1)),
            transaction_version=random.choice((0, 1, 2, 9)),
        )
        return WriteTxnMarkersRequest(markers=[one]), None
