"""An ordinary client beside the attackers: its responses must stay correct and in time.

It produces, reads back, commits and asks for its topic and configuration, and knows every answer
beforehand, because nobody else uses its topic and its group.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.metadata import MetadataRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from spindle.protocol.messages.offset_fetch import OffsetFetchRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.record import decode_records
from verification.fuzz.wire import Finding, RawConnection

_TOPIC: Final = "canary-topic"
_GROUP: Final = "canary-group"
_NAMED_VERSION: Final = 9
"""Newest version of the APIs of groups, and a sound one of Fetch, that names topics by name."""
_PRODUCE_VERSION: Final = 9
_FETCH_VERSION: Final = 12
_COORDINATOR_TRIES: Final = 100


class Canary:
    """One client with a topic and a group of its own.

    Attributes:
        latencies_ms: one entry per request, by `clock_s`.
    """

    def __init__(
        self, client: RawConnection, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._client = client
        self._clock_s = clock_s
        self._next_offset = 0
        self._topic: Any = None
        self._versions: dict[int, tuple[int, int]] = {}
        self.latencies_ms: list[float] = []

    async def prepare(self) -> None:
        """Create the topic, find the coordinator, note what the node says about itself."""
        topic = CreateTopicsRequest.CreatableTopic(
            name=_TOPIC, num_partitions=1, replication_factor=1
        )
        await self._client.ask(CreateTopicsRequest(timeout_ms=10_000, topics=[topic]))
        for _ in range(_COORDINATOR_TRIES):
            response = await self._client.ask(
                FindCoordinatorRequest(key_type=0, coordinator_keys=[_GROUP])
            )
            ready = await self._committed()
            if response.coordinators[0].error_code == 0 and ready[0] == 0:
                break
            await asyncio.sleep(0.1)
        self._topic = (await self._metadata()).topics
        self._versions = await self._client.versions()
        self._next_offset = await self._latest()

    async def check(self) -> None:
        """One round through everything.

        Raises:
            Finding: an answer that is wrong.
        """
        offset = self._next_offset
        value = b"canary %d" % offset
        self._next_offset += 1
        _expect("produce", await self._produce(value), (0, offset))
        _expect("fetch", await self._fetch(offset), (0, [(offset, value)]))
        _expect("latest offset", await self._latest(), self._next_offset)
        _expect("offset commit", await self._commit(offset), 0)
        _expect("offset fetch", await self._committed(), (0, offset))
        _expect("metadata", (await self._metadata()).topics, self._topic)
        _expect("versions", await self._client.versions(), self._versions)

    def close(self) -> None:
        self._client.close()

    async def _ask(self, request: Any, version: int) -> Any:
        started_s = self._clock_s()
        response = await self._client.ask(request, version)
        self.latencies_ms.append((self._clock_s() - started_s) * 1000)
        return response

    async def _produce(self, value: bytes) -> tuple[int, int]:
        data = ProduceRequest.TopicProduceData
        records = build_batch([SimpleRecord(value=value)])
        part = data.PartitionProduceData(index=0, records=records)
        request = ProduceRequest(
            acks=-1, timeout_ms=30_000, topic_data=[data(name=_TOPIC, partition_data=[part])]
        )
        response = await self._ask(request, _PRODUCE_VERSION)
        answer = response.responses[0].partition_responses[0]
        return answer.error_code, answer.base_offset

    async def _fetch(self, offset: int) -> tuple[int, list[tuple[int, bytes]]]:
        wanted = FetchRequest.FetchTopic
        part = wanted.FetchPartition(
            partition=0, fetch_offset=offset, partition_max_bytes=1 << 20, current_leader_epoch=-1
        )
        request = FetchRequest(
            max_wait_ms=10_000,
            min_bytes=1,
            max_bytes=1 << 20,
            topics=[wanted(topic=_TOPIC, partitions=[part])],
        )
        response = await self._ask(request, _FETCH_VERSION)
        data = response.responses[0].partitions[0]
        records = data.records or b""
        numbered = [
            (record.offset, bytes(record.value or b""))
            for at, header in batches(records)
            for record in decode_records(records, at, header)
        ]
        return data.error_code, numbered

    async def _latest(self) -> int:
        wanted = ListOffsetsRequest.ListOffsetsTopic
        part = wanted.ListOffsetsPartition(partition_index=0, timestamp=-1)
        request = ListOffsetsRequest(replica_id=-1, topics=[wanted(name=_TOPIC, partitions=[part])])
        response = await self._ask(request, _NAMED_VERSION)
        return int(response.topics[0].partitions[0].offset)

    async def _commit(self, offset: int) -> int:
        wanted = OffsetCommitRequest.OffsetCommitRequestTopic
        part = wanted.OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
        request = OffsetCommitRequest(
            group_id=_GROUP,
            generation_id_or_member_epoch=-1,
            topics=[wanted(name=_TOPIC, partitions=[part])],
        )
        response = await self._ask(request, _NAMED_VERSION)
        return int(response.topics[0].partitions[0].error_code)

    async def _committed(self) -> tuple[int, int]:
        group = OffsetFetchRequest.OffsetFetchRequestGroup
        topic = group.OffsetFetchRequestTopics(name=_TOPIC, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[group(group_id=_GROUP, topics=[topic])])
        answer = (await self._ask(request, _NAMED_VERSION)).groups[0]
        if answer.error_code:
            return int(answer.error_code), -1
        part = answer.topics[0].partitions[0]
        return int(part.error_code), int(part.committed_offset)

    async def _metadata(self) -> Any:
        wanted = MetadataRequest.MetadataRequestTopic(name=_TOPIC)
        request = MetadataRequest(topics=[wanted], allow_auto_topic_creation=False)
        return await self._ask(request, _NAMED_VERSION)


def _expect(what: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise Finding(f"canary: {what} gave {found!r}, not {wanted!r}")
