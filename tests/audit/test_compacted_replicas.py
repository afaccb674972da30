"""Replicas of compacted logs against each other: other batches, but the same latest values."""

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from broker_directories import COMPACTED, CONFIG, BrokerDirectory
from log_builders import end_transaction, verified

from spindle.audit import compacted_comparison
from spindle.audit.findings import AuditFinding
from spindle.audit.placement import ClusterPlacement, PlacedPartition, PlacedTopic
from spindle.audit.run import run_audit
from spindle.disks.cleaner import Cleaner
from spindle.protocol.records.builder import SimpleRecord, build_batch

POLICY = replace(
    CONFIG,
    cleanup_policy=("compact",),
    delete_retention_ms=0,
    min_cleanable_dirty_ratio=0.0,
    segment_bytes=900,
)
BATCHES = 60
TOPIC_ID = b"s" * 16
Change = Callable[[int, list[SimpleRecord]], list[SimpleRecord]]


def unchanged(number: int, records: list[SimpleRecord]) -> list[SimpleRecord]:
    return records


def compacted_directory(
    path: Path,
    node_id: int,
    *,
    seed: int = 0,
    cleaned_after: tuple[int, ...] = (),
    change: Change = unchanged,
    batch_count: int = BATCHES,
) -> Path:
    """Write the same records for each node; clean after some batches, and change some records."""
    directory = BrokerDirectory(path, node_id=node_id, seed=seed)
    log = directory.store.create(COMPACTED, TOPIC_ID, POLICY, directory.now_ms)
    cleaner = Cleaner(directory.store)
    rng, sequence = directory.random, 0
    for number in range(batch_count):
        directory.now_ms += 10_000
        records = [
            SimpleRecord(
                b"key-%d" % rng.randrange(12),
                rng.randbytes(30) if rng.randrange(4) else None,
                directory.now_ms,
            )
            for _ in range(rng.randrange(1, 4))
        ]
        codec, is_transactional = rng.choice((0, 1, 2, 3, 4)), number % 5 == 0
        records = change(number, records)
        if is_transactional:
            data = build_batch(
                records,
                codec=codec,
                producer_id=5,
                producer_epoch=0,
                base_sequence=sequence,
                is_transactional=True,
            )
            sequence += len(records)
        else:
            data = build_batch(records, codec=codec)
        log.append_as_leader(data, 0, directory.now_ms, terms=verified(log, data))
        if is_transactional:
            end_transaction(log, 5, is_commit=number % 10 == 0)
        if number in cleaned_after:
            log.update_high_watermark(log.log_end_offset)
            cleaning = cleaner.next_pass(directory.now_ms)
            assert cleaning is None or cleaner.finish(cleaning.run(), directory.now_ms)
    directory.close()
    return path


def placement(leader: int) -> ClusterPlacement:
    partition = PlacedPartition((1, 2, 3), (b"d" * 16,) * 3, (1, 2, 3), leader)
    return ClusterPlacement(
        {TOPIC_ID: PlacedTopic(COMPACTED.topic, TOPIC_ID, True, {COMPACTED.partition: partition})}
    )


def found_in(roots: list[Path], leader: int | None = None) -> list[AuditFinding]:
    known = None if leader is None else placement(leader)
    report = run_audit(roots, load_placement=lambda: known, recheck_ms=0)
    # The directories of the placement are not those of the tests.
    kinds = ("replica-differs", "replica-undecided")
    return [finding for finding in report.findings if finding.kind.text in kinds]


@pytest.mark.parametrize("seed", range(4))
def test_replicas_that_were_compacted_at_other_times_are_in_order(
    tmp_path: Path, seed: int
) -> None:
    times = ((), (59,), (10, 25, 40), (30, 31, 32), (20, 50))
    roots = [
        compacted_directory(tmp_path / str(node), node, seed=seed, cleaned_after=cleaned)
        for node, cleaned in enumerate(times, 1)
    ]
    sizes = {sum(path.stat().st_size for path in root.glob("*/*.log")) for root in roots}
    assert len(sizes) > 3
    assert run_audit(roots).findings == ()


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_is_behind_is_in_order(tmp_path: Path, seed: int) -> None:
    ahead = compacted_directory(tmp_path / "1", 1, seed=seed, cleaned_after=(35, 55, 56))
    behind = [
        compacted_directory(
            tmp_path / str(node), node, seed=seed, cleaned_after=cleaned, batch_count=count
        )
        for node, (count, cleaned) in enumerate(((24, ()), (41, (20,)), (41, (38,))), 2)
    ]
    for one, other in pairwise([ahead, *behind]):
        assert run_audit([one, other]).findings == ()
    assert run_audit([ahead, *behind]).findings == ()


def only_in(batch: int, key: bytes, value: bytes | None) -> Change:
    """Return the change that makes a batch of one record for a key that nothing else has."""

    def change(number: int, records: list[SimpleRecord]) -> list[SimpleRecord]:
        if number != batch:
            return records
        return [SimpleRecord(key, value, records[0].timestamp_ms)]

    return change


def both(*changes: Change) -> Change:
    def change(number: int, records: list[SimpleRecord]) -> list[SimpleRecord]:
        for change in changes:
            records = change(number, records)
        return records

    return change


WRITTEN = only_in(21, b"only", b"right")
FAULTS: dict[str, tuple[Change, Change, str]] = {
    "another value": (WRITTEN, only_in(21, b"only", b"wrong"), "another value at offset"),
    "a lost record": (WRITTEN, only_in(21, b"other", None), "no record here, offset"),
    "a deleted value that is back": (
        both(WRITTEN, only_in(33, b"only", None)),
        both(WRITTEN, only_in(33, b"other", None)),
        "here, offset",
    ),
    "a lost update": (
        both(WRITTEN, only_in(33, b"only", b"new")),
        both(WRITTEN, only_in(33, b"other", None)),
        "here, offset",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("cleaned_after", [(), (50,)])
def test_a_key_with_another_latest_record_is_found(
    tmp_path: Path, name: str, cleaned_after: tuple[int, ...]
) -> None:
    right, wrong, evidence = FAULTS[name]
    roots = [
        compacted_directory(tmp_path / "1", 1, change=right, cleaned_after=(25,)),
        compacted_directory(tmp_path / "2", 2, change=wrong, cleaned_after=cleaned_after),
        compacted_directory(tmp_path / "3", 3, change=right, cleaned_after=(25, 45)),
    ]
    (finding,) = found_in(roots)
    assert finding.path == str(roots[1] / str(COMPACTED))
    assert "agrees with another replica" in finding.evidence
    assert evidence in finding.evidence
    assert "key " in finding.evidence
    (finding,) = found_in(roots, leader=2)
    assert finding.path == str(roots[1] / str(COMPACTED))
    (finding,) = found_in(roots[:2], leader=1)
    assert finding.kind.text == "replica-undecided"
    assert evidence.split(",")[0].split(" here")[0] in finding.evidence


def test_keys_in_several_files_are_compared_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compacted_comparison, "_BYTES_OF_A_BUCKET", 500)
    right, wrong, _ = FAULTS["another value"]
    roots = [
        compacted_directory(tmp_path / "1", 1, change=right, cleaned_after=(25,)),
        compacted_directory(tmp_path / "2", 2, change=right, cleaned_after=(40,)),
    ]
    assert found_in(roots) == []
    roots.append(compacted_directory(tmp_path / "3", 3, change=wrong, cleaned_after=(50,)))
    (finding,) = found_in(roots)
    assert finding.path == str(roots[2] / str(COMPACTED))
