"""Damage to the files of a directory, `audit --apply`, and a start: what the repairs may not do.

The directory is copied to real files, for the audit reads no others.
"""

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

from spindle.common.errors import CorruptLog, CorruptRecords
from spindle.common.filesystem import OsFileSystem
from spindle.disks.directory_store import DirectoryStore
from spindle.log.errors import DuplicateLogDirectories, UnexpectedDirectory
from spindle.log.formats.checkpoints import (
    HIGH_WATERMARKS,
    OFFSET_CHECKPOINTS,
    read_offset_checkpoint,
)
from spindle.log.formats.names import LOG_SUFFIX
from spindle.log.log_config import LogConfig
from spindle.protocol.records.batch import batches
from verification.simulation.disk import SimulatedDisks

_WRITTEN_S: Final = 1_700_000_000
"""All files get this time of modification: the order of copying must decide nothing."""
_REFUSALS: Final = (CorruptLog, OSError, UnexpectedDirectory, DuplicateLogDirectories, ValueError)
Batches = frozenset[tuple[str, int, int]]
"""(name of the replica, base offset, checksum)."""


@dataclass(frozen=True, slots=True)
class AuditedDisk:
    """The result of damage and repairs.

    Attributes:
        lost: batches that a start has without the repairs, and has not with them.
        changed: the files that were damaged or moved away, by their path in the directory; None
            for a file that is gone. Empty if a person has to decide something, or if records were
            damaged, or a high watermark was raised, which nothing on the disk contradicts: then the
            damage is undone.
        text: what was damaged and moved.
    """

    lost: Batches
    changed: dict[str, bytes | None]
    text: str


def damage_and_repair(disks: SimulatedDisks, path: str, random: Random, now_ms: int) -> AuditedDisk:
    """Damage files of a copy of a directory, repair it, and start from both."""
    from spindle.audit.applied_repairs import apply_repairs, folder_states
    from spindle.audit.repairs import repairs_of
    from spindle.audit.run import run_audit

    with tempfile.TemporaryDirectory(prefix="spindle-simulation-") as folder:
        root, untouched = Path(folder) / "repaired", Path(folder) / "untouched"
        with disks.observed():
            before = dict(_files(disks, path, ""))
        for name, data in before.items():
            file = root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        whole = readable_batches(_copied(root, Path(folder) / "whole"), now_ms)
        damaged = [_damage(root, random) for _ in range(random.choice((1, 1, 2, 3)))]
        for file in root.rglob("*"):
            os.utime(file, (_WRITTEN_S, _WRITTEN_S))
        states = folder_states([root])
        report = run_audit([root], recheck_ms=0)
        _copied(root, untouched)
        moved, left = apply_repairs(repairs_of(report), Path(folder) / "quarantine", states)
        after = {
            name: (root / name).read_bytes() if (root / name).exists() else None for name in before
        }
        expected = readable_batches(untouched, now_ms)
        is_decided = bool(report.findings) and not left
        # The end of a log that was not closed may be cut, so damage there is no finding.
        is_decided &= not any(name.endswith(LOG_SUFFIX) for name in damaged)
        is_decided &= not _has_raised_high_watermark(root, before)
        if is_decided:
            expected |= whole
        lost = expected - readable_batches(_copied(root, Path(folder) / "started"), now_ms)
    changed = {name: data for name, data in after.items() if data != before[name]}
    text = f"damaged {', '.join(filter(None, damaged))}; moved {len(moved)}, left {len(left)}"
    return AuditedDisk(lost, changed if is_decided else {}, text)


def _files(disks: SimulatedDisks, root: str, folder: str) -> Iterator[tuple[str, bytes]]:
    """Yield the path in the directory, and the content, of each file."""
    for name in sorted(disks.list_directory(f"{root}/{folder}".rstrip("/"))):
        inner = f"{folder}{name}"
        if disks.is_directory(f"{root}/{inner}"):
            yield from _files(disks, root, f"{inner}/")
        else:
            yield inner, disks.read_bytes(f"{root}/{inner}")


def _copied(root: Path, target: Path) -> Path:
    shutil.copytree(root, target)
    return target


def readable_batches(root: Path, now_ms: int) -> Batches:
    """Start on a directory, before any topic is known; return the batches that clients can read.

    All of them, up to damage, if the broker refuses the directory.
    """
    store = DirectoryStore(OsFileSystem(), str(root))
    try:
        store.load(lambda topic: LogConfig(), now_ms)
    except _REFUSALS:
        return _batches_in(root, {})
    starts = {Path(log.path).name: log.log_start_offset for log in store.all_logs()}
    store.close_without_flush()
    return _batches_in(root, starts)


def _batches_in(root: Path, starts: dict[str, int]) -> Batches:
    headers = set()
    for path in root.glob("*/*.log"):
        with suppress(CorruptRecords):
            for _, header in batches(path.read_bytes()):
                if header.base_offset >= starts.get(path.parent.name, 0):
                    headers.add((path.parent.name, header.base_offset, header.crc))
    return frozenset(headers)


def _damage(root: Path, random: Random) -> str:
    """Damage one file; return its path in the directory, empty if there was nothing to damage."""
    patterns = (*OFFSET_CHECKPOINTS, "*/*.log", "*/*.index", "*/*.timeindex", "*/*.snapshot")
    paths = sorted(path for path in root.glob(random.choice(patterns)) if path.stat().st_size)
    if not paths:
        return ""
    path = random.choice(paths)
    data = path.read_bytes()
    changes: tuple[Callable[[], bytes], ...] = (
        lambda: data[: random.randrange(len(data))],
        lambda: _with_a_bit_flipped(data, random),
        lambda: _with_fewer_entries(data, random) if path.parent == root else bytes(len(data)),
    )
    path.write_bytes(random.choice(changes)())
    return str(path.relative_to(root))


def _has_raised_high_watermark(root: Path, before: dict[str, bytes]) -> bool:
    """Return whether a bit that was flipped in a digit has made a larger offset of it."""
    if not (root / HIGH_WATERMARKS).exists():
        return False
    file = root.parent / HIGH_WATERMARKS
    file.write_bytes(before.get(HIGH_WATERMARKS, b""))
    try:
        was = read_offset_checkpoint(OsFileSystem(), str(file))
        now = read_offset_checkpoint(OsFileSystem(), str(root / HIGH_WATERMARKS))
    except CorruptLog:
        return False
    return any(offset > was.get(partition, 0) for partition, offset in now.items())


def _with_a_bit_flipped(data: bytes, random: Random) -> bytes:
    changed = bytearray(data)
    changed[random.randrange(len(data))] ^= 1 << random.randrange(8)
    return bytes(changed)


def _with_fewer_entries(data: bytes, random: Random) -> bytes:
    """Return a checkpoint that is well-formed, and lacks entries."""
    version, _, *entries = [*data.decode(errors="replace").splitlines(), "", ""]
    kept = [entry for entry in entries if entry and random.random() < 0.5]
    return "\n".join([version, str(len(kept)), *kept, ""]).encode()
