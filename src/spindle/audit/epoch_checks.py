"""Checks of `leader-epoch-checkpoint` against the epochs of the batches."""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from spindle.audit.findings import Collector, FindingKind
from spindle.audit.segment_part import EpochRun
from spindle.common.errors import CorruptLog
from spindle.log.formats.epoch_checkpoint import decode_epoch_checkpoint


def check_epochs(
    findings: Collector,
    path: Path,
    content: bytes | None,
    runs: Sequence[EpochRun],
    *,
    checked_from: int | None,
    end_offset: int | None,
) -> int | None:
    """Compare the epochs of the batches with the checkpoint; return the offset where it begins.

    None if the file has no entries, or is damaged.

    Args:
        content: the bytes of the file, None if there is none.
        runs: the epochs of the batches.
        checked_from: the checkpoint must reach back to this offset; None if unknown, because the
            running broker has not stored its log start offset yet.
        end_offset: the log end offset; None if it is not known.
    """
    entries = _entries(findings, path, content, has_epochs=any(run.epoch >= 0 for run in runs))
    if entries is None:
        _check_order(findings, runs)
        return None
    starts = [start for _, start in entries]
    for run in runs:
        if run.epoch < 0:
            continue
        for offset in (run.first_offset, run.last_offset):
            index = bisect_right(starts, offset) - 1
            if index >= 0 and entries[index][0] != run.epoch:
                wanted = f"the checkpoint has epoch {entries[index][0]} at offset {offset}"
            elif index < 0 and checked_from is not None and offset >= checked_from:
                wanted = f"the checkpoint begins at offset {starts[0]}"
            else:
                continue
            findings.add(
                FindingKind.EPOCH_MISMATCH,
                run.path,
                f"the batches from here on have leader epoch {run.epoch}, but {wanted}",
                position=run.position,
                offset=run.first_offset,
            )
            break
    if end_offset is not None and starts[-1] > end_offset:
        findings.add(
            FindingKind.EPOCH_BEYOND_END,
            path,
            f"leader epoch {entries[-1][0]} begins at offset {starts[-1]}, but the log ends at "
            f"{end_offset}",
            offset=starts[-1],
        )
    return starts[0]


def _entries(
    findings: Collector, path: Path, content: bytes | None, *, has_epochs: bool
) -> list[tuple[int, int]] | None:
    """Return the entries of the file, None if there are none to compare with."""
    try:
        entries = decode_epoch_checkpoint(str(path), content or b"")
    except CorruptLog as error:
        findings.add(FindingKind.EPOCH_FILE, path, f"the file is malformed: {error.finding}")
        return None
    if not entries:
        if has_epochs:
            state = "is missing" if content is None else "has no whole entries"
            findings.add(
                FindingKind.EPOCH_FILE, path, f"the file {state}, but the batches have epochs"
            )
        return None
    for before, after in pairwise(entries):
        if before[0] >= after[0] or before[1] >= after[1]:
            findings.add(
                FindingKind.EPOCH_FILE,
                path,
                f"entry {after[0]} {after[1]} follows entry {before[0]} {before[1]}: epochs and "
                "offsets must rise",
            )
            return None
    return entries


def _check_order(findings: Collector, runs: Sequence[EpochRun]) -> None:
    for before, run in pairwise(runs):
        if 0 <= run.epoch < before.epoch:
            findings.add(
                FindingKind.EPOCH_ORDER,
                run.path,
                f"the batch has leader epoch {run.epoch}, the one before it has {before.epoch}",
                position=run.position,
                offset=run.first_offset,
            )
