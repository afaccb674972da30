"""The writer of dead letters: topics, batches, repetitions and copied records."""

import asyncio
from collections.abc import Awaitable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from node_properties import COMBINED
from share_leader import FakeHosted

from spindle.common.errors import ApiError, ErrorCode, LogDirectoryFailed
from spindle.config.node_config import NodeConfig
from spindle.coordinator.share.dead_letters import DeadLetterConfig
from spindle.coordinator.share.share_partition import DeadLetterRange
from spindle.metadata.features import SHARE_VERSION
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.records.batch import HEADER_BYTES, batches
from spindle.protocol.records.record import Record, decode_bounded
from spindle.runtime.peers.port import PeerUnavailable
from spindle.runtime.share import dead_letter_writer
from spindle.runtime.share.dead_letter_writer import DeadLetterWriter
from spindle.runtime.share.settings import delivery_config_of

TOPIC = "dlq.t"


class Cluster:
    """A cluster whose only other node leads all partitions of the dead-letter topic."""

    def __init__(self, config: DeadLetterConfig | None, max_message_bytes: int = 10_000) -> None:
        self.hosted = FakeHosted()
        self.topics: dict[str, Any] = {}
        self.codes: list[int | None] = []
        self.produced: list[tuple[int, list[Record]]] = []
        self.created: list[str] = []
        image = SimpleNamespace(
            topics=SimpleNamespace(by_name=self.topics),
            configs=SimpleNamespace(
                broker=lambda _: {},
                default_broker=lambda: {"errors.deadletterqueue.auto.create.topics.enable": "true"},
            ),
            cluster=SimpleNamespace(brokers={2: SimpleNamespace(endpoints=())}),
        )
        self.settings = settings = SimpleNamespace(
            accepts_dead_letters=True,
            log_config=SimpleNamespace(max_message_bytes=max_message_bytes),
        )
        self.writer = DeadLetterWriter(
            NodeConfig(COMBINED),
            cast(Any, SimpleNamespace(image=image)),
            cast(Any, self),
            lambda _: config,
            lambda _: cast(Any, settings),
            self.create,
            lambda: 5,
        )

    def add_topic(self, partitions: int) -> None:
        parts = {index: SimpleNamespace(leader=2) for index in range(partitions)}
        self.topics[TOPIC] = SimpleNamespace(topic_id=b"d" * 16, partitions=parts)

    async def create(self, name: str) -> None:
        self.created.append(name)
        self.add_topic(2)

    def request(self, destination: Any, message: Any) -> Awaitable[ProduceResponse]:
        del destination
        return self.respond(message)

    async def respond(self, request: ProduceRequest) -> ProduceResponse:
        assert request.acks == -1
        (topic,) = request.topic_data
        (part,) = topic.partition_data
        code = self.codes.pop(0) if self.codes else 0
        if code is None:
            raise PeerUnavailable("gone")
        if not code and part.records is not None:
            for position, header in batches(part.records):
                records = decode_bounded(part.records, position, header)
                self.produced.append((part.index, records))
        answer = ProduceResponse.TopicProduceResponse
        return ProduceResponse(
            responses=[
                answer(
                    partition_responses=[
                        answer.PartitionProduceResponse(index=part.index, error_code=code)
                    ]
                )
            ]
        )

    def close(self) -> None:
        """Nothing is open."""

    async def write(self, first: int, last: int) -> None:
        letters = DeadLetterRange(first, last, 1, True)
        await self.writer.write(cast(Any, self.hosted), "g", letters)


@pytest.fixture(autouse=True)
def one_node_is_reachable(monkeypatch: pytest.MonkeyPatch) -> None:
    endpoint = SimpleNamespace(host="h", port=1)
    monkeypatch.setattr(dead_letter_writer, "endpoint_of", lambda *_: endpoint)
    monkeypatch.setattr(dead_letter_writer, "_FIRST_PAUSE_S", 0.0)


async def test_a_missing_topic_is_created_once() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, False))
    await c.write(0, 0)
    await c.write(1, 1)
    assert c.created == [TOPIC]
    assert [index for index, _ in c.produced] == [0, 0]
    assert c.writer.written == {"g": 2}


async def test_a_topic_that_an_application_has_just_created_gets_no_letters() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, False))
    c.settings.accepts_dead_letters = False
    with pytest.raises(ApiError, match=r"errors\.deadletterqueue\.group\.enable=true"):
        await c.write(0, 0)
    assert (c.created, c.produced) == ([TOPIC], [])


