"""Faults of a `FailingDisk`, as programs meet them on real disks."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

from peers.failing_disk import FailingDisk

_CHUNK = bytes(1 << 20)


def stop_answering(disk: FailingDisk) -> None:
    """Let every access fail with EIO."""
    disk.fail()


def fill(disk: FailingDisk) -> None:
    """Leave no free space: writes fail with ENOSPC."""
    fd = os.open(disk.path.parent / "ballast", os.O_WRONLY | os.O_CREAT)
    try:
        for size in (len(_CHUNK), 1024):
            try:
                while True:
                    os.write(fd, _CHUNK[:size])
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
        os.fsync(fd)
    finally:
        os.close(fd)


def make_room(disk: FailingDisk) -> None:
    """Undo `fill`."""
    (disk.path.parent / "ballast").unlink()


def turn_read_only(disk: FailingDisk) -> None:
    """Let ext4 mount the disk read-only, as it does on a damaged file system: EROFS."""
    mount = disk.path.parent
    device = _output("findmnt", "-no", "SOURCE", str(mount))
    _output("mount", "-o", "remount,errors=remount-ro", str(mount))
    Path("/sys/fs/ext4", Path(device).name, "trigger_fs_error").write_text("test")


def _output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
