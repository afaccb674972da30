"""Audits that were interrupted and go on, and audits that may read only so much."""

import errno
import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from broker_directories import PLAIN, TRANSACTIONAL, clean_directory
from child_signals import default_signals
from log_directory_files import corrupt_byte

from spindle.audit import throttle, workers
from spindle.audit.progress_file import progress_file
from spindle.audit.replica import AuditedReplica, audit_replica, unreadable_replica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.report import AuditReport, list_audit
from spindle.audit.run import run_audit
from spindle.cli.main import run


@pytest.fixture(scope="module")
def clean_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_directory(tmp_path_factory.mktemp("interrupted") / "d1")


@pytest.fixture
def root(clean_root: Path, tmp_path: Path) -> Path:
    copied = shutil.copytree(clean_root, tmp_path / "d1")
    for partition in (PLAIN, TRANSACTIONAL):
        corrupt_byte(copied / str(partition) / f"{0:020d}.log", 100)
    return copied


@pytest.fixture
def kept(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The progress file of an audit that was interrupted before its second replica."""
    done: list[Path] = []

    def audit_one(place: ReplicaPlace, **rest: Any) -> AuditedReplica | None:
        if done:
            raise KeyboardInterrupt
        done.append(place.path)
        return original(place, **rest)

    original = audit_replica
    with monkeypatch.context() as patch:
        patch.setattr("spindle.audit.workers.audit_replica", audit_one)
        with pytest.raises(KeyboardInterrupt):
            audited(root, tmp_path / "progress")
    return tmp_path / "progress"


def audited(root: Path, path: Path) -> AuditReport:
    with progress_file(path) as progress:
        return run_audit([root], progress=progress)


def test_an_interrupted_audit_continues(root: Path, kept: Path) -> None:
    report = audited(root, kept)
    assert report.resumed == 1
    whole = run_audit([root])
    assert len(whole.findings) == 2
    assert report.findings == whole.findings
    assert sorted(map(repr, report.replicas)) == sorted(map(repr, whole.replicas))
    assert not kept.exists()


def test_a_replica_that_has_changed_is_read_again(root: Path, kept: Path) -> None:
    for partition in (PLAIN, TRANSACTIONAL):
        (root / str(partition) / "leader-epoch-checkpoint").write_text("0\n0\n")
    report = audited(root, kept)
    assert report.resumed == 0
    assert sum(finding.kind.text == "epoch-file" for finding in report.findings) == 2


def test_a_replica_that_could_not_be_read_is_tried_again(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(place: ReplicaPlace, **_: Any) -> AuditedReplica | None:
        return unreadable_replica(place, OSError(errno.EIO, "Input/output error"))

    path = tmp_path / "progress"
    with monkeypatch.context() as patch:
        patch.setattr("spindle.audit.workers.audit_replica", refuse)
        assert {finding.kind.text for finding in audited(root, path).findings} == {"unreadable"}
    assert path.exists()
    report = audited(root, path)
    assert report.resumed == 0
    assert report.findings == run_audit([root]).findings
    assert not path.exists()


def test_a_kill_inside_of_a_line_loses_that_line(root: Path, kept: Path) -> None:
    os.truncate(kept, kept.stat().st_size - 1)
    assert audited(root, kept).resumed == 0


@pytest.mark.parametrize("content", ["text of a person", "{}\n"])
def test_another_file_is_no_progress_file_and_stays(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    path = tmp_path / "letter"
    path.write_text(content)
    assert run(["audit", str(root), "--resume", str(path)]) == 2
    assert "is not a progress file" in capsys.readouterr().err
    assert path.read_text() == content


def test_a_progress_file_is_used_by_one_audit_and_lies_elsewhere(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress_file(tmp_path / "shared"):
        assert run(["audit", str(root), "--resume", str(tmp_path / "shared")]) == 2
        assert "another audit is using" in capsys.readouterr().err
    assert run(["audit", str(root), "--resume", str(root / "progress")]) == 2
    assert "outside of the log directories" in capsys.readouterr().err
    assert run(["audit", str(root), "--resume", str(tmp_path)]) == 2
    assert "is a folder: give a file, or --spark, too" in capsys.readouterr().err


SCRIPT = "import sys; from spindle.cli.main import main; main(sys.argv[1:])"


def test_an_interrupted_audit_ends_with_its_processes_at_once(root: Path) -> None:
    options = ["audit", str(root), "-j", "2", "--throttle", "100"]
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=default_signals,
    ) as audit:
        own = psutil.Process(audit.pid)
        # Its pool has two processes, and has started the threads that give work to them.
        while sum(map(ignores_interrupts, children := own.children())) < 2 or own.num_threads() < 3:
            assert audit.poll() is None
        os.killpg(audit.pid, signal.SIGINT)  # as a terminal does
        _, errors = audit.communicate(timeout=60)
    assert "Traceback" not in errors
    assert psutil.wait_procs(children, timeout=20)[1] == []


def ignores_interrupts(process: psutil.Process) -> bool:
    status = Path(f"/proc/{process.pid}/status").read_text()
    (mask,) = (line.split()[1] for line in status.splitlines() if line.startswith("SigIgn:"))
    return bool(int(mask, 16) >> (signal.SIGINT - 1) & 1)


def test_the_processes_of_a_killed_audit_end(root: Path) -> None:
    options = ["audit", str(root), "-j", "2", "--throttle", "100"]
    command = [sys.executable, "-c", SCRIPT, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as audit:
        own = psutil.Process(audit.pid)
        while len(children := own.children()) < 2:
            assert audit.poll() is None
        audit.kill()
    _, alive = psutil.wait_procs(children, timeout=20)
    for process in alive:
        process.kill()
    assert alive == []


def test_a_throttle_counts_the_bytes_of_each_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    monkeypatch.setattr(time, "sleep", pauses.append)
    roots = (tmp_path / "a", tmp_path / "b")
    limited = throttle.ReadThrottle(1000, roots, multiprocessing.get_context("fork"))
    for index in (0, 0, 1):
        limited.wait(roots[index], 500)
    assert pauses == [0.5, 1.0, 0.5]


def test_a_throttled_audit_finds_the_same(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert run(["audit", str(root), "-j", "1", "--throttle", "1KiB"]) == 1
    assert "2 findings" in capsys.readouterr().out
    assert max(pauses) > 20


def test_a_throttled_audit_reads_all_directories_at_the_same_time(
    clean_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    roots = [shutil.copytree(clean_root, tmp_path / f"d{number}") for number in range(3)]
    all_are_here = multiprocessing.get_context("fork").Barrier(len(roots), timeout=60)

    def audit_together(place: ReplicaPlace, **rest: Any) -> AuditedReplica | None:
        all_are_here.wait()
        return original(place, **rest)

    original = audit_replica
    monkeypatch.setattr(workers, "audit_replica", audit_together)
    places = [list_audit([root], None, checks_records=False).places[0] for root in roots]
    reports = workers.audit_all(
        places, jobs=1, pause_ms=1, bytes_per_second=1 << 30, on_progress=lambda progress: None
    )
    assert {place.path for place, _ in reports} == {place.path for place in places}