async def test_copied_records_are_read_from_the_log_and_fill_several_batches() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, True), max_message_bytes=500)
    c.hosted.append(4)
    await c.write(1, 3)
    values = [record.value for _, records in c.produced for record in records]
    assert values == [b"v"] * 3
    assert len(c.produced) == 2
    assert c.writer.written == {"g": 3}


async def test_a_record_that_the_log_has_no_more_gets_headers_only() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, True))
    await c.write(7, 8)
    ((_, records),) = c.produced
    assert [(r.value, dict(r.headers)["__dlq.errors.offset"]) for r in records] == [
        (None, b"7"),
        (None, b"8"),
    ]


async def test_a_record_that_is_too_large_for_the_topic_gets_headers_only() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, True), max_message_bytes=500)
    c.hosted.append(3, [b"v", b"v" * 1000, b"v"])
    await c.write(0, 2)
    values = [record.value for _, records in c.produced for record in records]
    assert values == [b"v", None, b"v"]


async def test_a_corrupt_batch_takes_no_values_of_others() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, True))
    c.hosted.append(3)
    bad = c.hosted.log.batches[1]
    c.hosted.log.batches[1] = bad[:HEADER_BYTES] + b"\xff" * (len(bad) - HEADER_BYTES)
    await c.write(0, 2)
    values = [record.value for _, records in c.produced for record in records]
    assert values == [b"v", None, b"v"]


async def test_a_new_leader_copies_records_that_its_high_watermark_has_not_reached_yet() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, True))
    c.hosted.append(2)
    c.hosted.committed = 1
    await c.write(0, 1)
    values = [record.value for _, records in c.produced for record in records]
    assert values == [b"v", b"v"]


async def test_records_whose_disk_has_failed_get_no_letter_without_their_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    c = Cluster(DeadLetterConfig(TOPIC, True))

    async def fail(*arguments: Any) -> None:
        raise LogDirectoryFailed("/d", "gone", 0)

    monkeypatch.setattr(c.hosted, "submit", fail)
    with pytest.raises(LogDirectoryFailed):
        await c.write(0, 0)
    assert c.produced == []


async def test_a_leader_that_moves_or_dies_is_asked_again() -> None:
    c = Cluster(DeadLetterConfig(TOPIC, False))
    c.codes = [ErrorCode.NOT_LEADER_OR_FOLLOWER, None, ErrorCode.NOT_ENOUGH_REPLICAS]
    await c.write(0, 0)
    assert (c.writer.produced, c.writer.failed, len(c.produced)) == ({"g": 4}, {}, 1)


@pytest.mark.parametrize(
    ("codes", "attempts"),
    [([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 5, 5), ([ErrorCode.MESSAGE_TOO_LARGE], 1)],
)
async def test_a_batch_that_is_refused_for_good_is_an_error(
    codes: list[int | None], attempts: int
) -> None:
    c = Cluster(DeadLetterConfig(TOPIC, False))
    c.codes = list(codes)
    with pytest.raises(ApiError, match=r"dlq\.t-0"):
        await c.write(0, 0)
    assert (c.writer.produced, c.writer.failed) == ({"g": attempts}, {"g": 1})


async def test_without_a_valid_topic_nothing_is_written() -> None:
    for config in (None, DeadLetterConfig("orders", False)):
        c = Cluster(config)
        with pytest.raises(ApiError, match="group g"):
            await asyncio.wait_for(c.write(0, 0), 5)
        assert (c.created, c.produced) == ([], [])


@pytest.mark.parametrize(
    ("level", "topic", "expected"),
    [
        (2, "dlq.t", DeadLetterConfig("dlq.t", True)),
        (1, "dlq.t", None),
        (2, "", None),
    ],
)
def test_a_group_has_dead_letters_from_the_level_of_share_version_on(
    level: int, topic: str, expected: DeadLetterConfig | None
) -> None:
    own = {
        "errors.deadletterqueue.topic.name": topic,
        "errors.deadletterqueue.copy.record.enable": "true",
    }
    image = SimpleNamespace(
        configs=SimpleNamespace(of=lambda _: own),
        features=SimpleNamespace(levels={SHARE_VERSION: level}),
    )
    config_of = delivery_config_of(NodeConfig(COMBINED), cast(Any, SimpleNamespace(image=image)))
    config = config_of("g")
    assert config.dead_letters == expected
    assert config.delivery.has_dead_letters is (expected is not None)
