"""The lane and the Python path answer the same frames with the same bytes, and write the same."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from random import Random
from struct import pack
from typing import Any, NamedTuple

import pytest
from metrics_scrape import Labels, scrape
from node_harness import LANE_KEY, Client, Home, connected, running

from spindle.common.native import is_native_available
from spindle.protocol.api import FETCH, PRODUCE, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.runtime.node import Node

pytestmark = pytest.mark.skipif(not is_native_available(), reason="there is no native code")

TOPICS = ("created", "rolled", "stamped")
PARTITIONS = 2
LAST_FETCH = 18
SESSION_VERSIONS = (7, 12, 13, LAST_FETCH)
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
CRC_AT, MAX_TIMESTAMP_AT = 17, 35
BASE_MS = 1_700_000_000_000


class Asked(NamedTuple):
    """A request for both nodes. Session id 1 stands for the session of the connection."""

    request: ProduceRequest | FetchRequest
    version: int

    @property
    def has_answer(self) -> bool:
        return not isinstance(self.request, ProduceRequest) or self.request.acks != 0


class Requests:
    """A seeded sequence of requests: most are sound, some are repeated, late, damaged or cut.

    Attributes:
        session_epoch: of the next request of the session; 0 without a session.
        uses_sessions: whether the fetches of the connection are in a session.
    """

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.sequences: dict[tuple[int, str, int], int] = {}
        self.ends: dict[tuple[str, int], int] = {}
        self.session_epoch = 0
        self.session_version = LAST_FETCH
        self.uses_sessions = False

    def next(self) -> Asked:
        if self.random.random() < (0.3 if self.uses_sessions else 0.6):
            return self._produce()
        return self._fetch_in_session() if self.uses_sessions else self._fetch()

    def appended(self, topic: str, index: int, base_offset: int) -> None:
        """Fetch up to here from now on."""
        self.ends[topic, index] = max(self.ends.get((topic, index), 0), base_offset)

    def begin_connection(self) -> int:
        """Return the number of requests of the next connection."""
        self.session_epoch = 0
        self.uses_sessions = self.random.random() < 0.5
        return self.random.randint(30, 120)

    def _produce(self) -> Asked:
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
        return Asked(request, random.randint(3, 13))

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
        return bytes(batch)

    def _topics(self, least: int) -> list[FetchRequest.FetchTopic]:
        random = self.random
        wanted = FetchRequest.FetchTopic
        topics = []
        for topic in random.sample(TOPICS, max(least, random.choice((0, 1, 1, 2)))):
            parts = []
            for index in random.sample(range(PARTITIONS), random.choice((1, 2))):
                end = self.ends.get((topic, index), 0)
                if random.random() < 0.03:
                    end += 100  # maybe out of range
                parts.append(
                    wanted.FetchPartition(
                        partition=index,
                        fetch_offset=random.randint(0, end),
                        partition_max_bytes=random.choice((1, 500, 70_000, 1 << 20)),
                    )
                )
            topics.append(wanted(topic=topic, partitions=parts))
        return topics

    def _fetch(self) -> Asked:
        request = self._fetch_request(self._topics(1))
        request.session_epoch = -1
        return Asked(request, self.random.randint(4, LAST_FETCH))

    def _fetch_request(self, topics: list[FetchRequest.FetchTopic]) -> FetchRequest:
        random = self.random
        return FetchRequest(
            max_wait_ms=random.choice((0, 0, 1)),
            min_bytes=random.choice((0, 1, 1, 5000)),
            max_bytes=random.choice((1, 5000, 200_000, 1 << 25)),
            isolation_level=random.choice((0, 1)),
            topics=topics,
        )

    def _fetch_in_session(self) -> Asked:
        """Open a session, or continue it: most requests change offsets, or nothing at all."""
        random = self.random
        if not self.session_epoch:
            self.session_version = random.choice(SESSION_VERSIONS)
            self.session_epoch = 1
            request = self._fetch_request(self._topics(2))
            request.session_epoch = 0
            return Asked(request, self.session_version)
        kind = random.random()
        request = self._fetch_request(self._topics(0) if kind < 0.3 else [])
        request.session_id, request.session_epoch = 1, self.session_epoch
        if kind > 0.97:
            request.session_epoch += 1  # not the next one
        elif kind > 0.94:
            request.session_epoch = -1  # the last one
            self.session_epoch = 0
        elif kind > 0.9:
            topic = random.choice(TOPICS)
            forgotten = FetchRequest.ForgottenTopic(topic=topic, partitions=[0])
            request.forgotten_topics_data = [forgotten]
            self.session_epoch += 1
        else:
            self.session_epoch += 1
        return Asked(request, self.session_version)


class Side:
    """A node, with its own ids and times."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self.topic_ids: dict[str, bytes] = {}
        self.session_id = 0
        self.began_ms = 0
        self.correlation_id = 0

    def frame(self, asked: Asked) -> bytes:
        """Return the request with this node's ids."""
        request, version = asked
        if isinstance(request, ProduceRequest):
            for data in request.topic_data:
                data.topic_id = self.topic_ids[data.name]
        else:
            for topic in request.topics:
                topic.topic_id = self.topic_ids[topic.topic]
            for forgotten in request.forgotten_topics_data:
                forgotten.topic_id = self.topic_ids[forgotten.topic]
            request.session_id = self.session_id if request.session_id else 0
        self.correlation_id += 1
        prefix = request_prefix(request.API_KEY, version, self.correlation_id, "differential")
        return prefix + encode(request, version)

    def comparable(
        self, asked: Asked, frame: bytes, on_appended: Callable[[str, int, int], None]
    ) -> bytes:
        """Return a response without this node's ids, and without times of appends."""
        key, version = asked.request.API_KEY, asked.version
        start = 4 + response_header_version(key, version)
        response = decode(response_class(key), version, frame, start)[0]
        for name, topic_id in self.topic_ids.items():
            frame = frame.replace(topic_id, name.encode().ljust(16))
        if isinstance(response, FetchResponse):
            return self._comparable_fetch(response, version, frame, start)
        assert isinstance(response, ProduceResponse)
        assert isinstance(asked.request, ProduceRequest)
        for asked_topic, topic in zip(asked.request.topic_data, response.responses, strict=True):
            for part in topic.partition_responses:
                on_appended(asked_topic.name, part.index, part.base_offset)
                if part.log_append_time_ms >= 0:
                    assert self.began_ms <= part.log_append_time_ms <= now_ms()
                    frame = frame.replace(pack(">q", part.log_append_time_ms), bytes(8))
        return frame

    def _comparable_fetch(
        self, response: FetchResponse, version: int, frame: bytes, start: int
    ) -> bytes:
        for topic in response.responses:
            stamped = (topic.topic, topic.topic_id) in (
                ("stamped", bytes(16)),
                ("", self.topic_ids["stamped"]),
            )
            for part in topic.partitions:
                if stamped and part.records:
                    records = bytes(part.records)
                    frame = frame.replace(records, without_times(records))
        if version < 7:
            return frame
        self.session_id = response.session_id
        at = start + 6  # behind the throttle time and the error
        return frame[:at] + bytes([response.session_id != 0]) + frame[at + 4 :]


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def without_times(records: bytes) -> bytes:
    """Return batches without their times of appends, and without the checksums of these."""
    data = bytearray(records)
    for at, header in batches(records):
        assert header.has_log_append_time
        data[at + CRC_AT : at + CRC_AT + 4] = bytes(4)
        data[at + MAX_TIMESTAMP_AT : at + MAX_TIMESTAMP_AT + 8] = bytes(8)
    return bytes(data)


