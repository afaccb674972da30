"""Replicas that differ: which one is right, and what is compared without high watermarks."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from broker_directories import PLAIN
from test_cluster_checks import changed, found_in, placement, rewrite_a_batch, roots

from spindle.audit.placement import ClusterPlacement, PlacedPartition
from spindle.audit.repairs import repair_plan, repairs_of
from spindle.audit.run import run_audit
from spindle.protocol.records.batch import batches

__all__ = ["placement", "roots"]
HIGH_WATERMARKS = "replication-offset-checkpoint"


def in_sync_were(placed: ClusterPlacement, *elr: int) -> ClusterPlacement:
    """Return the metadata after all replicas left the ISR; those of the ELR may lead."""

    def left(each: PlacedPartition) -> PlacedPartition:
        return replace(each, isr=(), leader=-1, elr=elr)

    return changed(placed, PLAIN.topic, left)


def _same(placed: ClusterPlacement | None) -> ClusterPlacement | None:
    return placed


def forget_high_watermarks(root: Path) -> None:
    (root / HIGH_WATERMARKS).write_bytes(b"")
    (root / ".kafka_cleanshutdown").unlink()


def set_epoch(segment: Path, epoch: int) -> None:
    """Give all batches of a segment a leader epoch, which their checksums do not cover."""
    data = bytearray(segment.read_bytes())
    for position, _ in list(batches(bytes(data))):
        data[position + 12 : position + 16] = epoch.to_bytes(4, "big")
    segment.write_bytes(data)


@pytest.mark.parametrize("content", ["", f"0\n1\n{PLAIN.topic} {PLAIN.partition} 0\n"])
def test_replicas_are_compared_without_high_watermarks(roots: list[Path], content: str) -> None:
    rewrite_a_batch(roots[0])
    for root in roots:
        (root / HIGH_WATERMARKS).write_text(content)
    differs = [each for each in found_in(roots) if each.kind.text == "replica-differs"]
    assert [each.path for each in differs] == [str(roots[0] / str(PLAIN))]


def test_replicas_of_killed_nodes_without_high_watermarks_are_in_order(roots: list[Path]) -> None:
    for root in roots:
        forget_high_watermarks(root)
    assert found_in(roots) == []


def test_a_tail_that_was_never_committed_is_in_order(roots: list[Path]) -> None:
    """One node has the batches of an epoch whose leader died, the other those of the next one."""
    for root, epoch in zip(roots[:2], (5, 6), strict=True):
        forget_high_watermarks(root)
        last = sorted((root / str(PLAIN)).glob("*.log"))[-1]
        set_epoch(last, epoch)
        data = bytearray(last.read_bytes())
        data[-1] ^= epoch
        last.write_bytes(data)
    kinds = {each.kind.text for each in found_in(roots[:2])}
    assert kinds.isdisjoint({"replica-differs", "replica-undecided", "replica-not-compared"})


def test_replicas_that_cannot_be_compared_are_a_finding(roots: list[Path]) -> None:
    for number, root in enumerate(roots[:2]):
        forget_high_watermarks(root)
        for segment in (root / str(PLAIN)).glob("*.log"):
            set_epoch(segment, 7 + number)
        (root / str(PLAIN) / "leader-epoch-checkpoint").write_text(f"0\n1\n{7 + number} 0\n")
    (finding,) = found_in(roots[:2])
    assert finding.kind.text == "replica-not-compared"


def test_a_replica_of_the_elr_is_right_where_none_is_in_sync(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    for damaged, right in ((0, 1), (1, 0)):
        rewrite_a_batch(roots[damaged])
        (finding,) = found_in(roots[:2], in_sync_were(placement, right + 1))
        assert finding.kind.text == "replica-differs"
        assert finding.path == str(roots[damaged] / str(PLAIN))
        assert "which is eligible to lead (ELR)" in finding.evidence
        rewrite_a_batch(roots[damaged])


def test_two_replicas_with_the_same_evidence_are_undecided(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    rewrite_a_batch(roots[0])
    for known in (None, in_sync_were(placement, 1, 2)):
        load_placement = partial(_same, known)
        report = run_audit(roots[:2], load_placement=load_placement, second_look_ms=0)
        (finding,) = report.findings
        assert finding.kind.text == "replica-undecided"
        assert "nothing known here tells which" in finding.evidence
        plan = repair_plan(repairs_of(report.directories, report.findings))
        assert not any("mv --" in line for line in plan)


def test_a_replica_that_is_behind_does_not_decide(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    """Its batches agree with both others, because it has none of those that differ."""
    rewrite_a_batch(roots[0])
    for segment in sorted((roots[2] / str(PLAIN)).glob("*.log"))[1:]:
        for suffix in (".log", ".index", ".timeindex"):
            segment.with_suffix(suffix).unlink()
    kinds = {each.kind.text for each in found_in(roots)}
    assert "replica-undecided" in kinds
    assert "replica-differs" not in kinds
