"""Faults that show only where several directories, or several files, are looked at together."""

import shutil
import struct
from pathlib import Path

import pytest
from broker_directories import PLAIN, BrokerDirectory, clean_directory

from spindle.audit.run import run_audit
from spindle.protocol.records.batch import batches, computed_crc


def kinds(*roots: Path) -> list[str]:
    return [finding.kind.text for finding in run_audit(roots, second_look_ms=0).findings]


def test_a_copied_directory_shows_by_its_id_and_its_replicas(tmp_path: Path) -> None:
    clean_directory(tmp_path / "d1")
    shutil.copytree(tmp_path / "d1", tmp_path / "d2")
    found = kinds(tmp_path / "d1", tmp_path / "d2")
    assert found == ["directory-identity", "replica-duplicate", "replica-duplicate"]


def test_the_directory_of_another_cluster_shows(tmp_path: Path) -> None:
    clean_directory(tmp_path / "d1")
    clean_directory(tmp_path / "d2", seed=1)
    properties = tmp_path / "d2" / "meta.properties"
    text = properties.read_text().replace("node.id=1", "node.id=2")
    properties.write_text(text)
    assert kinds(tmp_path / "d1", tmp_path / "d2") == []
    properties.write_text(text.replace("cluster.id=4", "cluster.id=5"))
    assert kinds(tmp_path / "d1", tmp_path / "d2") == ["directory-identity"]


def test_epochs_that_fall_show_without_a_checkpoint(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / str(PLAIN) / "leader-epoch-checkpoint").unlink()
    last = sorted((root / str(PLAIN)).glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    *_, (position, _) = batches(data)
    struct.pack_into(">i", data, position + 12, 0)
    last.write_bytes(data)
    assert kinds(root) == ["epoch-order", "epoch-file"]


def test_a_killed_broker_leaves_nothing_to_report(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path / "d1")
    directory.fill_plain()
    log = directory.fill_transactional()
    active = Path(log.path) / f"{[*log.segments][-1].base_offset:020d}.log"
    with active.open("ab") as file:
        file.write(bytes(7) + b"a write that the kill cut off")
    report = run_audit([tmp_path / "d1"])
    assert report.directories[0].state.value == "not closed"
    assert report.findings == ()


def test_a_file_that_cannot_be_read_is_a_finding(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    segment = sorted((root / str(PLAIN)).glob("*.log"))[0]
    segment.unlink()
    segment.symlink_to(segment.name)
    assert "unreadable" in kinds(root)


@pytest.mark.parametrize("jobs", [1, 2])
def test_progress_reaches_the_size_of_all_logs(tmp_path: Path, jobs: int) -> None:
    root = clean_directory(tmp_path / "d1")
    seen = []
    report = run_audit([root], jobs=jobs, on_progress=seen.append)
    assert seen[-1].bytes_total == report.size_bytes
    assert seen[-1].bytes_done == report.size_bytes


def test_records_that_nobody_can_read_show_when_they_are_decoded(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    assert run_audit([root], checks_records=True).findings == ()
    segment = sorted((root / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    places = [
        next(each for each in batches(data) if bool(each[1].codec) == is_compressed)
        for is_compressed in (False, True)
    ]
    for position, header in places:
        data[position + 61] ^= 0x40
        struct.pack_into(">I", data, position + 17, computed_crc(data, position, header))
    segment.write_bytes(data)
    assert run_audit([root]).findings == ()
    found = run_audit([root], checks_records=True).findings
    assert {finding.kind.text for finding in found} == {"records"}
    assert {finding.position for finding in found} == {position for position, _ in places}
