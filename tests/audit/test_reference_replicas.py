"""Replicas that differ: which one is right, and what is compared without high watermarks."""

import struct
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from broker_directories import PLAIN
from test_cluster_checks import changed, found_in, placement, rewrite_a_batch, roots

from spindle.audit.placement import ClusterPlacement, PlacedPartition
from spindle.audit.repairs import repair_plan, repairs_of
from spindle.audit.run import run_audit
from spindle.protocol.records.batch import batches, computed_crc

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
    differs = [finding for finding in found_in(roots) if finding.kind.text == "replica-differs"]
    assert [finding.path for finding in differs] == [str(roots[0] / str(PLAIN))]


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
    kinds = {finding.kind.text for finding in found_in(roots[:2])}
    assert kinds.isdisjoint({"replica-differs", "replica-undecided", "replica-not-compared"})


def test_replicas_that_cannot_be_compared_are_a_finding(roots: list[Path]) -> None:
    for number, root in enumerate(roots[:2]):
        forget_high_watermarks(root)
        for segment in (root / str(PLAIN)).glob("*.log"):
            set_epoch(segment, 7 + number)
        (root / str(PLAIN) / "leader-epoch-checkpoint").write_text(f"0\n1\n{7 + number} 0\n")
    (finding,) = found_in(roots[:2])
    assert finding.kind.text == "replica-not-compared"


@pytest.mark.parametrize("damaged", range(3))
@pytest.mark.parametrize("is_in_elr", [False, True])
def test_the_replica_that_stopped_last_is_wrong_if_the_others_agree(
    roots: list[Path], placement: ClusterPlacement, damaged: int, is_in_elr: bool
) -> None:
    def stopped_last(each: PlacedPartition) -> PlacedPartition:
        node = damaged + 1
        isr, elr = ((), (node,)) if is_in_elr else ((node,), ())
        return replace(each, isr=isr, leader=-1 if is_in_elr else node, elr=elr)

    rewrite_a_batch(roots[damaged])
    placed = changed(placement, PLAIN.topic, stopped_last)
    (finding,) = found_in(roots, placed)
    assert finding.kind.text == "replica-differs"
    assert finding.path == str(roots[damaged] / str(PLAIN))
    assert "agrees with another replica" in finding.evidence
    others = [root for number, root in enumerate(roots) if number != damaged]
    assert found_in(others, placed) == []
    (finding,) = found_in([roots[damaged], others[0]], placed)
    assert finding.kind.text == "replica-undecided"


