"""Replicas that are fetched in ranges of offsets: the same result as in one piece."""

import random
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spindle.audit import fetched_replica, spark_fetch, spark_groups
from spindle.audit.fetched_documents import fetched_document, fetched_part
from spindle.audit.fetched_replica import ReplicaRange, fetch_range, join_ranges
from spindle.audit.fetched_replicas import BrokerReplicas, WantedReplica
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ClosingState, ReplicaPlace
from spindle.audit.spark_checkpoint import PartFolder
from spindle.audit.spark_fetch import SparkFetch, cut_ranges
from spindle.client.admin.cluster import ClusterNode
from spindle.client.blocking.settings import client_settings
from spindle.client.cluster_metadata import BrokerAddress
from spindle.client.fetching import FetchedBatches
from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicPartition
from spindle.log.formats.names import LogKind
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.sentinels import EARLIEST

PARTITION = TopicPartition("far", 0)
PLACE = ReplicaPlace(
    Path("broker 1:/disk/far-0"), PARTITION, LogKind.CURRENT, ClosingState.IN_USE, 1
)
TOPIC_ID = b"t" * 16
BROKER: Any = BrokerAddress(1, "far.example", 9092)
ANSWER_BYTES = 700


class FarLog:
    """The log of a broker elsewhere; it answers fetches and questions for offsets."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)
        self.settings = client_settings({"bootstrap.servers": "far.example:9092"})
        self.batches: list[tuple[int, int, bytearray]] = []
        self.start = offset = rng.choice((0, 1000))
        for _ in range(120):
            count = rng.randrange(1, 9)
            records = [SimpleRecord(b"k", rng.randbytes(20), 5) for _ in range(count)]
            batch = bytearray(build_batch(records))
            batch[:8] = offset.to_bytes(8, "big")
            self.batches.append((offset, offset + count - 1, batch))
            offset += count
        self.end = offset
        self.fetches: list[int] = []

    def damage(self, number: int, at: int, value: bytes) -> None:
        batch = self.batches[number][2]
        batch[at : at + len(value)] = value

    def answer(self, offset: int) -> FetchedBatches:
        self.fetches.append(offset)
        if offset < self.start or offset > self.end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "fetch")
        data = bytearray()
        for _, last, batch in self.batches:
            if last >= offset and len(data) < ANSWER_BYTES:
                data += batch
        return FetchedBatches(bytes(data), self.end, self.end, self.start, ())

    def list_offsets(self, wanted: dict[TopicPartition, int], **_: Any) -> Any:
        return {
            partition: SimpleNamespace(offset=self.start if at == EARLIEST else self.end)
            for partition, at in wanted.items()
        }


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    fetch = fetched_replica._Fetching
    monkeypatch.setattr(fetch, "_fetch", lambda self, offset: self.client.answer(offset))


def in_ranges(log: Any, borders: Sequence[int | None]) -> AuditedReplica:
    ranges = [
        ReplicaRange(low or 0, high, is_first=at == 0)
        for at, (low, high) in enumerate(pairwise(borders))
    ]
    parts = [fetch_range(log, BROKER, PLACE, TOPIC_ID, offset_range) for offset_range in ranges]
    again = [fetched_part(PLACE.path, fetched_document(part)) for part in parts]
    assert again == parts
    return join_ranges(PLACE, TOPIC_ID, ranges, parts)


DAMAGES = {
    "none": (0, b""),
    "a byte of a record": (75, b"never"),
    "a base offset that is too large": (0, (2**60).to_bytes(8, "big")),
    "a base offset that is too small": (0, bytes(8)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_ranges_say_what_the_whole_replica_says(damage: str) -> None:
    for seed in range(12):
        log = FarLog(seed)
        rng = random.Random(seed)
        log.damage(rng.randrange(20, 100), *DAMAGES[damage])
        whole = in_ranges(log, [log.start, None])
        inner = sorted(rng.sample(range(log.start + 1, log.end), 5))
        cut = in_ranges(log, [log.start, *inner, log.end])
        if "offset" not in damage:
            assert cut == whole
            assert cut.batch_count == 120
        assert cut.end_offset == whole.end_offset == log.end
        assert bool(cut.findings) == bool(whole.findings) == (damage != "none")


def test_records_removed_by_retention_are_no_finding() -> None:
    log = FarLog(3)
    borders = [log.start, log.start + 100, log.start + 200, log.end]
    log.start = log.batches[60][0]
    log.batches = log.batches[60:]
    ranges = in_ranges(log, borders)
    assert ranges.findings == ()
    assert ranges.end_offset == log.end


def test_a_follower_that_is_behind_is_read_as_far_as_it_is() -> None:
    log = FarLog(4)
    borders = [log.start, log.start + 100, log.start + 200, log.end]
    log.batches = [batch for batch in log.batches if batch[1] < log.start + 150]
    log.end = log.batches[-1][1] + 1
    ranges = in_ranges(log, borders)
    assert ranges.findings == ()
    assert ranges.end_offset == ranges.place.checkpointed.high_watermark == log.end


def test_a_log_is_cut_at_the_same_offsets_when_it_has_grown() -> None:
    before = cut_ranges(10, 1_000_000, 1 << 30)
    after = cut_ranges(10, 1_100_000, 1_180_000_000)
    assert before[:-1] == after[: len(before) - 1]
    assert len(before) > 10
    assert [problem.is_first for problem in before].count(True) == 1
    assert cut_ranges(5, 5, 0) == [ReplicaRange(5, 5, is_first=True)]
    assert cut_ranges(0, 100, -1) == [ReplicaRange(0, 100, is_first=True)]


class Killed(Exception):
    """The driver died."""


def test_an_interrupted_audit_fetches_only_the_other_ranges(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: Any = FarLog(5)
    monkeypatch.setattr(spark_fetch, "RANGE_BYTES", 2000)
    monkeypatch.setattr(spark_fetch, "WireClient", lambda settings: _Open(log))
    monkeypatch.setattr(spark_groups, "grouped", lambda units, cores: [[unit] for unit in units])
    dies_after = [3]

    def run_here(_: Any, read: Any, groups: Any, **__: Any) -> list[Any]:
        answers: list[Any] = []
        for group in groups:
            if dies_after and len(answers) == dies_after[0]:
                dies_after.clear()
                raise Killed
            answers.append(read(group))
        return answers

    monkeypatch.setattr(spark_fetch, "run_watched", run_here)
    context = SimpleNamespace(
        defaultParallelism=2,
        accumulator=lambda value: SimpleNamespace(value=value, add=lambda more: None),
        getConf=lambda: SimpleNamespace(get=lambda key, other: other),
    )
    spark: Any = SimpleNamespace(sparkContext=context)
    size_bytes = sum(len(batch) for _, _, batch in log.batches)
    replicas = [WantedReplica(PLACE, TOPIC_ID, size_bytes)]
    brokers = [BrokerReplicas(ClusterNode(1, "far.example", 9092, None, False), replicas)]

    def fetched() -> list[AuditedReplica]:
        job = SparkFetch(spark, PartFolder(tmp_path / "parts"))
        return job.fetch(log, brokers, bytes_per_second=None, on_progress=lambda progress: None)

    with pytest.raises(Killed):
        fetched()
    seen = len(log.fetches)
    (replica,) = fetched()
    assert replica == in_ranges(log, [log.start, None])
    assert min(log.fetches[seen:-40]) > log.start


class _Open:
    """A client that a task opens."""

    def __init__(self, log: FarLog) -> None:
        self.log = log

    def __enter__(self) -> FarLog:
        return self.log

    def __exit__(self, *_: object) -> None:
        pass
