"""Runs the safe repairs of a plan: moves files that a broker rebuilds to a quarantine folder.

Nothing is deleted, and the next run completes a killed one: at each moment a file is complete at
its place, in the quarantine, or at both.
"""

import errno
import filecmp
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from spindle.audit.repairs import DirectoryRepairs, RepairStep
from spindle.columnar.directory_files import LOCK_FILE

_PART_SUFFIX: Final = ".part"

FolderStates = dict[Path, tuple[tuple[str, int, int, int], ...]]
"""The (name, inode, bytes, time of modification in ns) of the files of each folder."""


def folder_states(roots: Sequence[Path]) -> FolderStates:
    """Return the states of log directories and of the folders in them."""
    states: FolderStates = {}
    for root in roots:
        folders = [root]
        try:
            with os.scandir(root) as entries:
                folders += [Path(entry.path) for entry in entries if _is_directory(entry)]
        except OSError:
            continue  # a finding of the audit; nothing is moved there
        for folder in folders:
            try:
                states[folder] = _state(folder)
            except FileNotFoundError:
                continue
    return states


def _is_directory(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False  # a symbolic link to itself; no repair moves anything below it


def _state(folder: Path) -> tuple[tuple[str, int, int, int], ...]:
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name != LOCK_FILE and entry.is_file(follow_symlinks=False):
                stat = entry.stat(follow_symlinks=False)
                files.append((entry.name, stat.st_ino, stat.st_size, stat.st_mtime_ns))
    return tuple(sorted(files))


def apply_repairs(
    repairs: Sequence[DirectoryRepairs], quarantine: Path, before: FolderStates
) -> tuple[list[tuple[Path, Path]], list[RepairStep]]:
    """Run the safe repairs, while the locks of the log directories are held.

    Args:
        before: the states of the folders before the audit; a folder that has changed since is not
            touched.

    Returns:
        The moves, as (from, to), and the steps that are left to the operator.

    Raises:
        OSError: a file cannot be moved. The moves before it stay; a second run continues.
    """
    now = folder_states([repair.directory.path for repair in repairs])
    moved: list[tuple[Path, Path]] = []
    left: list[RepairStep] = []
    for step in (step for repair in repairs for step in repair.steps):
        folders = {path.parent for path in step.moves}
        is_same = all(folder in now and now[folder] == before.get(folder) for folder in folders)
        if not (step.is_safe and is_same and all(map(_may_move, step.moves))):
            left.append(step)
            continue
        moved += [(path, _moved(path, quarantine)) for path in step.moves if path.exists()]
    return moved, left


def _may_move(path: Path) -> bool:
    return not path.exists() or (path.is_file() and not path.is_symlink())


def _moved(path: Path, quarantine: Path) -> Path:
    """Move a file to its place in the quarantine; return the place. Nothing there is replaced."""
    folder = quarantine / str(path.parent).lstrip("/")
    folder.mkdir(parents=True, exist_ok=True)
    target = _free_name(folder, path)
    if not target.exists():
        try:
            os.rename(path, target)
            _sync(folder)
            _sync(path.parent)
            return target
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
        part = target.with_name(target.name + _PART_SUFFIX)
        shutil.copy2(path, part)
        _sync(part)
        os.rename(part, target)
        _sync(folder)
    path.unlink()
    _sync(path.parent)
    return target


def _free_name(folder: Path, path: Path) -> Path:
    """Return the first free name, or one at which an interrupted run has stored the same bytes."""
    number, target = 0, folder / path.name
    while target.exists() and not filecmp.cmp(path, target, shallow=False):
        number += 1
        target = folder / f"{path.name}.~{number}~"
    return target


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
