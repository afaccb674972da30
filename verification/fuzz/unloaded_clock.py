"""A clock without the load of the machine: limits of time judge the node, not its neighbours.

It stands still while a thread of the node or of the fuzzer waits for a CPU, and while the fuzzer
works. Linux counts these times in `/proc/PID/task/TID/schedstat`.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

_PROC: Final = Path("/proc")
_NS: Final = 1e-9
_KEPT_SAMPLES: Final = 128


class UnloadedClock:
    """A steady clock in seconds; `now_s` never goes back.

    Args:
        pids: the processes whose threads may wait for a CPU.
        proc: the file system of processes.
        wall_s: a steady clock.
        worked_s: the CPU time of this process.
    """

    def __init__(
        self,
        pids: Sequence[int],
        proc: Path = _PROC,
        wall_s: Callable[[], float] = time.monotonic,
        worked_s: Callable[[], float] = time.process_time,
    ) -> None:
        self._pids = pids
        self._proc = proc
        self._wall_s = wall_s
        self._worked_s = worked_s
        self._delays_ns: dict[str, int] = {}
        self._now_s = 0.0
        self._samples: deque[tuple[float, float]] = deque(maxlen=_KEPT_SAMPLES)

    def now_s(self) -> float:
        """Return the time without the load."""
        self._read_delays()
        delayed_s = sum(self._delays_ns.values()) * _NS
        # Several threads may wait at once, and a new one has waited before it is first seen.
        self._now_s = max(self._now_s, self._wall_s() - self._worked_s() - delayed_s)
        return self._now_s

    def sample(self) -> None:
        """Remember the present time for `was_starved`; call it about twice a second."""
        self._samples.append((self._wall_s(), self.now_s()))

    def was_starved(self, waited_s: float) -> bool:
        """Return True if the load took more than half of the last seconds."""
        wall_s = self._wall_s()
        recent = [sample for sample in self._samples if sample[0] >= wall_s - waited_s]
        if not recent:
            return False
        first_wall_s, first_s = recent[0]
        return self.now_s() - first_s < (wall_s - first_wall_s) / 2

    def _read_delays(self) -> None:
        """Read how long each thread has waited for a CPU; ended threads keep their times."""
        for pid in self._pids:
            for path in self._proc.glob(f"{pid}/task/*/schedstat"):
                try:
                    self._delays_ns[str(path)] = int(path.read_text().split()[1])
                except (OSError, IndexError):
                    continue  # the thread has ended, or the kernel does not count
