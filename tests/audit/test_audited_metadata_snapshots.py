"""Snapshots of the metadata log in audited directories."""

import random
from pathlib import Path

import pytest
from broker_directories import BrokerDirectory
from seeded_faults import flip

from spindle.audit.repairs import repairs_of
from spindle.audit.run import run_audit
from spindle.common.ids import METADATA_PARTITION, OffsetAndEpoch
from spindle.metadata_log.quorum_state import encode_quorum_state
from spindle.metadata_log.snapshots import SnapshotInfo, encode_snapshot, snapshot_file_name
from spindle.protocol.records.batch import batches
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
