"""Batches with a correct CRC and hostile content harm neither their directory nor other clients."""

from typing import Any

import pytest
from broker_scenario import NOW_MS
from serving_scenario import ServingScenario, code_of, values_in

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.log.log_config import LogConfig
from spindle.log.segments import lookup
from spindle.protocol.messages.list_offsets import ListOffsetsRequest
from spindle.protocol.records.compression import Codec, compress
from spindle.protocol.records.record import decoded_bytes_limit, encode_record
from spindle.serving.handlers.list_offsets import MAX_TIMESTAMP, list_offsets
from verification.fuzz.hostile_records import forge, sound


class Scenario(ServingScenario):
    """Broker 1 leads "t", which the hostile client writes to, and "u"; both in one directory."""

    def __init__(self) -> None:
        super().__init__()
        self.create("t", (1,))
        self.create("u", (1,))

    def write(self, batch: bytes) -> None:
        assert code_of(self.produce(records=batch)) == ErrorCode.NONE

    def offset_at(self, timestamp: int, topic: str = "t") -> Any:
        asked = ListOffsetsRequest.ListOffsetsTopic
        partition = asked.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[asked(name=topic, partitions=[partition])]
        )
        token = self._send(list_offsets, 10, request)
        self.pass_time(1)
        return self.answer(token).topics[0].partitions[0]

    @property
    def is_offline(self) -> bool:
        return self.directories[0].executor.failure is not None


def garbage() -> bytes:
    return forge(sound(NOW_MS), b"\xff" * 20)


def too_large() -> bytes:
    body = encode_record(0, 0, b"k", bytes(decoded_bytes_limit(0)))
    return forge(sound(NOW_MS), compress(Codec.ZSTD, body), attributes=int(Codec.ZSTD))


@pytest.mark.parametrize("timestamp", [1, MAX_TIMESTAMP])
@pytest.mark.parametrize(
    ("batch", "code"),
    [
        (garbage(), ErrorCode.INVALID_RECORD),
        (forge(sound(NOW_MS), b"garbage", attributes=4), ErrorCode.INVALID_RECORD),
        (too_large(), ErrorCode.MESSAGE_TOO_LARGE),
        (
            forge(sound(NOW_MS), record_count=2**31 - 1, last_offset_delta=2**31 - 2),
            ErrorCode.MESSAGE_TOO_LARGE,
        ),
        (forge(sound(NOW_MS), encode_record(7, 0, b"k", b"v")), ErrorCode.INVALID_RECORD),
        (forge(sound(NOW_MS), encode_record(0, 2**63 - 1, b"k", b"v")), ErrorCode.INVALID_RECORD),
    ],
    ids=["unparsable", "no stream of its codec", "bomb", "count", "offset", "timestamp"],
)
def test_records_that_cannot_be_searched_fail_their_partition_alone(
    batch: bytes, code: ErrorCode, timestamp: int
) -> None:
    s = Scenario()
    s.write(batch)
    s.produce("fine", topic="u")
    assert s.offset_at(timestamp).error_code == code
    assert not s.is_offline
    offset = s.offset_at(timestamp, "u")
    assert (offset.error_code, offset.offset) == (ErrorCode.NONE, 0)
    assert code_of(s.produce("more")) == ErrorCode.NONE


def test_a_batch_that_is_not_small_is_searched_and_not_on_the_directory_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Scenario()
    body = encode_record(0, -5, b"k", b"v") + encode_record(1, 0, b"k", bytes(1_000_000))
    s.write(forge(sound(NOW_MS, 2), compress(Codec.ZSTD, body), attributes=int(Codec.ZSTD)))
    run = s.replicas.decoding.run
    run_elsewhere = []

    def noted(topic: str, function: Any, *args: Any) -> Any:
        run_elsewhere.append(function.__name__)
        return run(topic, function, *args)

    monkeypatch.setattr(s.replicas.decoding, "run", noted)
    assert s.offset_at(NOW_MS).offset == 1
    assert s.offset_at(NOW_MS - 5).offset == 0
    assert s.offset_at(MAX_TIMESTAMP).offset == 1
    assert run_elsewhere == ["decode"] * 3


