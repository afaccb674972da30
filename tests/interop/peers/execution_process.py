"""A command that moves replicas, in a process of its own, which can be interrupted and killed."""

from __future__ import annotations

import signal
import subprocess
import sys

from child_signals import default_signals

LIMIT_S = 240.0


class ExecutionProcess:
    """A command that moves replicas.

    Args:
        words: the name of the command, and its options.
    """

    def __init__(self, bootstrap: str, *words: str) -> None:
        command = (sys.executable, "-c", "from spindle.cli.main import main; main()")
        self._process = subprocess.Popen(
            [*command, *words, "-b", bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=default_signals,
        )

    def until(self, word: str) -> None:
        """Return when a line of the output has the word."""
        assert self._process.stdout is not None
        lines = []
        for line in self._process.stdout:
            lines.append(line)
            if word in line:
                return
        raise AssertionError("".join(lines))

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End the process as kill -9 does."""
        self._process.kill()
        self._process.communicate()

    def ended(self) -> tuple[int, str]:
        """Return the exit code, and the rest of the output."""
        try:
            out, _ = self._process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            out, _ = self._process.communicate()
            raise AssertionError(f"the command does not end:\n{out}") from None
        return self._process.returncode, out
