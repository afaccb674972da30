"""Clients that write hostile batches, and then use every API that decodes them later.

The settings of their topics change, too, so that leaders and the cleaner decode as well:
compaction, limits of timestamps, and codecs.
"""

import asyncio
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from spindle.protocol.message import Message
from spindle.protocol.messages.delete_records import DeleteRecordsRequest
from spindle.protocol.messages.describe_producers import DescribeProducersRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from spindle.protocol.messages.produce import ProduceRequest
from verification.fuzz.hostile_records import HOSTILE_BATCHES, prepare, sound
from verification.fuzz.load_clients import PlayerMove, play
from verification.fuzz.values import DELETABLE_TOPICS, TOPICS

_PLAYERS: Final = 3
_HEAPED: Final = TOPICS[0]
"""Most batches go to this topic, whose settings stay, so that a search meets many of them."""
_TOPICS: Final = tuple(name for name in TOPICS[1:] if name not in DELETABLE_TOPICS)
_PARTITIONS: Final = (0, 1)
_NAMED_FETCH: Final = 12
_NAMED_PRODUCE: Final = 9
_TOPIC: Final = 2
_SET, _DELETE = 0, 1
_SETTINGS: Final = (
    ("cleanup.policy", ("compact", "delete", "delete", "compact,delete")),
    ("min.cleanable.dirty.ratio", ("0.0", "0.5")),
    ("segment.ms", ("100", "1000")),
    ("retention.ms", ("1000", "-1")),
    ("compression.type", ("producer", "zstd", "uncompressed", "gzip", "snappy", "lz4")),
    ("message.timestamp.type", ("CreateTime", "LogAppendTime")),
    ("message.timestamp.before.max.ms", ("9223372036854775807", "86400000")),
)


class HostileWriters:
    """A few connections, each of which writes and asks in turn."""

    def __init__(self, host: str, port: int, seed: int) -> None:
        self._host = host
        self._port = port
        self._random = Random(f"{seed}: writers")
        self.answers: dict[str, int] = {}
        """How many answers each kind of request has got, by name."""

    async def play(self, is_over: Callable[[], bool]) -> None:
        """Send requests until it is over.

        Raises:
            Finding: a request was not answered in time.
        """
        await asyncio.to_thread(prepare)
        await play(self._host, self._port, _PLAYERS, self._random, self._next_move, is_over)

    def _next_move(self) -> PlayerMove:
        request, version = self._request()
        return PlayerMove(request, version, lambda _: self._count(request))

    def _count(self, request: Message) -> None:
        name = type(request).__name__
        self.answers[name] = self.answers.get(name, 0) + 1

    def _request(self) -> tuple[Message, int | None]:
        """Return a request and its version, or None for the newest one."""
        pick = self._random.random()
        topic = _HEAPED if self._random.random() < 0.5 else self._random.choice(_TOPICS)
        partition = self._random.choice(_PARTITIONS)
        if pick < 0.5:
            return self._produce(topic, partition)
        if pick < 0.8:
            return self._list_offsets(topic), None
        if pick < 0.86:
            return self._alter(self._random.choice(_TOPICS)), None
        if pick < 0.92:
            return self._fetch(topic, partition), _NAMED_FETCH
        if pick < 0.95:
            asked = OffsetForLeaderEpochRequest.OffsetForLeaderTopic
            epoch = self._random.choice((-1, 0, 1, 2**31 - 1))
            epochs = [asked.OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)]
            return OffsetForLeaderEpochRequest(topics=[asked(topic=topic, partitions=epochs)]), None
        if pick < 0.97:
            described = DescribeProducersRequest.TopicRequest
            return (
                DescribeProducersRequest(
                    topics=[described(name=topic, partition_indexes=list(_PARTITIONS))]
                ),
                None,
            )
        return self._delete_records(self._random.choice(_TOPICS), partition), None

    def _produce(self, topic: str, partition: int) -> tuple[Message, int]:
        random = self._random
        now_ms = int(time.time() * 1000)
        make = random.choice(HOSTILE_BATCHES)
        records = sound(now_ms) if random.random() < 0.1 else make(random, now_ms)
        data = ProduceRequest.TopicProduceData
        part = data.PartitionProduceData(index=partition, records=records)
        request = ProduceRequest(
            acks=random.choice((-1, 1)),
            timeout_ms=5_000,
            topic_data=[data(name=topic, partition_data=[part])],
        )
        return request, _NAMED_PRODUCE

    def _list_offsets(self, topic: str) -> Message:
        random = self._random
        now_ms = int(time.time() * 1000)
        timestamp = random.choice(
            (-1, -2, -3, -4, 0, 1, *2 * [now_ms - 500, now_ms, now_ms + 30_000], 2**63 - 1)
        )
        asked = ListOffsetsRequest.ListOffsetsTopic
        places = [
            asked.ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            for partition in _PARTITIONS
        ]
        return ListOffsetsRequest(
            replica_id=-1,
            isolation_level=random.choice((0, 1)),
            topics=[asked(name=topic, partitions=places)],
        )

    def _fetch(self, topic: str, partition: int) -> Message:
        wanted = FetchRequest.FetchTopic
        place = wanted.FetchPartition(
            partition=partition,
            fetch_offset=self._random.choice((0, 1, 5, 2**31)),
            partition_max_bytes=self._random.choice((1, 1 << 20)),
        )
        return FetchRequest(
            max_wait_ms=100,
            min_bytes=1,
            max_bytes=1 << 20,
            isolation_level=self._random.choice((0, 1)),
            topics=[wanted(topic=topic, partitions=[place])],
        )

    def _alter(self, topic: str) -> Message:
        key, values = self._random.choice(_SETTINGS)
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource
        change = resource.AlterableConfig(
            name=key,
            config_operation=self._random.choice((_SET, _SET, _SET, _DELETE)),
            value=self._random.choice(values),
        )
        return IncrementalAlterConfigsRequest(
            resources=[resource(resource_type=_TOPIC, resource_name=topic, configs=[change])]
        )

    def _delete_records(self, topic: str, partition: int) -> Message:
        deleted = DeleteRecordsRequest.DeleteRecordsTopic
        offset = self._random.choice((0, 1, 2, 500_000, -1, 2**62))
        place: Any = deleted.DeleteRecordsPartition(partition_index=partition, offset=offset)
        return DeleteRecordsRequest(
            timeout_ms=1_000, topics=[deleted(name=topic, partitions=[place])]
        )
