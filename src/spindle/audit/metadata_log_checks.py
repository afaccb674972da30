"""Checks of the files that only the replica of the metadata log has (KIP-595, KIP-630)."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.segment_part import EpochRun
from spindle.common.errors import CorruptLog
from spindle.metadata_log.quorum_state import FILE_NAME as QUORUM_STATE
from spindle.metadata_log.quorum_state import decode_quorum_state
from spindle.metadata_log.snapshots import check_snapshot, parse_snapshot_file_name


def check_quorum_state(findings: Collector, folder: Path, runs: Sequence[EpochRun]) -> None:
    """Compare the vote in `quorum-state` with the epochs of the batches.

    A node writes an epoch there before it appends a batch of that epoch.
    """
    if not runs:
        return
    path, kind = folder / QUORUM_STATE, FindingKind.QUORUM_STATE
    latest = max(run.epoch for run in runs)
    try:
        state = decode_quorum_state(path.read_bytes(), str(path))
    except FileNotFoundError:
        findings.add(kind, path, f"the file is missing, but the log has batches of epoch {latest}")
    except CorruptLog as error:
        findings.add(kind, path, error.finding)
    except OSError as error:
        findings.add_unreadable(path, error)
    else:
        if state.epoch < latest:
            evidence = f"it has epoch {state.epoch}, but the log has batches of epoch {latest}"
            findings.add(kind, path, evidence)


def check_metadata_snapshots(findings: Collector, folder: Path, names: Iterable[str]) -> None:
    """Check the batches of all snapshots."""
    for name in sorted(names):
        if parse_snapshot_file_name(name) is None:
            continue
        path = folder / name
        try:
            for _ in check_snapshot(path.read_bytes(), str(path)):
                pass
        except FileNotFoundError:
            continue
        except CorruptLog as error:
            kind = FindingKind.METADATA_SNAPSHOT
            findings.add(kind, path, error.finding, position=error.position)
        except OSError as error:
            findings.add_unreadable(path, error)
