"""An audit stays within its limits: memory, time, and bytes per second."""

import fcntl
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from broker_directories import PLAIN, TRANSACTIONAL, clean_directory

from spindle.audit import file_limits, index_files, segment_scan, transaction_checks
from spindle.audit.file_limits import MAX_SMALL_FILE_BYTES, MAX_TRANSACTION_INDEX_BYTES
from spindle.audit.findings import Collector, FindingKind
from spindle.audit.index_checks import OffsetIndexChecks, TimeIndexChecks
from spindle.audit.index_files import read_index
from spindle.audit.key_digests import _joined_ranges
from spindle.audit.progress_file import progress_file
from spindle.audit.run import run_audit
from spindle.audit.segment_scan import SegmentScan
from spindle.log.formats.transaction_index import AbortedTransaction
from spindle.protocol.records.builder import SimpleRecord, build_batch

BLOCK_BYTES = 96 * 1024


def ascending(path: Path, kinds: tuple[str, str], size_bytes: int) -> Path:
    entry = np.dtype([("first", kinds[0]), ("second", kinds[1])])
    rows = np.zeros(size_bytes // entry.itemsize, entry)
    rows["first"] = rows["second"] = np.arange(1, len(rows) + 1)
    path.write_bytes(rows.tobytes())
    return path


def test_an_index_beyond_the_limit_is_checked_as_far_as_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_files, "MAX_INDEX_BYTES", 2 * BLOCK_BYTES)
    collector = Collector("replica")
    offsets = read_index(ascending(tmp_path / "0.index", (">i4", ">i4"), 9 * BLOCK_BYTES))
    times = read_index(ascending(tmp_path / "0.timeindex", (">i8", ">i4"), 9 * BLOCK_BYTES))
    assert offsets is not None
    assert times is not None
    assert len(offsets.data) == len(times.data) == 2 * BLOCK_BYTES
    OffsetIndexChecks(collector, tmp_path / "0.index", offsets, 0, is_trimmed=True)
    TimeIndexChecks(collector, tmp_path / "0.timeindex", times, 0, is_trimmed=True)
    assert [finding.kind for finding in collector.found] == [FindingKind.UNREADABLE] * 2
    assert f"first {2 * BLOCK_BYTES // 8} entries" in collector.found[0].evidence


def test_zeros_behind_an_index_of_the_limit_are_no_entries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_files, "MAX_INDEX_BYTES", BLOCK_BYTES)
    path = ascending(tmp_path / "0.index", (">i4", ">i4"), BLOCK_BYTES)
    path.write_bytes(path.read_bytes() + bytes(3 * BLOCK_BYTES))
    content = read_index(path)
    assert content is not None
    assert content.is_whole


def test_ranges_of_aborted_transactions_are_joined_even_if_they_overlap() -> None:
    bounds = [(50, 60), (10, 20), (15, 30), (12, 13), (90, 80)]
    ranges = _joined_ranges([AbortedTransaction(7, first, last, 0) for first, last in bounds])
    inside = [offset for offset in range(100) if ranges.holds(offset)]
    assert inside == [*range(10, 31), *range(50, 61)]


def test_the_lock_is_that_of_the_file_that_others_see(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "progress"
    calls = []

    def lock_when_another_audit_ends(descriptor: int, operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:
            path.unlink()

    monkeypatch.setattr(fcntl, "flock", lock_when_another_audit_ends)
    with progress_file(path) as progress:
        assert len(calls) == 2
        assert path.read_bytes().startswith(b"{")
        progress.has_unread = True
    assert path.exists()


def test_the_bytes_of_a_large_batch_are_throttled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_limits, "MAX_BATCH_BYTES", 2000)
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", 1000)
    batch = build_batch([SimpleRecord(b"k", bytes(9000), 5)])
    path = tmp_path / "0.log"
    path.write_bytes(batch)
    told: list[int] = []
    with path.open("rb", buffering=0) as file:
        scan = SegmentScan(file, len(batch), np.zeros(0, np.int64), told.append)
        windows: list[Any] = list(scan.windows())
    assert windows == []
    assert sum(told) > 9000
    assert max(told) <= 1000
    assert [span.is_too_large for span in scan.bad_spans] == [True]


@pytest.mark.parametrize(
    "name",
    [
        "replication-offset-checkpoint",
        "meta.properties",
        f"{PLAIN}/leader-epoch-checkpoint",
        f"{PLAIN}/{0:020d}.txnindex",
    ],
)
def test_a_small_file_beyond_the_limit_is_not_read(tmp_path: Path, name: str) -> None:
    root = clean_directory(tmp_path / "d1")
    path = root / name
    limit = MAX_TRANSACTION_INDEX_BYTES if name.endswith("index") else MAX_SMALL_FILE_BYTES
    with path.open("ab") as file:
        file.truncate(limit + 1)
    findings = run_audit([root], recheck_ms=0).findings
    unreadable = [finding for finding in findings if finding.kind is FindingKind.UNREADABLE]
    assert [item.path for item in unreadable] == [str(path)]
    assert f"the limit is {limit >> 20}.0 MiB" in unreadable[0].evidence


def test_the_rest_of_an_index_of_wrong_entries_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transaction_checks, "MAX_WRONG_ENTRIES", 50)
    root = clean_directory(tmp_path / "d1")
    path = sorted((root / str(TRANSACTIONAL)).glob("*.txnindex"))[0]
    path.write_bytes(bytes(34 * 5000))
    report = run_audit([root], recheck_ms=0)
    assert len(report.findings) + report.left_out == 51
    assert "the entries behind 50 wrong ones are not compared" in report.findings[-1].evidence


def test_a_changed_timestamp_is_one_finding(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    path = sorted((root / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    data[35 + 4] ^= 1  # the largest timestamp of the first batch
    path.write_bytes(data)
    kinds = [finding.kind for finding in run_audit([root], recheck_ms=0).findings]
    assert kinds == [FindingKind.BATCH_CHECKSUM]
