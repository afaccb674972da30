"""Snapshots of the metadata log in audited directories."""

import random
from pathlib import Path

import pytest
from broker_directories import BrokerDirectory
from seeded_faults import flip

from spindle.audit.repairs import repairs_of
from spindle.audit.run import run_audit
from spindle.cli.audit.metadata import load_placement
from spindle.cli.main import run
from spindle.common.ids import METADATA_PARTITION, OffsetAndEpoch
from spindle.metadata_log.encoding import encode_records
from spindle.metadata_log.quorum_state import encode_quorum_state
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.messages.metadata_records import FeatureLevelRecord
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.raft.ready import ElectionState


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """The snapshot of a metadata log."""
    directory = BrokerDirectory(tmp_path / "d1")
    log = directory.create(METADATA_PARTITION)
    for _ in range(3):
        directory.append(log, 5)
    directory.close()
    state = ElectionState(epoch=0, leader_id=1, voted_key=None, voter_ids=())
    (Path(log.path) / "quorum-state").write_bytes(encode_quorum_state(state, 1))
    values = [b"value %d" % number for number in range(2000)]
    data = b"".join(encode_snapshot(values, SnapshotInfo(0, 0, None), epoch=0, now_ms=1))
    path = Path(log.path) / snapshot_file_name(OffsetAndEpoch(10, 0))
    path.write_bytes(data)
    return path


def found_in(snapshot: Path) -> list[tuple[str, str]]:
    report = run_audit([snapshot.parent.parent])
    return [(finding.kind.text, finding.path) for finding in report.findings]


def test_a_whole_snapshot_is_in_order(snapshot: Path) -> None:
    assert found_in(snapshot) == []


@pytest.mark.parametrize("seed", range(6))
def test_a_damaged_snapshot_is_found(snapshot: Path, seed: int) -> None:
    rng = random.Random(seed)
    size = snapshot.stat().st_size
    if seed % 2:
        # The checksum of a batch covers neither its base offset nor its leader epoch.
        flip(rng, snapshot, 61, size // 3)
    else:
        snapshot.write_bytes(snapshot.read_bytes()[: rng.randrange(size)])
    assert found_in(snapshot) == [("metadata-snapshot", str(snapshot))]


@pytest.mark.parametrize("content", [None, b"", b'{"leaderId":1,"leaderEp'])
def test_a_lost_vote_is_found_and_left_to_a_person(snapshot: Path, content: bytes | None) -> None:
    path = snapshot.with_name("quorum-state")
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert found_in(snapshot) == [("quorum-state", str(path))]
    (repairs,) = repairs_of(run_audit([snapshot.parent.parent]))
    (step,) = repairs.steps
    assert not step.is_safe


def test_a_vote_of_an_epoch_before_the_last_batch_is_found(snapshot: Path) -> None:
    path = snapshot.with_name("quorum-state")
    segment = snapshot.with_name(f"{0:020d}.log")
    data = bytearray(segment.read_bytes())
    *_, (position, _) = batches(bytes(data))
    data[position + 15] = 4
    segment.write_bytes(data)
    assert ("quorum-state", str(path)) in found_in(snapshot)


def metadata_of_level(root: Path, level: int) -> Path:
    """Write a log directory whose metadata log has a `metadata.version`."""
    directory = BrokerDirectory(root)
    log = directory.create(METADATA_PARTITION)
    directory.close()
    records = encode_records([FeatureLevelRecord(name="metadata.version", feature_level=level)])
    values = [SimpleRecord(None, value, 1_000) for value in records]
    folder = Path(log.path)
    (folder / f"{0:020d}.log").write_bytes(build_batch(values, base_offset=0, leader_epoch=0))
    (folder / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    state = ElectionState(epoch=0, leader_id=1, voted_key=None, voter_ids=(1,))
    (folder / "quorum-state").write_bytes(encode_quorum_state(state, 1))
    return folder


def found_about_metadata(*roots: Path) -> list[tuple[str, str]]:
    report = run_audit(roots, load_placement=lambda: load_placement(roots))
    return [
        (finding.path, finding.evidence)
        for finding in report.findings
        if finding.kind.text == "metadata-not-read"
    ]


def test_metadata_of_a_newer_release_is_not_passed_over_in_silence(tmp_path: Path) -> None:
    known = metadata_of_level(tmp_path / "d1", 30)
    assert found_about_metadata(known.parent) == []
    newer = metadata_of_level(tmp_path / "d2", 99)
    # The older log may be stale, so it decides nothing beside the newer one.
    for roots in ([newer.parent], [known.parent, newer.parent]):
        [(path, evidence)] = found_about_metadata(*roots)
        assert path == str(newer)
        assert evidence.startswith("metadata.version 99 is newer than this Spindle: it knows")
        assert "the replicas are not compared with the metadata of the cluster" in evidence


def test_a_damaged_metadata_log_counts_only_if_no_other_can_be_read(tmp_path: Path) -> None:
    known, damaged = (metadata_of_level(tmp_path / name, 30) for name in ("d1", "d2"))
    segment = damaged / f"{0:020d}.log"
    segment.write_bytes(segment.read_bytes()[:-1] + b"x")
    assert found_about_metadata(known.parent, damaged.parent) == []
    [(path, evidence)] = found_about_metadata(damaged.parent)
    assert path == str(damaged)
    assert evidence.startswith(f"{segment} at byte 0: ")


def test_an_audit_without_the_metadata_is_incomplete(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newer = metadata_of_level(tmp_path / "d2", 99)
    assert run(["audit", str(newer.parent)]) == 2
    assert "warning metadata-not-read" in capsys.readouterr().out
