"""Every seeded fault is found, at its replica, and nothing is found in clean directories."""

import random
import shutil
from pathlib import Path

import pytest
from broker_directories import clean_directory
from seeded_faults import FAULTS

from spindle.audit.findings import FindingKind
from spindle.audit.repairs import repair_plan, repairs_of
from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit

SEEDS = 4
CLEAN = 3


@pytest.fixture(scope="module")
def clean_roots(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("clean")
    return [clean_directory(folder / str(seed), seed) for seed in range(CLEAN)]


def audited(root: Path) -> AuditReport:
    return run_audit([root], recheck_ms=0)


def test_clean_directories_have_no_findings(clean_roots: list[Path]) -> None:
    for root in clean_roots:
        report = audited(root)
        assert report.findings == ()
        assert len(report.replicas) == 2
        assert report.batch_count == 220


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_found(name: str, clean_roots: list[Path], tmp_path: Path) -> None:
    kind, seed_fault = FAULTS[name]
    for seed in range(SEEDS):
        rng = random.Random(f"{name} {seed}")
        root = tmp_path / str(seed)
        shutil.copytree(rng.choice(clean_roots), root)
        seed_fault(rng, root)
        report = audited(root)
        findings = [finding for finding in report.findings if finding.kind is kind]
        assert findings, [finding.sentence for finding in report.findings]
        assert all(Path(finding.path).is_relative_to(root) for finding in findings)
        assert repair_plan(repairs_of(report))


def test_a_missing_replica_is_not_to_be_moved_away(clean_roots: list[Path], tmp_path: Path) -> None:
    root = tmp_path / "root"
    shutil.copytree(clean_roots[0], root)
    FAULTS["a_replica_vanishes"][1](random.Random("missing"), root)
    report = audited(root)
    (finding,) = report.findings
    assert "start the broker again, if another replica" in finding.sentence
    assert "away" not in finding.sentence
    script = "\n".join(repair_plan(repairs_of(report)))
    assert "start the broker again, if another replica" in script


def test_the_corpus_has_most_kinds() -> None:
    missing = set(FindingKind) - {kind for kind, _ in FAULTS.values()}
    assert len(FAULTS) >= 40
    assert {kind.text for kind in missing} == ELSEWHERE


ELSEWHERE = {
    "batch-too-large",
    "directory-empty",
    "quorum-state",
    "broker-silent",
    "directory-offline",
    "partition-offline",
    "replica-size",
    "directory-assignment",
    "directory-identity",
    "epoch-order",
    "metadata-not-read",
    "metadata-snapshot",
    "records",
    "replica-differs",
    "replica-duplicate",
    "replica-not-compared",
    "replica-undecided",
    "replica-orphaned",
    "topic-id-stale",
}
"""Kinds that need more than one damaged place; other tests of this folder have them."""
