"""The audit as a job of tasks, run here without Spark: same findings, resumed, within limits."""

import errno
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from broker_directories import clean_directory
from seeded_faults import FAULTS

from spindle.audit import spark_job
from spindle.audit.findings import AuditFinding
from spindle.audit.log_directory import list_log_directory
from spindle.audit.replica import ReplicaPass, SegmentTask
from spindle.audit.replica_place import ClosingState
from spindle.audit.run import run_audit
from spindle.audit.segment_audit import SegmentAudit
from spindle.audit.spark_checkpoint import PartFolder, segment_fingerprint
from spindle.audit.spark_checkpoint_format import part_document, segment_part
from spindle.audit.spark_groups import TaskRound, rounds
from spindle.audit.spark_job import (
    SegmentUnit,
    SparkWorkers,
    TaskAnswer,
    TaskFailed,
    TaskLimits,
    read_group,
)
from spindle.common.errors import CorruptRecords

NO_CONF: Mapping[str, str] = {}


class JobKilled(Exception):
    """The driver died."""


class TasksHere:
    """A Spark context that runs the tasks of a job here, and dies after some of them."""

    defaultParallelism = 2

    def __init__(self, dies_after: int = 1000, conf: Mapping[str, str] = NO_CONF) -> None:
        self._conf = conf
        self.groups_read: list[list[SegmentUnit]] = []
        self._dies_after = dies_after

    def accumulator(self, value: int) -> Any:
        namespace = SimpleNamespace(value=value)
        namespace.add = lambda more: setattr(namespace, "value", namespace.value + more)
        return namespace

    def getConf(self) -> Any:
        return SimpleNamespace(get=lambda key, other: self._conf.get(key, other))

    def setJobGroup(self, *_: Any, **__: Any) -> None:
        pass

    def cancelJobGroup(self, _: str) -> None:
        pass

    def parallelize(self, groups: Iterable[Any], _: int) -> Any:
        def run(read: Callable[[Any], Any]) -> Any:
            return SimpleNamespace(collect=lambda: [self._read(read, group) for group in groups])

        return SimpleNamespace(map=run)

    def _read(self, read: Callable[[Any], Any], group: list[SegmentUnit]) -> Any:
        if len(self.groups_read) == self._dies_after:
            raise JobKilled
        self.groups_read.append(group)
        return read(group)


def workers(context: TasksHere, folder: PartFolder | None = None) -> SparkWorkers:
    session: Any = SimpleNamespace(sparkContext=context)
    return SparkWorkers(session, folder)


def in_tasks(roots: list[Path], context: TasksHere, folder: PartFolder | None = None) -> Any:
    return run_audit(roots, recheck_ms=0, workers=workers(context, folder).audit_all)


def here(roots: list[Path]) -> tuple[AuditFinding, ...]:
    return run_audit(roots, recheck_ms=0).findings


@pytest.fixture(scope="module")
def clean_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_directory(tmp_path_factory.mktemp("clean") / "root")


@pytest.fixture
def damaged_roots(clean_root: Path, tmp_path: Path) -> list[Path]:
    """Directories with many faults each."""
    rng = random.Random(5)
    roots = []
    for number in range(3):
        root = tmp_path / f"r{number}"
        shutil.copytree(clean_root, root)
        for name in sorted(FAULTS)[number::6]:
            try:
                FAULTS[name][1](rng, root)
            except (AssertionError, CorruptRecords, IndexError, OSError, ValueError):
                continue  # an earlier fault took the file
        roots.append(root)
    return roots


def tasks_of(root: Path) -> list[SegmentTask]:
    return [
        task for place in list_log_directory(root).replicas for task in ReplicaPass(place).tasks
    ]


def test_the_findings_are_those_of_the_audit_here(damaged_roots: list[Path]) -> None:
    context = TasksHere()
    report = in_tasks(damaged_roots, context)
    assert report.findings == here(damaged_roots)
    assert len({finding.kind for finding in report.findings}) > 12
    assert len(context.groups_read) == len(damaged_roots)


def test_a_part_survives_json(damaged_roots: list[Path], clean_root: Path) -> None:
    for task in [task for root in (clean_root, *damaged_roots) for task in tasks_of(root)]:
        part = task.run(lambda size_bytes: None)
        assert segment_part(task, part_document(part)) == part


