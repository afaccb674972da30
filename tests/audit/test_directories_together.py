"""Faults that show only where several directories, or several files, are looked at together."""

import os
import shutil
import signal
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from broker_directories import PLAIN, BrokerDirectory, clean_directory

from spindle.audit.applied_repairs import folder_states
from spindle.audit.placement import MetadataNotRead
from spindle.audit.replica import AuditedReplica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.run import run_audit
from spindle.audit.workers import AuditProgress
from spindle.cli.audit.metadata import load_placement
from spindle.disks.directory_store import DirectoryStore
from spindle.protocol.records.batch import batches, computed_crc


def kinds(*roots: Path) -> list[str]:
    return [finding.kind.text for finding in run_audit(roots, recheck_ms=0).findings]


def test_a_copied_directory_shows_by_its_id_and_its_replicas(tmp_path: Path) -> None:
    clean_directory(tmp_path / "d1")
    shutil.copytree(tmp_path / "d1", tmp_path / "d2")
    finding_kinds = kinds(tmp_path / "d1", tmp_path / "d2")
    assert finding_kinds == ["directory-identity", "replica-duplicate", "replica-duplicate"]


def test_the_directory_of_another_cluster_shows(tmp_path: Path) -> None:
    clean_directory(tmp_path / "d1")
    clean_directory(tmp_path / "d2", node_id=2)
    properties = tmp_path / "d2" / "meta.properties"
    text = properties.read_text()
    assert kinds(tmp_path / "d1", tmp_path / "d2") == []
    properties.write_text(text.replace("cluster.id=4", "cluster.id=5"))
    assert kinds(tmp_path / "d1", tmp_path / "d2") == ["directory-identity"]


def test_directories_that_one_broker_closed_have_its_node_id(tmp_path: Path) -> None:
    clean_directory(tmp_path / "d1")
    other = clean_directory(tmp_path / "d2")
    properties = other / "meta.properties"
    properties.write_text(properties.read_text().replace("node.id=1", "node.id=9"))
    assert kinds(tmp_path / "d1", other) == ["directory-identity"]
    (other / ".kafka_cleanshutdown").write_bytes(b"")  # as older brokers leave it
    assert kinds(tmp_path / "d1", other) == []


def test_a_link_to_itself_hides_nothing(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / "loop").symlink_to("loop")
    report = run_audit([root], recheck_ms=0)
    assert [finding.path for finding in report.findings] == [str(root / "loop")]
    assert len(report.replicas) == 2
    assert set(folder_states([root])) == {
        root,
        *(replica.place.path for replica in report.replicas),
    }


def test_short_runs_of_a_broker_leave_an_offset_index_without_entries(tmp_path: Path) -> None:
    """Each stop adds an entry to the time index, and each start counts the bytes from 0 again."""
    directory = BrokerDirectory(tmp_path / "d1")
    directory.create(PLAIN)
    for _ in range(12):
        (log,) = directory.store.all_logs()
        directory.append(log, 1)
        directory.close()
        directory.store = DirectoryStore(directory.files, str(directory.path))
        directory.load()
    directory.fill_transactional()
    directory.close()
    (index,) = (tmp_path / "d1" / str(PLAIN)).glob("*.index")
    assert index.stat().st_size == 0
    assert index.with_suffix(".timeindex").stat().st_size == 12 * 12
    assert kinds(tmp_path / "d1") == []


def test_fresh_directories_have_no_findings(tmp_path: Path) -> None:
    directory = BrokerDirectory(tmp_path / "d1")
    assert kinds(tmp_path / "d1") == []
    directory.create(PLAIN)
    assert kinds(tmp_path / "d1") == []
    directory.close()
    assert kinds(tmp_path / "d1") == []


def test_the_logs_of_a_killed_broker_need_no_entries_in_checkpoints(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / ".kafka_cleanshutdown").unlink()
    for name in ("recovery-point", "replication"):
        path = root / f"{name}-offset-checkpoint"
        path.write_text(f"0\n1\n{PLAIN.topic} 0 3\n")
        os.utime(path, (1, 1))
    assert kinds(root) == []
    recovery_points = root / "recovery-point-offset-checkpoint"
    created = max(path.stat().st_mtime for path in root.glob("*/partition.metadata"))
    os.utime(recovery_points, (created + 60, created + 60))
    (finding,) = run_audit([root], recheck_ms=0).findings
    assert (finding.kind.text, finding.path) == ("checkpoint-entry", str(recovery_points))
    assert "no entries of payments-3, which were there before it was written" in finding.evidence