async def answers(client: Client, frame: bytes, has_answer: bool) -> bytes | None:
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
    requests = Requests(seed)
    async with running(homes[0]) as python, running(homes[1]) as lane:
        sides = Side(python), Side(lane)
        for side in sides:
            await create_topics(side)
        await exchange(sides, requests, count)
        assert await traffic_of(lane) == await traffic_of(python)
    contents = [files_of(home) for home in homes]
    assert contents[0].keys() == contents[1].keys()
    for name, content in contents[0].items():
        assert content == contents[1][name], name


async def create_topics(side: Side) -> None:
    small = {"segment.bytes": "1048576", "index.interval.bytes": "0"}
    stamped = {"message.timestamp.type": "LogAppendTime"}
    side.began_ms = now_ms()
    async with connected(side.node) as admin:
        for name, configs in (("created", {}), ("rolled", small), ("stamped", stamped)):
            side.topic_ids[name] = await admin.create_topic(name, PARTITIONS, configs)


async def exchange(sides: tuple[Side, Side], requests: Requests, count: int) -> None:
    lane = sides[1].node.broker
    assert lane is not None
    done = 0
    in_lane: Counter[tuple[int, int, bool]] = Counter()
    while done < count:
        last = min(count, done + requests.begin_connection())
        async with connected(sides[0].node) as one, connected(sides[1].node) as other:
            while done < last:
                done += 1
                asked = requests.next()
                frames = [side.frame(deepcopy(asked)) for side in sides]
                received = await asyncio.gather(
                    answers(one, frames[0], asked.has_answer),
                    answers(other, frames[1], asked.has_answer),
                )
                compared = [
                    side.comparable(asked, frame, requests.appended) if frame else frame
                    for side, frame in zip(sides, received, strict=True)
                ]
                key, version = asked.request.API_KEY, asked.version
                assert compared[0] == compared[1], f"request {done}: key {key}, version {version}"
                is_session = getattr(asked.request, "session_id", 0) > 0
                in_lane[key, version, is_session] += lane.connections_in_lanes
                if not sides[0].session_id:
                    requests.session_epoch = 0
                if not asked.has_answer:
                    closed = await asyncio.gather(is_closed(one), is_closed(other))
                    assert closed[0] == closed[1], f"request {done}"
                    if closed[0]:
                        break
                if received[0] is None:
                    break
            # A large response counts once the node knows that it was sent.
            await asyncio.gather(is_closed(one), is_closed(other))
    assert in_lane.total() > count // 10
    assert in_lane[PRODUCE, 13, False], "topic ids of Produce"
    assert any(in_lane[FETCH, version, False] for version in range(13, LAST_FETCH + 1)), "topic ids"
    assert any(in_lane[FETCH, version, True] for version in SESSION_VERSIONS), "sessions"


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
    """Return the content of the files of all logs, without ids and times of appends."""
    contents = {}
    for folder in home.directories[0].iterdir():
        if folder.name.startswith(TOPICS):
            for file in folder.iterdir():
                content = file.read_bytes()
                if folder.name.startswith("stamped"):
                    content = without_times(content) if file.suffix == ".log" else b""
                if file.name != "partition.metadata":
                    contents[f"{folder.name}/{file.name}"] = content
    return contents


def test_the_same_frames_get_the_same_answers_and_leave_the_same_files(tmp_path: Path) -> None:
    asyncio.run(compare(tmp_path, seed=1, count=250))


@pytest.mark.full
@pytest.mark.parametrize("seed", range(2, 12))
def test_many_frames_get_the_same_answers_and_leave_the_same_files(
    tmp_path: Path, seed: int
) -> None:
    asyncio.run(compare(tmp_path, seed, count=2000))