def test_replicas_that_are_damaged_at_different_places_are_both_found(roots: list[Path]) -> None:
    for root in roots:
        spread_offsets(root)
    rewrite_a_batch(roots[0])
    last = sorted((roots[1] / str(PLAIN)).glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    position, header = next(iter(batches(data)))
    data[position + header.size_bytes - 1] ^= 1
    struct.pack_into(">I", data, position + 17, computed_crc(data, position, header))
    last.write_bytes(data)
    differs = [finding for finding in found_in(roots) if finding.kind.text == "replica-differs"]
    assert [finding.path for finding in differs] == [str(root / str(PLAIN)) for root in roots[:2]]


def spread_offsets(root: Path) -> None:
    """Let the last segment begin in another range of offsets than the others."""
    last = sorted((root / str(PLAIN)).glob("*.log"))[-1]
    data = bytearray(last.read_bytes())
    shift = 8192
    for position, header in list(batches(bytes(data))):
        struct.pack_into(">q", data, position, header.base_offset + shift)
    last.with_name(f"{int(last.stem) + shift:020d}.log").write_bytes(data)
    last.unlink()
    (root / HIGH_WATERMARKS).write_text(f"0\n1\n{PLAIN.topic} {PLAIN.partition} 1000000\n")


@pytest.mark.parametrize("newer", [0, 2])
def test_the_leader_is_right_where_the_leader_epochs_contradict_each_other(
    roots: list[Path], placement: ClusterPlacement, newer: int
) -> None:
    """It was elected without the records of the other one, whose history ended there."""
    for index in range(3):
        epoch = 6 if index == newer else 5
        last = sorted((roots[index] / str(PLAIN)).glob("*.log"))[-1]
        set_epoch(last, epoch)
        path = roots[index] / str(PLAIN) / "leader-epoch-checkpoint"
        lines = path.read_text().splitlines()
        kept = [line for line in lines[2:] if int(line.split()[1]) < int(last.stem)]
        kept.append(f"{epoch} {int(last.stem)}")
        path.write_text("\n".join(["0", str(len(kept)), *kept, ""]))
    led = changed(placement, PLAIN.topic, lambda each: replace(each, leader=newer + 1))
    pair = sorted([roots[newer], roots[1]])
    (finding,) = found_in(pair, led)
    assert finding.kind.text == "replica-differs"
    assert finding.path == str(roots[1] / str(PLAIN))
    assert "leads the partition, with other leader epochs" in finding.evidence
    (finding,) = found_in(pair)
    assert "has the newest leader epoch" in finding.evidence
    # Two replicas that agree are never to be moved away because of one.
    agreeing = found_in(roots, led)
    assert {finding.kind.text for finding in agreeing} == {"replica-undecided"}


def test_replicas_that_agree_are_not_given_up_because_of_their_other_damage(
    roots: list[Path],
) -> None:
    rewrite_a_batch(roots[0])
    for root in roots[1:]:
        (root / str(PLAIN) / "leader-epoch-checkpoint").unlink()
    kinds = [finding.kind.text for finding in found_in(roots)]
    assert "replica-differs" in kinds
    differs = [finding for finding in found_in(roots) if finding.kind.text == "replica-differs"]
    assert [finding.path for finding in differs] == [str(roots[0] / str(PLAIN))]


def test_the_last_offsets_are_compared_below_the_high_watermark(roots: list[Path]) -> None:
    """One replica has grown since the other one was read, as those of a running cluster do."""
    last = sorted((roots[1] / str(PLAIN)).glob("*.log"))[-1]
    data = last.read_bytes()
    *_, (position, header) = batches(data)
    last.write_bytes(data[:position])
    for root in roots[:2]:
        (root / ".kafka_cleanshutdown").unlink()
        text = f"0\n1\n{PLAIN.topic} {PLAIN.partition} {header.base_offset}\n"
        (root / HIGH_WATERMARKS).write_text(text)
        (root / "recovery-point-offset-checkpoint").write_text(text)
    kinds = {finding.kind.text for finding in found_in(roots[:2])}
    assert kinds.isdisjoint({"replica-differs", "replica-undecided"})
    rewrite_a_batch(roots[0])
    kinds = {finding.kind.text for finding in found_in(roots[:2])}
    assert "replica-undecided" in kinds


def test_two_replicas_with_the_same_evidence_are_undecided(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    rewrite_a_batch(roots[0])
    for known in (None, in_sync_were(placement, 1, 2)):
        load_placement = partial(_same, known)
        report = run_audit(roots[:2], load_placement=load_placement, recheck_ms=0)
        (finding,) = report.findings
        assert finding.kind.text == "replica-undecided"
        assert "nothing known here shows which" in finding.evidence
        plan = repair_plan(repairs_of(report))
        assert not any("mv --" in line for line in plan)


def test_a_replica_that_is_behind_does_not_decide(
    roots: list[Path], placement: ClusterPlacement
) -> None:
    """Its batches agree with both others, because it has none of those that differ."""
    rewrite_a_batch(roots[0])
    for segment in sorted((roots[2] / str(PLAIN)).glob("*.log"))[1:]:
        for suffix in (".log", ".index", ".timeindex"):
            segment.with_suffix(suffix).unlink()
    kinds = {finding.kind.text for finding in found_in(roots)}
    assert "replica-undecided" in kinds
    assert "replica-differs" not in kinds
