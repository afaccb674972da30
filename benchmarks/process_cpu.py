"""CPU time of a process and all that it started, from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
# Fields after the name in /proc/PID/stat: the parent, and the four times of the process and of the
# children that it has waited for.
_PARENT, _TIMES = 1, slice(11, 15)


@dataclass(frozen=True, slots=True)
class CpuTimes:
    """User plus system seconds of the processes of a tree, with the children they waited for."""

    seconds: dict[int, float]

    def since(self, before: CpuTimes) -> float | None:
        """Return the seconds used since then.

        None if a process of that time has ended: unless its parent waited for it, what it used
        since then is not known.
        """
        if before.seconds.keys() - self.seconds.keys():
            return None
        return sum(self.seconds.values()) - sum(before.seconds.values())


def cpu_times(root: int) -> CpuTimes:
    """Return the times of process `root` and its descendants."""
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
    tree = {pid: value for pid, value in seconds.items() if root in _ancestry(pid, parents)}
    return CpuTimes(tree)


def threads_s(process: int) -> float:
    """Return the seconds that the living threads of a process have run.

    The kernel counts them in nanoseconds, and the times above in ticks of 10 ms: too coarse for a
    process that hardly runs.
    """
    threads = Path(f"/proc/{process}/task").iterdir()
    return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9


def _ancestry(process: int, parents: dict[int, int]) -> list[int]:
    """Return a process, its parent, the parent of that one, and so on."""
    result = [process]
    while result[-1] in parents:
        result.append(parents[result[-1]])
    return result
