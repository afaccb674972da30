"""The floor: a broker of one C file that only appends and sends (floor.c).

It has no start-up worth measuring and keeps nothing, so each topic gets a process of its own.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from benchmarks.compiled import compiled


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
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)
