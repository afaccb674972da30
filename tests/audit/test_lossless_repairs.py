"""A repair that is called lossless loses nothing: damage, apply, load with the real loader."""

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from broker_directories import COMPACTED, CONFIG, NOW_MS, clean_directory
from seeded_faults import FAULTS
from test_compacted_replicas import POLICY, compacted_directory

from spindle.audit.applied_repairs import apply_repairs, folder_states
from spindle.audit.repairs import repairs_of
from spindle.audit.report import AuditReport
from spindle.audit.run import run_audit
from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.filesystem import OsFileSystem
from spindle.disks.directory_store import DirectoryStore
from spindle.log.errors import DuplicateLogDirectories, UnexpectedDirectory
from spindle.log.log_config import LogConfig
from spindle.protocol.records.batch import batches

RECOVERY_POINTS = "recovery-point-offset-checkpoint"
Records = set[tuple[str, int, int]]
ALONE = sorted(FAULTS)
IN_ROOT = [
    "a_checkpoint_is_malformed",
    "a_checkpoint_loses_its_entries",
    "a_recovery_point_falls",
    "an_offset_becomes_negative",
    "a_log_start_offset_rises",
]


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clean_directory(tmp_path_factory.mktemp("clean") / "d1")


@pytest.fixture(scope="module")
def compacted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("compacted") / "d1"
    return compacted_directory(folder, 1, cleaned_after=(25, 45))


def config_of(topic: str) -> LogConfig:
    return POLICY if topic == COMPACTED.topic else CONFIG


def records_in(root: Path) -> Records:
    """Return (replica, base offset, checksum) of the batches, in each file up to a damaged one."""
    records: Records = set()
    for path in root.glob("*/*.log"):
        with suppress(CorruptRecords, OSError):
            for _, header in batches(path.read_bytes()):
                records.add((path.parent.name, header.base_offset, header.crc))
    return records


def readable_after_start(root: Path) -> Records:
    """Start on a directory; return the batches that clients may read, all if it does not start."""
    store = DirectoryStore(OsFileSystem(), str(root))
    try:
        store.load(config_of, NOW_MS)
    except (CorruptLog, OSError, UnexpectedDirectory, DuplicateLogDirectories, ValueError):
        return records_in(root)
    starts = {Path(log.path).name: log.log_start_offset for log in store.all_logs()}
    store.close_without_flush()
    return {record for record in records_in(root) if record[1] >= starts.get(record[0], 0)}


def repaired(root: Path, quarantine: Path) -> tuple[AuditReport, bool]:
    """Apply the safe repairs; return the report before, and whether nothing was left."""
    before = folder_states([root])
    report = run_audit([root], recheck_ms=0)
    _, left = apply_repairs(repairs_of(report), quarantine, before)
    return report, not left


def check(damaged: Path, tmp_path: Path) -> None:
    """The repaired directory has all records, and never fewer than one that was not repaired."""
    untouched, root = tmp_path / "untouched" / "d1", tmp_path / "repaired" / "d1"
    for copy in (untouched, root):
        shutil.copytree(damaged, copy, symlinks=True)
    whole = records_in(root)
    report, is_done = repaired(root, tmp_path / "q")
    without, left = readable_after_start(untouched), readable_after_start(root)
    said = [finding.sentence for finding in report.findings]
    assert without - left == set(), said
    if is_done and report.findings:
        assert left == whole, said


def damaged_copy(
    source: Path, target: Path, faults: list[str], seed: str, *, is_closed: bool
) -> Path:
    shutil.copytree(source, target)
    rng = random.Random(seed)
    if not is_closed:
        (target / ".kafka_cleanshutdown").unlink()
    for name in faults:
        FAULTS[name][1](rng, target)
    return target


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("name", ALONE)
def test_a_repair_of_one_fault_loses_nothing(
    clean: Path, tmp_path: Path, name: str, is_closed: bool
) -> None:
    check(damaged_copy(clean, tmp_path / "d1", [name], name, is_closed=is_closed), tmp_path)


@pytest.mark.parametrize("is_closed", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_repairs_of_two_faults_lose_nothing(
    clean: Path, tmp_path: Path, seed: int, is_closed: bool
) -> None:
    rng = random.Random(seed)
    of_replicas = [name for name in ALONE if name not in IN_ROOT and "vanish" not in name]
    names = [rng.choice(of_replicas), rng.choice(IN_ROOT)]
    try:
        damaged = damaged_copy(clean, tmp_path / "d1", names, str(seed), is_closed=is_closed)
    except (FileNotFoundError, IndexError, ValueError):
        return  # the first fault took away what the second one damages
    check(damaged, tmp_path)


def torn(root: Path) -> None:
    (root / RECOVERY_POINTS).write_text("0\n5\n__consumer_offs")


def without_entries(root: Path) -> None:
    (root / RECOVERY_POINTS).write_text("0\n0\n")


def without_clean_offsets(root: Path) -> None:
    torn(root)
    (root / "cleaner-offset-checkpoint").write_text("0\n1\nstat")


@pytest.mark.parametrize("damage", [torn, without_entries, without_clean_offsets])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_repair_of_the_checkpoints_of_a_compacted_log_loses_nothing(
    compacted: Path, tmp_path: Path, damage: Callable[[Path], None], is_closed: bool
) -> None:
    damaged = damaged_copy(compacted, tmp_path / "d1", [], "", is_closed=is_closed)
    damage(damaged)
    check(damaged, tmp_path)


def test_recovery_points_stay_where_a_start_without_them_would_cut_a_log(
    clean: Path, tmp_path: Path
) -> None:
    names = ["a_bit_of_the_records_flips"]
    root = damaged_copy(clean, tmp_path / "d1", names, "cut", is_closed=False)
    torn(root)
    content = (root / RECOVERY_POINTS).read_bytes()
    _, is_done = repaired(root, tmp_path / "q")
    assert not is_done
    assert (root / RECOVERY_POINTS).read_bytes() == content


def test_clean_offsets_are_not_needed_for_the_gaps_of_a_log(
    compacted: Path, tmp_path: Path
) -> None:
    root = damaged_copy(compacted, tmp_path / "d1", [], "", is_closed=False)
    (root / "cleaner-offset-checkpoint").write_text("0\n1\nstat")
    whole = records_in(root)
    _, is_done = repaired(root, tmp_path / "q")
    assert is_done
    assert readable_after_start(root) == whole


def test_a_follower_that_stopped_before_it_asked_about_a_gap_needs_no_repair(
    compacted: Path, tmp_path: Path
) -> None:
    root = damaged_copy(compacted, tmp_path / "d1", [], "", is_closed=False)
    for name in (RECOVERY_POINTS, "cleaner-offset-checkpoint"):
        (root / name).write_text("0\n0\n")
    store = DirectoryStore(OsFileSystem(), str(root))
    store.load(config_of, NOW_MS)
    log = store.logs[COMPACTED]
    assert log.recovery_point_to_store < log.log_end_offset
    store.close(1)
    assert [finding.sentence for finding in run_audit([root]).findings] == []
