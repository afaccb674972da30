"""The floor: a broker of one C file that only appends and sends (floor.c).

It has no start-up worth measuring and keeps nothing, so each topic gets a process of its own.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.compiled import compiled

_SCHEDULED: Final = 2
"""The clock of the CPU time of a process, of all its threads (clock_getcpuclockid of Linux)."""


class Floor:
    """The floor with its file in `folder`; it runs while a topic exists."""

    kind = "floor"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bootstrap = ""
        self._process: subprocess.Popen[str] | None = None

    @contextmanager
    def topic(self) -> Iterator[str]:
        """Run the program with an empty log; it answers for one partition of any topic."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / "floor.log"
        with subprocess.Popen(
            [str(compiled("floor")), str(file)], stdout=subprocess.PIPE, text=True
        ) as self._process:
            assert self._process.stdout is not None
            self.bootstrap = f"127.0.0.1:{int(self._process.stdout.readline())}"
            try:
                yield "floor"
            finally:
                self._process.kill()
        file.unlink()

    def cpu_s(self) -> float:
        """Return the CPU time of the process so far, in seconds."""
        assert self._process is not None, "the floor is not running"
        # In nanoseconds: all that a test does may be less than a tick of the times in /proc.
        return time.clock_gettime((~self._process.pid << 3) | _SCHEDULED)