def test_a_search_decodes_a_limited_number_of_batches_that_lie() -> None:
    s = Scenario()
    lie = forge(sound(NOW_MS), max_timestamp=NOW_MS + 1000)
    for _ in range(lookup.MAX_DECODED_BATCHES):
        s.write(lie)
    assert s.offset_at(NOW_MS + 500).error_code == ErrorCode.INVALID_RECORD
    offset = s.offset_at(MAX_TIMESTAMP)
    assert (offset.error_code, offset.offset, offset.timestamp) == (ErrorCode.NONE, 0, NOW_MS)


def test_a_search_continues_after_a_batch_with_a_wrong_header() -> None:
    s = Scenario()
    s.write(forge(sound(NOW_MS), max_timestamp=NOW_MS + 1000))
    s.write(sound(NOW_MS + 700))
    offset = s.offset_at(NOW_MS + 500)
    assert (offset.offset, offset.timestamp) == (1, NOW_MS + 700)


def test_a_search_reads_a_limited_number_of_headers_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    s = Scenario()
    for number in range(7):
        s.write(sound(NOW_MS + number))
    monkeypatch.setattr(lookup, "MAX_HEADERS_PER_STEP", 2)
    for number in range(7):
        assert s.offset_at(NOW_MS + number).offset == number
    assert s.offset_at(NOW_MS + 7).offset == -1
    assert s.offset_at(MAX_TIMESTAMP).offset == 6


@pytest.mark.parametrize(("at", "written"), [(16, b"\x07"), (8, b"\0\0\0\5"), (8, b"\xff" * 4)])
def test_a_rotten_header_fails_its_partition_alone(at: int, written: bytes) -> None:
    s = Scenario()
    s.produce("first")
    s.produce("second")
    s.produce("fine", topic="u")
    log = s.partition("t").log
    size_bytes = log.size_bytes // 2
    s.files.open(f"{log.path}/{0:020d}.log").pwrite(written, size_bytes + at)
    assert code_of(s.fetch(1)) == ErrorCode.CORRUPT_MESSAGE
    assert s.offset_at(NOW_MS).offset == 0
    assert not s.is_offline
    assert values_in(s.fetch(("u", 0))) == ["fine"]
    (damage,) = s.replicas.damaged()
    assert (damage.topic_partition, damage.broker_id) == (TopicPartition("t", 0), 1)
    assert damage.finding.startswith(f"{log.path}/{0:020d}.log at byte {size_bytes}: ")
    s.cluster.delete("t")
    s.publish()
    assert list(s.replicas.damaged()) == []


# -- appends that have to be decoded


def compacted() -> Scenario:
    s = Scenario()
    s.partition("t").log.config = LogConfig(cleanup_policy=("compact",))
    return s


def test_an_append_keeps_its_place_while_the_one_before_it_is_decoded() -> None:
    s = compacted()
    tokens = [s.ask_produce(records=sound(NOW_MS, codec=codec)) for codec in (4, 0, 2, 0)]
    s.pass_time(1)
    assert [s.produced(token).base_offset for token in tokens] == [0, 1, 2, 3]


def test_an_append_that_is_decoded_waits_for_a_move_as_the_later_ones_do() -> None:
    s = compacted()
    partition = s.partition("t")
    first = s.ask_produce(records=sound(NOW_MS, codec=4))
    partition.pause_changes()
    second = s.ask_produce(records=sound(NOW_MS))
    s.pass_time(1)
    assert partition.log.log_end_offset == 0
    partition.resume_changes()
    s.pass_time(1)
    assert [s.produced(token).base_offset for token in (first, second)] == [0, 1]


def test_an_append_that_was_decoded_under_a_former_leadership_is_refused() -> None:
    s = compacted()
    token = s.ask_produce(records=sound(NOW_MS, codec=4))
    s.partition("t").leader = None
    s.pass_time(1)
    assert code_of(s.produced(token)) == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert s.partition("t").log.log_end_offset == 0


@pytest.mark.parametrize("batch", [garbage(), too_large()], ids=["unparsable", "bomb"])
def test_a_compacted_topic_refuses_records_that_cannot_be_decoded(batch: bytes) -> None:
    s = compacted()
    token = s.ask_produce(records=batch)
    s.pass_time(1)
    assert code_of(s.produced(token)) == ErrorCode.INVALID_RECORD
    assert code_of(s.produce(records=sound(NOW_MS))) == ErrorCode.NONE
