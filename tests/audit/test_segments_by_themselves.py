"""Segments are audited by themselves, in any order and in other processes, and then joined."""

import pickle
import random
import shutil
from pathlib import Path

import pytest
from broker_directories import clean_directory
from seeded_faults import FAULTS

from spindle.audit.log_directory import list_log_directory
from spindle.audit.replica import AuditedReplica, ReplicaPass, audit_replica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.run import run_audit
from spindle.audit.segment_part import SegmentPart


@pytest.fixture(scope="module")
def clean_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_directory(tmp_path_factory.mktemp("clean") / "root")


def shuffled(place: ReplicaPlace, rng: random.Random) -> AuditedReplica:
    """Audit the segments of a replica in random order; tasks and parts travel as bytes."""
    opened = ReplicaPass(place)
    parts: dict[int, SegmentPart] = {}
    for number in rng.sample(range(len(opened.tasks)), len(opened.tasks)):
        task = pickle.loads(pickle.dumps(opened.tasks[number]))
        parts[number] = pickle.loads(pickle.dumps(task.run(lambda size_bytes: None)))
    return opened.join(parts[number] for number in sorted(parts))


def test_a_log_has_a_task_for_each_segment(clean_root: Path) -> None:
    for place in list_log_directory(clean_root).replicas:
        segments = sorted(place.path.glob("*.log"))
        assert [task.segment.path for task in ReplicaPass(place).tasks] == segments
        assert len(segments) > 3


@pytest.mark.parametrize("name", list(FAULTS)[::4])
def test_the_order_of_the_tasks_does_not_matter(
    name: str, clean_root: Path, tmp_path: Path
) -> None:
    rng = random.Random(name)
    root = tmp_path / "root"
    shutil.copytree(clean_root, root)
    FAULTS[name][1](rng, root)
    for place in list_log_directory(root).replicas:
        whole = audit_replica(place, pause=lambda: None)
        assert shuffled(place, rng) == whole


def test_a_segment_that_is_removed_meanwhile_is_no_finding(
    clean_root: Path, tmp_path: Path
) -> None:
    root = tmp_path / "root"
    shutil.copytree(clean_root, root)
    place = list_log_directory(root).replicas[0]
    opened = ReplicaPass(place)
    for suffix in (".log", ".index", ".timeindex"):
        opened.tasks[0].segment.path.with_suffix(suffix).unlink()
    replica = opened.join(task.run(lambda size_bytes: None) for task in opened.tasks)
    assert replica.digest is None
    assert [
        finding.kind.text for finding in replica.findings if finding.kind.text != "segment-missing"
    ] == [
        "offset-index-missing",
        "time-index-missing",
    ]
    assert run_audit([root], recheck_ms=0).replicas
