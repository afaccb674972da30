"""A file system of its own on a loop device that dies as a disk does: every access gives EIO."""

from __future__ import annotations

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from peers.paths import PeerUnavailable

# ext4 stops at once and writes nothing more, not even its journal (EXT4_IOC_SHUTDOWN).
_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSH = 2
_MIB = 2**20


class FailingDisk:
    """An ext4 file system, mounted below `folder`; `path` is for a log directory.

    Args:
        folder: a folder of this disk alone, which `remove` deletes.
        size_bytes: the size of the file system; the image takes only what is written to it.

    Raises:
        PeerUnavailable: there are no loop devices, or this user may not mount them.
    """

    def __init__(self, folder: Path, size_bytes: int = 256 * _MIB) -> None:
        self._mount = folder / "mount"
        self._image = folder / "image"
        self._folder = folder
        self._size_bytes = size_bytes
        self._is_mounted = False
        self._mount.mkdir(parents=True)
        self._make()

    @property
    def path(self) -> Path:
        """A folder on the disk. (The root of an ext4 file system holds `lost+found`.)"""
        return self._mount / "log"

    def fail(self) -> None:
        """Let every later access fail with EIO, until `replace`."""
        directory = os.open(self._mount, os.O_RDONLY)
        try:
            fcntl.ioctl(directory, _SHUTDOWN, struct.pack("I", _WITHOUT_FLUSH))
        finally:
            os.close(directory)

    def replace(self) -> None:
        """Put an empty disk in the place of this one. Programs that use it keep the dead one."""
        self._unmount()
        self._make()

    def repair(self) -> None:
        """Mount the same disk again. It has what the journal kept: unsynced records are gone."""
        self._unmount()
        self._mount_image()

    def remove(self) -> None:
        """Unmount the disk and delete its image."""
        self._unmount()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _make(self) -> None:
        self._image.unlink(missing_ok=True)
        with self._image.open("wb") as image:
            image.truncate(self._size_bytes)
        _run("mkfs.ext4", "-q", "-E", "lazy_itable_init=1,nodiscard", str(self._image))
        self._mount_image()
        self.path.mkdir()

    def _mount_image(self) -> None:
        _run("mount", "-o", "loop", str(self._image), str(self._mount))
        self._is_mounted = True

    def _unmount(self) -> None:
        if self._is_mounted:
            _run("umount", "--lazy", str(self._mount))
            self._is_mounted = False


@cache
def why_no_failing_disks() -> str:
    """Return why this machine has no disks that can be made to fail; empty if it has."""
    folder = Path(tempfile.mkdtemp(prefix="spindle-disk-"))
    try:
        FailingDisk(folder / "probe").remove()
    except PeerUnavailable as missing:
        return str(missing)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return ""


def _run(*command: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise PeerUnavailable(f"the command {command[0]} is missing") from None
    if done.returncode != 0:
        raise PeerUnavailable(
            f"a file system on a loop device needs root: {' '.join(command)}: {done.stderr.strip()}"
        )
