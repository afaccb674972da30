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
_PAUSE_S: Final = 0.05


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
        self._last_s = 0.0
        self._samples: deque[tuple[float, float]] = deque(maxlen=_KEPT_SAMPLES)

    def now_s(self) -> float:
        """Return the time without the load."""
        self._read_delays()
        delayed_s = sum(self._delays_ns.values()) * _NS
        time_s = self._wall_s() - self._worked_s() - delayed_s
        # Several threads may wait at once, for longer than the time that has passed.
        self._now_s += max(0.0, time_s - self._last_s)
        self._last_s = time_s
        return self._now_s

    def sample(self) -> None:
        """Remember the present time for `unloaded_s`; call it about twice a second."""
        self._samples.append((self._wall_s(), self.now_s()))

    def unloaded_s(self, waited_s: float) -> float:
        """Return how many of the last `waited_s` seconds were not load.

        It is the share of the time since the sample nearest to their beginning. Without a sample,
        all of them count.
        """
        wall_s = self._wall_s()
        start_s = wall_s - waited_s
        nearest = min(self._samples, key=lambda sample: abs(sample[0] - start_s), default=None)
        if nearest is None or nearest[0] >= wall_s:
            return waited_s
        share = (self.now_s() - nearest[1]) / (wall_s - nearest[0])
        return waited_s * min(1.0, share)

    def was_starved(self, waited_s: float) -> bool:
        """Return True if the load took more than half of the last seconds."""
        return self.unloaded_s(waited_s) < waited_s / 2

    def wait_until(
        self, is_done: Callable[[], bool], limit_s: float, sleep: Callable[[float], None]
    ) -> bool:
        """Wait until `is_done`; return False if that takes more than `limit_s` without the load."""
        started_s = self.now_s()
        while not is_done():
            if self.now_s() - started_s > limit_s:
                return False
            sleep(_PAUSE_S)
        return True

    def _read_delays(self) -> None:
        """Read how long each thread has waited for a CPU; ended threads keep their times."""
        for pid in self._pids:
            for path in self._proc.glob(f"{pid}/task/*/schedstat"):
                try:
                    self._delays_ns[str(path)] = int(path.read_text().split()[1])
                except (OSError, IndexError):
                    continue  # the thread has ended, or the kernel does not count
