"""CPU time of a process and all that it started, from /proc."""

from __future__ import annotations

import os
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields after the name in /proc/PID/stat: the parent, and the four times of the process and of the
# children that it has waited for.
_PARENT, _TIMES = 1, slice(11, 15)


def cpu_seconds(root: int) -> float:
    """Return user plus system seconds of process `root` and its descendants, ended ones included.

    An ended process counts as long as its parent waited for it. A process that was orphaned is
    missing.
    """
    parents: dict[int, int] = {}
    seconds: dict[int, float] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has just ended
        process = int(folder.name)
        parents[process] = int(fields[_PARENT])
        seconds[process] = sum(map(int, fields[_TIMES])) / _TICKS_PER_S
    return sum(value for process, value in seconds.items() if root in _ancestry(process, parents))


def _ancestry(process: int, parents: dict[int, int]) -> list[int]:
    """Return a process, its parent, the parent of that one, and so on."""
    found = [process]
    while found[-1] in parents:
        found.append(parents[found[-1]])
    return found
