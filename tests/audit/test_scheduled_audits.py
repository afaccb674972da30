"""Audits that a timer starts: what waits longest is read first, and the next run goes on there."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from broker_directories import PLAIN, BrokerDirectory
from log_directory_files import corrupt_byte

from spindle.audit import scrub_history as scrub_history_module
from spindle.audit.replica import AuditedReplica, audit_replica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.run import run_audit
from spindle.audit.scrub_history import scrub_history
from spindle.cli.main import run
from spindle.common.ids import TopicPartition

DAY_MS = 24 * 3600 * 1000
REPLICAS = 5


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = BrokerDirectory(tmp_path / "d1")
    for number in range(REPLICAS):
        log = directory.create(TopicPartition(PLAIN.topic, number))
        directory.append(log, 3)
    directory.close()
    return directory.path


class Clock:
    """Each look at it takes some time."""

    def __init__(self, now_ms: int, step_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.step_ms = step_ms

    def __call__(self) -> int:
        self.now_ms += self.step_ms
        return self.now_ms


def scrubbed(root: Path, history: Path, clock: Clock, until_ms: int | None = None) -> list[str]:
    """Run a scheduled audit; return the names of the replicas that it read."""
    with scrub_history(history, Path.exists, clock, until_ms) as opened:
        report = run_audit([root], recheck_ms=0, history=opened)
    return [replica.place.path.name for replica in report.replicas]


def test_the_next_run_continues_where_the_time_limit_was_reached(
    root: Path, tmp_path: Path
) -> None:
    history = tmp_path / "history"
    names = [f"{PLAIN.topic}-{number}" for number in range(REPLICAS)]
    clock = Clock(0, step_ms=100)
    assert scrubbed(root, history, clock, until_ms=500) == names[:2]
    rest = scrubbed(root, history, clock)
    assert rest == [*names[2:], *names[:2]]
    clock.now_ms += DAY_MS
    assert scrubbed(root, history, clock, until_ms=0) == names[2:3]


def test_a_run_that_was_killed_loses_only_the_replica_that_it_was_reading(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(place: ReplicaPlace, **options: Any) -> AuditedReplica | None:
        if place.partition.partition == 2:
            raise KeyboardInterrupt
        return audit_replica(place, **options)

    history = tmp_path / "history"
    with monkeypatch.context() as patch:
        patch.setattr("spindle.audit.workers.audit_replica", killed)
        with pytest.raises(KeyboardInterrupt):
            scrubbed(root, history, Clock(1))
    history.write_bytes(history.read_bytes() + b'{"path": "cut by the ki')
    assert scrubbed(root, history, Clock(2), until_ms=0) == [f"{PLAIN.topic}-2"]


def test_a_replica_that_cannot_be_read_waits_on(root: Path, tmp_path: Path) -> None:
    history = tmp_path / "history"
    segment = root / f"{PLAIN.topic}-1" / f"{0:020d}.log"
    data = segment.read_bytes()
    segment.unlink()
    segment.symlink_to(segment.name)
    scrubbed(root, history, Clock(1))
    segment.unlink()
    segment.write_bytes(data)
    assert scrubbed(root, history, Clock(2), until_ms=0) == [f"{PLAIN.topic}-1"]


def test_files_that_were_not_read_for_long_are_named(root: Path, tmp_path: Path) -> None:
    history, clock = tmp_path / "history", Clock(0)
    scrubbed(root, history, clock, until_ms=0)
    clock.now_ms = 31 * DAY_MS
    with scrub_history(history, Path.exists, clock, None) as opened:
        report = run_audit([root], recheck_ms=0)
        places = report.directories[0].replicas
        late = opened.overdue(places, 30)
        assert len(late) == REPLICAS
        assert [replica.was_read for replica in late] == [True] + [False] * (REPLICAS - 1)
        assert late[0].files == (f"{0:020d}.log",)
        assert late[0].days == 31
        assert opened.overdue(places, 32) == []


def test_a_replica_on_another_disk_at_the_same_path_was_not_read(
    root: Path, tmp_path: Path
) -> None:
    history, replica = tmp_path / "history", root / f"{PLAIN.topic}-2"
    corrupt_byte(replica / f"{0:020d}.log", -1)
    scrubbed(root, history, Clock(1))
    replica.rename(tmp_path / "former")
    shutil.copytree(tmp_path / "former", replica)
    assert scrubbed(root, history, Clock(2), until_ms=0) == [replica.name]
    replaced = tmp_path / "d2"
    root.rename(replaced)
    shutil.copytree(replaced, root)
    properties = (root / "meta.properties").read_text()
    (root / "meta.properties").write_text(properties.replace("directory.id=", "directory.id=A", 1))
    with scrub_history(history, Path.exists, Clock(3), None) as opened:
        places = run_audit([root], recheck_ms=0).directories[0].replicas
        assert opened.earlier_findings(places, 3) == []


def test_a_replica_of_a_directory_whose_id_cannot_be_read_counts_as_unread(
    root: Path, tmp_path: Path
) -> None:
    history, replica = tmp_path / "history", root / f"{PLAIN.topic}-2"
    corrupt_byte(replica / f"{0:020d}.log", -1)
    (root / "meta.properties").write_bytes(b"directory.id=\xff")
    scrubbed(root, history, Clock(1))
    with scrub_history(history, Path.exists, Clock(3), None) as opened:
        places = run_audit([root], recheck_ms=0).directories[0].replicas
        assert opened.earlier_findings(places, 3) == []


def test_a_replica_of_a_disk_that_is_not_mounted_keeps_its_history(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    history, away = tmp_path / "history", tmp_path / "away"
    command = ["audit", str(root), "-j", "1", "--history", str(history)]
    assert run(command) == 0
    root.rename(away)
    root.mkdir()
    other = BrokerDirectory(tmp_path / "d2", node_id=2)
    other.close()
    assert run(["audit", str(root), str(other.path), "-j", "1", "--history", str(history)]) == 2
    root.rmdir()
    away.rename(root)
    with scrub_history(history, Path.exists, Clock(0), None) as opened:
        (listed,) = run_audit([root], recheck_ms=0).directories
        assert opened.overdue(listed.replicas, 1) == []
    assert "directory-empty" in capsys.readouterr().out


def test_a_directory_of_the_history_that_a_run_was_not_given_is_named(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = BrokerDirectory(tmp_path / "d2", node_id=2)
    other.close()
    options = ("-j", "1", "--history", str(tmp_path / "history"))
    assert run(["audit", str(root), str(other.path), *options]) == 0
    assert "history" not in capsys.readouterr().out
    assert run(["audit", str(other.path), *options]) == 0
    text = f"{root} is in the history with {REPLICAS} replicas, but was not given to this audit"
    assert text in capsys.readouterr().out
    assert run(["audit", str(other.path), *options, "--json"]) == 0
    scrub = json.loads(capsys.readouterr().out)["scrub"]
    assert scrub["leftOut"] == [{"directory": str(root), "replicas": REPLICAS}]


def test_findings_of_earlier_runs_are_shown_until_the_replica_is_read_again(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    history = tmp_path / "history"
    segment = root / f"{PLAIN.topic}-0" / f"{0:020d}.log"
    corrupt_byte(segment, 70)
    command = ["audit", str(root), "-j", "1", "--history", str(history)]
    assert run(command) == 1
    corrupt_byte(segment, 70)

    def none(self: Any, places: Sequence[ReplicaPlace], size: int) -> list[list[ReplicaPlace]]:
        return []

    with monkeypatch.context() as patch:
        patch.setattr(scrub_history_module.ScrubHistory, "groups", none)
        capsys.readouterr()
        assert run(command) == 1
        assert f"batch-checksum {segment}" in capsys.readouterr().out
        assert run([*command, "--json"]) == 1
        document = json.loads(capsys.readouterr().out)
        assert [finding["kind"] for finding in document["scrub"]["earlierFindings"]] == [
            "batch-checksum"
        ]
    assert run(command) == 0


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--minutes", "5"], "--minutes needs --history"),
        (["--history", "h", "--resume", "r"], "--history excludes --resume"),
        (["--history", "{root}/h"], "outside of the log directories"),
    ],
)
def test_contradicting_options_are_refused(
    root: Path, capsys: pytest.CaptureFixture[str], options: list[str], complaint: str
) -> None:
    assert run(["audit", str(root), *(option.format(root=root) for option in options)]) == 2
    assert complaint in capsys.readouterr().err


def test_a_file_that_is_no_history_is_refused(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "notes"
    other.write_text("something else\n")
    assert run(["audit", str(root), "--history", str(other)]) == 2
    assert "is not a history of an audit" in capsys.readouterr().err
    assert other.read_text() == "something else\n"
