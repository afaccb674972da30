"""Java applications of the tests that run beside a test, in processes of their own."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from waiting import wait_until

from peers.java_tools import QUICK_JVM, compiled_classes, java_command

LIMIT_S = 60.0


class JavaProcess:
    """A class of this package, started at the begin of the `with` block and killed at its end.

    Args:
        output: the file that gets what the process prints, over all its starts.
        extra_path: further entries of the class path, which come first.
    """

    def __init__(self, output: Path, name: str, *words: str, extra_path: str = "") -> None:
        self._output = output
        self._name = name
        self._words = words
        self._path = os.pathsep.join(filter(None, [extra_path, str(compiled_classes())]))
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> JavaProcess:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process."""
        command = java_command(*QUICK_JVM, extra_path=self._path)
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, self._name, *self._words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def kill(self) -> None:
        """End the process as kill -9 does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def restart(self) -> None:
        """Kill the process and start it again."""
        self.kill()
        self.start()

    def stop(self) -> None:
        """End the process in order (SIGTERM)."""
        assert self._process is not None
        self._process.terminate()
        self._process.wait(LIMIT_S)
        self._process = None

    def command(self, line: str) -> None:
        """Write a line to the standard input of the process."""
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        self._process.stdin.flush()

    def output(self) -> str:
        """Return what the process has printed since its first start."""
        return self._output.read_text(errors="replace") if self._output.exists() else ""

    def count(self, text: str) -> int:
        """Return how often the process has printed `text`."""
        return self.output().count(text)

    def wait_more(self, text: str, times: int = 1) -> None:
        """Return after `text` was printed `times` times more."""
        wanted = self.count(text) + times

        def is_printed() -> bool:
            if self.count(text) >= wanted:
                return True
            assert self._process is not None
            assert self._process.poll() is None, f"{self._name} ended:\n{self.output()[-3000:]}"
            return False

        wait_until(
            is_printed,
            lambda: f"{self._name} prints {text!r}:\n{self.output()[-3000:]}",
            limit_s=LIMIT_S,
        )
