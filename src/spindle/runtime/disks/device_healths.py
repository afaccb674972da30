"""Reads the health of the disks of this machine from sysfs and, if installed, smartctl.

No caller waits: a thread reads, and callers get the last result. A disk that hangs blocks only that
thread; old results expire.
"""

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from spindle.disks.device_health import DeviceHealth

_FRESH_S: Final = 600.0
"""The time between two readings: SMART sends a command to the disk."""
_FORGOTTEN_S: Final = 3 * _FRESH_S
_SMARTCTL_S: Final = 20.0
_ATA_MEDIA_ATTRIBUTES: Final = (197, 198)
"""Current_Pending_Sector and Offline_Uncorrectable."""
_SYSFS: Final = Path("/sys/dev/block")


class DeviceHealths:
    """Returns the health of the devices below directories.

    Args:
        read: reads one directory; on a thread.
        clock_s: a monotonic clock.
    """

    def __init__(
        self,
        read: Callable[[str], DeviceHealth | None] | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read or read_health
        self._clock_s = clock_s
        self._found: Mapping[str, DeviceHealth] = {}
        self._found_s = -_FORGOTTEN_S
        self._thread: threading.Thread | None = None

    def of(self, paths: Sequence[str]) -> Mapping[str, DeviceHealth]:
        """Return the known healths by path; start another reading if they are old. Never waits."""
        now_s = self._clock_s()
        is_reading = self._thread is not None and self._thread.is_alive()
        if now_s - self._found_s >= _FRESH_S and not is_reading:
            self._thread = threading.Thread(
                target=self._read_all, args=(tuple(paths),), daemon=True
            )
            self._thread.start()
        return self._found if now_s - self._found_s < _FORGOTTEN_S else {}

    def join(self) -> None:
        """Wait for the running reading."""
        if self._thread is not None:
            self._thread.join()

    def _read_all(self, paths: Sequence[str]) -> None:
        healths = {path: health for path in paths if (health := self._read(path)) is not None}
        self._found, self._found_s = healths, self._clock_s()


def read_health(
    path: str, sysfs: Path = _SYSFS, ask: Callable[[str], dict[str, Any]] | None = None
) -> DeviceHealth | None:
    """Return the health of the disks below a directory; None if it is unknown.

    Args:
        sysfs: the folder with a link for each block device.
        ask: returns the output of smartctl about a device; empty without any.
    """
    try:
        number = os.stat(path).st_dev
        disks = _disks((sysfs / f"{os.major(number)}:{os.minor(number)}").resolve(strict=True))
    except OSError:
        return None
    answers = [(ask or smartctl)(disk.name) for disk in disks]
    errors = [_error_count(disk) for disk in disks]
    passed = [_smart_passed(response) for response in answers]
    media = [_media_errors(response) for response in answers]
    return DeviceHealth(
        ",".join(disk.name for disk in disks),
        _sum(errors),
        False if False in passed else None if None in passed or not passed else True,
        _sum(media),
    )


def _disks(device: Path) -> list[Path]:
    """Return the disks below a device: of a partition, or of the parts of a logical volume."""
    if (device / "partition").exists():
        device = device.parent
    slaves = device / "slaves"
    parts = sorted(slaves.iterdir()) if slaves.is_dir() else []
    if not parts:
        return [device]
    paths = [disk for part in parts for disk in _disks(part.resolve(strict=True))]
    return sorted(set(paths))


def _error_count(disk: Path) -> int | None:
    try:
        return int((disk / "device" / "ioerr_cnt").read_text(encoding="ascii"), 16)
    except (OSError, ValueError):
        return None


def smartctl(name: str) -> dict[str, Any]:
    """Return the JSON of smartctl about a device; empty if smartctl is missing or fails.

    A sleeping disk is not woken.
    """
    program = shutil.which("smartctl")
    if program is None:
        return {}
    words = [program, "--json", "--nocheck=standby", "-H", "-A", f"/dev/{name}"]
    try:
        # The exit code has bits for old errors in logs, so only the text counts.
        done = subprocess.run(
            words,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SMARTCTL_S,
        )
        document = json.loads(done.stdout)
    except (OSError, ValueError, RecursionError, subprocess.SubprocessError):
        return {}
    return document if isinstance(document, dict) else {}


def _smart_passed(answer: Mapping[str, Any]) -> bool | None:
    passed = _inside(answer, "smart_status", "passed")
    return passed if isinstance(passed, bool) else None


def _media_errors(answer: Mapping[str, Any]) -> int | None:
    count = _inside(answer, "nvme_smart_health_information_log", "media_errors")
    if _is_count(count):
        return int(count)
    table = _inside(answer, "ata_smart_attributes", "table")
    rows = [entry for entry in table if isinstance(entry, dict)] if isinstance(table, list) else []
    values = [
        _inside(row, "raw", "value") for row in rows if row.get("id") in _ATA_MEDIA_ATTRIBUTES
    ]
    return _sum([int(value) if _is_count(value) else None for value in values])


def _inside(document: Mapping[str, Any], *keys: str) -> Any:
    value: Any = document
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**62


def _sum(counts: Sequence[int | None]) -> int | None:
    """Return the sum; None if a count is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