def test_an_audit_whose_driver_died_reads_only_the_rest(
    damaged_roots: list[Path], tmp_path: Path
) -> None:
    with pytest.raises(JobKilled):
        in_tasks(damaged_roots, TasksHere(dies_after=2), PartFolder(tmp_path / "parts"))
    (tmp_path / "parts" / "half.audit-parts.unfinished").write_text('{"version": 1, "par')
    (tmp_path / "parts" / "foreign.audit-parts.json").write_text("[1, 2]")
    context = TasksHere()
    report = in_tasks(damaged_roots, context, PartFolder(tmp_path / "parts"))
    assert len(context.groups_read) == 1
    assert report.findings == here(damaged_roots)
    PartFolder(tmp_path / "parts").remove_parts()
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_segment_that_has_changed_is_read_again(clean_root: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(clean_root, root)
    folder = PartFolder(tmp_path / "parts")
    in_tasks([root], TasksHere(), folder)
    changed = sorted(root.glob("*/*.log"))[1]
    data = bytearray(changed.read_bytes())
    data[-1] ^= 1
    changed.write_bytes(data)
    context = TasksHere()
    report = in_tasks([root], context, PartFolder(tmp_path / "parts"))
    assert [unit.task.segment.path for (unit,) in context.groups_read] == [changed]
    assert [finding.kind.text for finding in report.findings] == ["batch-checksum"]
    folder.remove_parts()
    assert list((tmp_path / "parts").iterdir()) == []


def test_a_segment_that_could_not_be_read_is_tried_again(
    clean_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(SegmentAudit, "_audit", refuse)
        report = in_tasks([clean_root], TasksHere(), PartFolder(tmp_path / "parts"))
    assert {finding.kind.text for finding in report.findings} >= {"unreadable"}
    assert in_tasks([clean_root], TasksHere(), PartFolder(tmp_path / "parts")).findings == ()


def test_a_finding_in_a_directory_in_use_needs_two_passes(
    damaged_roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spindle.audit.log_directory.state_of", lambda path: ClosingState.IN_USE)
    context = TasksHere()
    report = in_tasks(damaged_roots[:1], context)
    assert len(context.groups_read) == 2
    assert report.findings == here(damaged_roots[:1])


def test_a_machine_that_does_not_see_a_directory_returns_its_segments(
    clean_root: Path, tmp_path: Path
) -> None:
    gone = tmp_path / "gone"
    shutil.copytree(clean_root, gone)
    units = [SegmentUnit(0, tasks_of(gone)[0], 1, "")]
    shutil.rmtree(gone)
    answer = read_group(units, TaskLimits(None, {}), lambda size_bytes: None)
    assert answer.parts is None
    assert answer.hosts


def test_segments_that_were_handed_back_go_to_the_host_that_has_seen_the_directory(
    damaged_roots: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[list[str]]] = []
    blind_for = {"a": 2}

    def on_one_of_two_hosts(group: Any, **others: Any) -> TaskAnswer:
        if blind_for["a"]:
            blind_for["a"] -= 1
            return TaskAnswer(("a",), None)
        return TaskAnswer(("b",), read_group(group, **others).parts)

    def run_here(_: Any, read: Any, groups: Any, *, hosts: Any, **__: Any) -> list[Any]:
        asked.append(list(hosts))
        return [read(group) for group in groups]

    monkeypatch.setattr(spark_job, "read_group", on_one_of_two_hosts)
    monkeypatch.setattr(spark_job, "run_watched", run_here)
    named = dict.fromkeys(damaged_roots, ("broker-1", "10.0.0.1"))
    session: Any = SimpleNamespace(sparkContext=TasksHere())
    workers = SparkWorkers(session, None, named).audit_all
    report = run_audit(damaged_roots, recheck_ms=0, workers=workers)
    assert report.findings == here(damaged_roots)
    first, second = asked
    assert first == [["broker-1", "10.0.0.1"]] * 3
    assert second == [["broker-1", "10.0.0.1"]] * 2


def test_a_directory_that_no_executor_sees_is_named_with_the_hosts(
    clean_root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        spark_job, "read_group", lambda *_, **__: TaskAnswer(("a", "10.0.0.2"), None)
    )
    with pytest.raises(TaskFailed, match=f"no executor sees {clean_root}; tried: 10.0.0.2, a"):
        in_tasks([clean_root], TasksHere())


def test_tasks_read_one_directory_each_and_share_its_limit(
    damaged_roots: list[Path],
) -> None:
    tasks = [task for root in damaged_roots for task in tasks_of(root)]
    units = [
        SegmentUnit(n, task, 40 << 20, segment_fingerprint(task)) for n, task in enumerate(tasks)
    ]
    (unlimited,) = rounds(units, 250, None)
    assert numbers_of([unlimited]) == list(range(len(units)))
    assert all(len(group) == 1 for group in unlimited.groups)
    assert unlimited.bytes_per_second == {}
    assert list(rounds(units[:0], 250, None)) == []
    width = 2
    limited = list(rounds(units, width * len(damaged_roots) + 1, 100 << 20))
    assert numbers_of(limited) == list(range(len(units)))
    for task_round in limited:
        assert task_round.bytes_per_second == dict.fromkeys(damaged_roots, 50 << 20)
        roots = Counter(group[0].root for group in task_round.groups)
        assert all(len({unit.root for unit in group}) == 1 for group in task_round.groups)
        assert max(roots.values()) <= width
    (first, *_) = rounds(units, 1, 1 << 20)
    assert [group[0].root for group in first.groups] == damaged_roots
    assert first.bytes_per_second == dict.fromkeys(damaged_roots, 1 << 20)
    assert all(len(group) == 2 for group in first.groups), "more than a minute's bytes"


def numbers_of(found: list[TaskRound[SegmentUnit]]) -> list[int]:
    return sorted(
        unit.number for task_round in found for group in task_round.groups for unit in group
    )
