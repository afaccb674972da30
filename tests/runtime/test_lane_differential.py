"""The lane and the Python path answer the same frames with the same bytes, and write the same."""

import asyncio
from pathlib import Path
from random import Random
from struct import unpack
from typing import Any

import pytest
from metrics_scrape import Labels, scrape
from node_harness import LANE_KEY, Client, Home, connected, running

from spindle.common.native import is_native_available
from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.produce import ProduceRequest
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.runtime.node import Node

pytestmark = pytest.mark.skipif(not is_native_available(), reason="there is no native code")

TOPICS = ("created", "rolled")
PARTITIONS = 2
TRAFFIC = (
    "_bytes_in_total",
    "_bytes_out_total",
    "_messages_in_total",
    "_requests_total",
    "_request_metrics_total_time_seconds_count",
    "_outgoing_byte_total",
    "_connection_creation_total",
)
"""Ends of the names of metrics that count requests and their bytes."""
BASE_MS = 1_700_000_000_000


class Frames:
    """A seeded sequence of requests: most are sound, some are repeated, late, damaged or cut."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sequences: dict[tuple[int, str, int], int] = {}
        self.counts: dict[tuple[str, int], int] = {}
        self.correlation_id = 0

    def next(self) -> tuple[bytes, bool]:
        """Return a frame, and whether it has a response."""
        if self.random.random() < 0.55:
            return self._produce()
        return self._fetch(), True

    def _frame(self, request: Message, version: int) -> bytes:
        self.correlation_id += 1
        prefix = request_prefix(request.API_KEY, version, self.correlation_id, "differential")
        return prefix + encode(request, version)

    def _produce(self) -> tuple[bytes, bool]:
        random = self.random
        topic_data = []
        for topic in random.sample(TOPICS, random.choice((1, 1, 1, 2))):
            parts = random.sample(range(PARTITIONS), random.choice((1, 1, 2)))
            data = ProduceRequest.TopicProduceData
            topic_data.append(
                data(
                    name=topic,
                    partition_data=[
                        data.PartitionProduceData(index=index, records=self._batch(topic, index))
                        for index in parts
                    ],
                )
            )
        acks = random.choice((1, 1, 1, -1, -1, 0))
        request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topic_data)
        return self._frame(request, random.randint(3, 12)), acks != 0

    def _batch(self, topic: str, index: int) -> bytes:
        random = self.random
        count = random.choice((1, 1, 2, 5, 40))
        producer_id = random.choice((-1, -1, 11, 12))
        key = (producer_id, topic, index)
        sequence = self.sequences.get(key, 0)
        kind = random.random()
        options: dict[str, Any] = {}
        if producer_id >= 0:
            if kind > 0.94:
                sequence = max(sequence - 1, 0)  # a part of an earlier batch
            elif kind > 0.9:
                sequence += 3
            else:
                self.sequences[key] = sequence + count
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        stamp_ms = BASE_MS + random.randrange(1_000_000)
        size = random.choice((0, 10, 200, 3000))
        records = [
            SimpleRecord(random.randbytes(size), timestamp_ms=stamp_ms) for _ in range(count)
        ]
        batch = bytearray(build_batch(records, **options))
        if random.random() < 0.04:
            batch[random.randrange(len(batch))] ^= 1 << random.randrange(8)
        if random.random() < 0.02:
            del batch[random.randrange(len(batch)) :]
        self.counts[topic, index] = self.counts.get((topic, index), 0) + count
        return bytes(batch)

    def _fetch(self) -> bytes:
        random = self.random
        wanted = FetchRequest.FetchTopic
        topics = []
        for topic in random.sample(TOPICS, random.choice((1, 1, 2))):
            parts = []
            for index in random.sample(range(PARTITIONS), random.choice((1, 2))):
                end = self.counts.get((topic, index), 0)
                parts.append(
                    wanted.FetchPartition(
                        partition=index,
                        fetch_offset=random.randint(0, end + 1),
                        partition_max_bytes=random.choice((1, 500, 70_000, 1 << 20)),
                    )
                )
            topics.append(wanted(topic=topic, partitions=parts))
        return self._frame(
            FetchRequest(
                max_wait_ms=random.choice((0, 0, 1)),
                min_bytes=random.choice((0, 1, 1, 5000)),
                max_bytes=random.choice((1, 5000, 200_000, 1 << 25)),
                isolation_level=random.choice((0, 1)),
                session_epoch=-1,
                topics=topics,
            ),
            random.randint(4, 12),
        )


async def answers(node: Node, client: Client, frame: bytes, has_answer: bool) -> bytes | None:
    """Return the response; None if the connection was closed instead."""
    try:
        await client.send(frame)
        return await client.receive() if has_answer else b""
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


async def compare(folder: Path, seed: int, count: int) -> None:
    homes = []
    for name, enabled in (("python", "false"), ("lane", "true")):
        (folder / name).mkdir()
        options = {
            LANE_KEY.replace(".", "_"): enabled,
            "spindle_metrics_listener": "127.0.0.1:0",
        }
        homes.append(Home(folder / name, 1, **options).format())
    frames = Frames(seed)
    async with running(homes[0]) as python, running(homes[1]) as lane:
        for node in (python, lane):
            async with connected(node) as admin:
                await admin.create_topic("created", PARTITIONS)
                configs = {"segment.bytes": "1048576", "index.interval.bytes": "0"}
                await admin.create_topic("rolled", PARTITIONS, configs)
        await exchange(python, lane, frames, count)
        assert await traffic_of(lane) == await traffic_of(python)
    contents = [files_of(home) for home in homes]
    assert contents[0].keys() == contents[1].keys()
    for name, content in contents[0].items():
        assert content == contents[1][name], name


async def exchange(python: Node, lane: Node, frames: Frames, count: int) -> None:
    assert lane.broker is not None
    done = was_in_lane = 0
    while done < count:
        async with connected(python) as one, connected(lane) as other:
            while done < count:
                done += 1
                frame, has_answer = frames.next()
                answered = await asyncio.gather(
                    answers(python, one, frame, has_answer),
                    answers(lane, other, frame, has_answer),
                )
                key, version = unpack(">hh", frame[:4])
                assert answered[0] == answered[1], f"request {done}: key {key}, version {version}"
                was_in_lane += lane.broker.connections_in_lanes
                if not has_answer:
                    closed = await asyncio.gather(is_closed(one), is_closed(other))
                    assert closed[0] == closed[1], f"request {done}"
                    if closed[0]:
                        break
                if answered[0] is None:
                    break
    assert was_in_lane > count // 10


async def is_closed(client: Client) -> bool:
    """Return whether a request without a response has closed the connection."""
    probe = request_prefix(18, 0, 1, "probe")
    try:
        await client.send(probe)
        await client.receive()
    except (asyncio.IncompleteReadError, ConnectionError):
        return True
    return False


async def traffic_of(node: Node) -> dict[tuple[str, Labels], float]:
    """Return the counters of requests, and of bytes and messages of topics."""
    samples = await scrape(node)
    return {
        (name, labels): value
        for (name, labels), value in samples.items()
        if name.endswith(TRAFFIC) and ("request", "AlterPartition") not in labels
    }


def files_of(home: Home) -> dict[str, bytes]:
    return {
        f"{folder.name}/{file.name}": file.read_bytes()
        for folder in home.directories[0].iterdir()
        if folder.name.startswith(TOPICS)
        for file in folder.iterdir()
        if file.name != "partition.metadata"  # it has the topic's id
    }


def test_the_same_frames_get_the_same_answers_and_leave_the_same_files(tmp_path: Path) -> None:
    asyncio.run(compare(tmp_path, seed=1, count=250))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_frames_get_the_same_answers_and_leave_the_same_files(
    tmp_path: Path, seed: int
) -> None:
    asyncio.run(compare(tmp_path, seed, count=2000))