def test_recovery_points_below_the_clean_offsets_of_an_older_file_show(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / ".kafka_cleanshutdown").unlink()
    recovery_points = root / "recovery-point-offset-checkpoint"
    clean = root / "cleaner-offset-checkpoint"
    lines = recovery_points.read_text().splitlines()
    recovery_points.write_text("\n".join([*lines[:2], "orders 0 30", "payments 3 200", ""]))
    clean.write_text("0\n1\norders 0 100\n")
    os.utime(recovery_points, (1000, 1000))
    os.utime(clean, (1060, 1060))
    assert kinds(root) == []
    os.utime(recovery_points, (1120, 1120))
    (finding,) = run_audit([root], recheck_ms=0).findings
    assert "the recovery points of orders-0 are below their clean offsets" in finding.evidence


def test_the_repair_of_an_identity_keeps_the_data(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / "meta.properties").write_bytes(bytes(122))
    (finding,) = run_audit([root], recheck_ms=0).findings
    assert finding.kind.text == "meta-properties"
    assert "leave the rest of the directory as it is" in finding.sentence
    assert "format" not in finding.sentence


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
    seen: list[AuditProgress] = []
    report = run_audit([root], jobs=jobs, on_progress=seen.append)
    assert seen[-1].bytes_total == report.size_bytes
    assert seen[-1].bytes_done == report.size_bytes


def test_records_that_nobody_can_read_show_when_they_are_decoded(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    assert run_audit([root], checks_records=True).findings == ()
    segment = sorted((root / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    places = [
        next(batch for batch in batches(data) if bool(batch[1].codec) == is_compressed)
        for is_compressed in (False, True)
    ]
    for position, header in places:
        data[position + 61] ^= 0x40
        struct.pack_into(">I", data, position + 17, computed_crc(data, position, header))
    segment.write_bytes(data)
    assert run_audit([root]).findings == ()
    findings = run_audit([root], checks_records=True).findings
    assert {finding.kind.text for finding in findings} == {"records"}
    assert {finding.position for finding in findings} == {position for position, _ in places}


def test_a_directory_that_cannot_be_listed_is_a_finding_beside_those_of_the_others(
    tmp_path: Path,
) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / str(PLAIN) / "partition.metadata").unlink()
    assert kinds(root, tmp_path / "gone") == ["partition-metadata", "unreadable"]


def test_a_worker_that_is_killed_is_a_finding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(place: ReplicaPlace, **rest: Any) -> AuditedReplica | None:
        os.kill(os.getpid(), signal.SIGKILL)
        return None

    monkeypatch.setattr("spindle.audit.workers.audit_replica", die)
    report = run_audit([clean_directory(tmp_path / "d1")], jobs=2)
    assert {finding.kind.text for finding in report.findings} == {"unreadable"}
    assert "was killed" in report.findings[0].evidence


def make_pipe(path: Path) -> None:
    path.unlink(missing_ok=True)
    os.mkfifo(path)


def make_vast(path: Path) -> None:
    os.truncate(path, 1 << 41)


@pytest.mark.parametrize("change", [make_pipe, make_vast])
@pytest.mark.parametrize(
    "name",
    ["meta.properties", "recovery-point-offset-checkpoint", f"{PLAIN}/leader-epoch-checkpoint"],
)
def test_pipes_and_vast_files_are_not_read(
    tmp_path: Path, name: str, change: Callable[[Path], None]
) -> None:
    root = clean_directory(tmp_path / "d1")
    change(root / name)
    assert kinds(root) == ["unreadable"]


def test_a_pipe_as_lock_or_in_the_metadata_log_does_not_stop_the_audit(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / "__cluster_metadata-0").mkdir()
    make_pipe(root / "__cluster_metadata-0" / f"{0:020d}.log")
    with pytest.raises(MetadataNotRead, match="__cluster_metadata-0: "):
        load_placement([root])
    make_pipe(root / ".lock")
    assert kinds(root) == ["unreadable"]


@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_batch_at_the_largest_offset_ends_the_walk(tmp_path: Path, number: int) -> None:
    root = clean_directory(tmp_path / "d1")
    segment = sorted((root / str(PLAIN)).glob("*.log"))[0]
    data = bytearray(segment.read_bytes())
    position, _ = list(batches(data))[number]
    struct.pack_into(">q", data, position, 2**63 - 1)
    segment.write_bytes(data)
    assert "batch-header" in kinds(root)


def test_a_segment_beyond_all_offsets_is_a_wrong_name(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    (root / str(PLAIN) / f"{'9' * 20}.log").write_bytes(b"")
    assert kinds(root) == ["file-name"]


def test_a_log_that_waits_for_its_deletion_shows_if_it_may_not_be_removed(tmp_path: Path) -> None:
    root = clean_directory(tmp_path / "d1")
    aside = root / f"{PLAIN}.0123456789abcdef0123456789abcdef-delete"
    (root / str(PLAIN)).rename(aside)
    before = kinds(root)
    assert "replica-orphaned" not in before
    (aside / "partition.metadata").write_text("version: 0")
    assert "replica-orphaned" in kinds(root)
    for segment in aside.glob("*.log"):
        segment.unlink()
    assert "replica-orphaned" not in kinds(root)
