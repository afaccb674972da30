"""Batches that are made to fill the memory of their readers."""

import struct
from pathlib import Path

import pytest
from broker_directories import PLAIN, TRANSACTIONAL, BrokerDirectory, clean_directory
from crc32c import crc32c
from log_builders import verified

from spindle.audit import file_limits, record_checks, segment_scan
from spindle.audit.findings import AuditFinding
from spindle.audit.repairs import repairs_of
from spindle.audit.run import run_audit
from spindle.protocol.records.batch import HEADER_BYTES, batches, computed_crc
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.compression import compress

MIB = 1 << 20


def found_in(root: Path) -> list[AuditFinding]:
    return list(run_audit([root], checks_records=True).findings)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_batch_that_unpacks_beyond_the_limit_is_a_finding_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, codec: int
) -> None:
    directory = BrokerDirectory(tmp_path / "d1")
    log = directory.create(PLAIN)
    for value in (b"small", bytes(2 * MIB), b"small"):
        data = build_batch([SimpleRecord(b"key", value, directory.now_ms)], codec=codec)
        log.append_as_leader(data, 0, directory.now_ms, terms=verified(log, data))
    directory.close()
    assert found_in(directory.path) == []
    monkeypatch.setattr(record_checks, "MAX_UNPACKED_BYTES", MIB)
    (finding,) = found_in(directory.path)
    assert finding.kind.text == "batch-too-large"
    assert finding.offset == 1
    assert str(MIB) in finding.evidence


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_records_that_contradict_each_other_are_found_behind_a_right_checksum(
    tmp_path: Path, codec: int
) -> None:
    directory = BrokerDirectory(tmp_path / "d1")
    log = directory.create(PLAIN)
    records = [SimpleRecord(b"key", b"v" * 40, directory.now_ms) for _ in range(3)]
    plain = build_batch(records)
    for _ in range(2):
        log.append_as_leader(bytearray(plain), 0, directory.now_ms)
    directory.close()
    path = sorted((directory.path / str(PLAIN)).glob("*.log"))[0]
    content = path.read_bytes()
    at, header = list(batches(content))[-1]
    inside = bytearray(content[at + HEADER_BYTES : at + header.size_bytes])
    inside[-1] ^= 1  # the count of headers of the last record
    packed = compress(codec, inside)
    batch = bytearray(content[at : at + HEADER_BYTES]) + packed
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, header.attributes | codec)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    path.write_bytes(content[:at] + batch)
    assert [finding.kind.text for finding in run_audit([directory.path]).findings] == []
    (finding,) = found_in(directory.path)
    assert finding.kind.text == "records"
    assert (finding.position, finding.offset) == (at, 3)


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_batch_beyond_the_limit_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    root = clean_directory(tmp_path / "d1")
    path = sorted((root / str(PLAIN)).glob("*.log"))[0]
    positions = [position for position, _ in batches(path.read_bytes())]
    sizes = {header.size_bytes for _, header in batches(path.read_bytes())}
    # A window holds whatever is smaller; only a batch that does not fit into one counts.
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", max(sizes))
    monkeypatch.setattr(file_limits, "MAX_BATCH_BYTES", max(sizes))
    assert found_in(root) == []
    at = positions[number]
    path.write_bytes(with_a_longer_batch(path.read_bytes(), at, 2 * max(sizes)))
    too_large = [finding for finding in found_in(root) if finding.kind.text == "batch-too-large"]
    assert [finding.position for finding in too_large] == [at]


def with_a_longer_batch(data: bytes, position: int, more_bytes: int) -> bytes:
    """Return a segment in which bytes follow the records of a batch, and belong to it."""
    header = next(header for at, header in batches(data) if at == position)
    end = position + header.size_bytes
    longer = bytearray(data[position:end] + bytes(more_bytes))
    struct.pack_into(">i", longer, 8, len(longer) - 12)
    _, changed = next(iter(batches(longer)))
    struct.pack_into(">I", longer, 17, computed_crc(longer, 0, changed))
    return data[:position] + bytes(longer) + data[end:]


def test_a_damaged_length_is_no_batch_of_that_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = clean_directory(tmp_path / "d1")
    path = sorted((root / str(TRANSACTIONAL)).glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    read_batches = list(batches(data))
    largest = max(header.size_bytes for _, header in read_batches)
    monkeypatch.setattr(segment_scan, "WINDOW_BYTES", largest)
    monkeypatch.setattr(file_limits, "MAX_BATCH_BYTES", largest)
    at = read_batches[1][0]
    struct.pack_into(">i", data, at + 8, 4 * largest)
    path.write_bytes(data)
    # A broker that rebuilds an index of this segment cuts it there: nothing is repaired on its own.
    findings = found_in(root)
    assert ("batch-header", at) in [(finding.kind.text, finding.position) for finding in findings]
    repairs = repairs_of(run_audit([root]))
    assert [step for repair in repairs for step in repair.steps if step.is_safe] == []


def test_a_file_of_nothing_but_damage_is_not_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = clean_directory(tmp_path / "d1")
    path = sorted((root / str(PLAIN)).glob("*.log"))[0]
    header = bytearray(HEADER_BYTES)
    struct.pack_into(">i", header, 8, HEADER_BYTES - 12)
    wrong = bytes(header[:16]) + b"\x09" + bytes(header[17:])
    right = bytes(header[:16]) + b"\x02" + bytes(header[17:])
    path.write_bytes(20 * (wrong + right))
    monkeypatch.setattr(segment_scan, "MAX_BAD_SPANS", 5)
    findings = [finding for finding in found_in(root) if finding.kind.text == "batch-header"]
    size = len(wrong + right)
    assert [finding.position for finding in findings] == [number * size for number in range(6)]
    assert "5 damaged places before it; 1830 bytes" in findings[-1].evidence


def test_the_records_of_a_batch_may_not_leave_its_bytes(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    path = sorted((root / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(path.read_bytes())
    for position, header in list(batches(data)):
        struct.pack_into(">ii", data, position + 23, 2**31 - 2, 0)
        struct.pack_into(">i", data, position + 57, 2**31 - 1)
        _, changed = next(batch for batch in batches(data) if batch[0] == position)
        assert changed.size_bytes == header.size_bytes
        struct.pack_into(">I", data, position + 17, computed_crc(data, position, changed))
    path.write_bytes(data)
    count = sum(1 for _ in batches(data))
    findings = [finding for finding in found_in(root) if finding.kind.text == "records"]
    assert len(findings) == count
