"""Ctrl-C while the command line is loaded."""

import signal
import subprocess
import sys

import pytest

# The signal comes in the middle of the imports.
_INTERRUPTED = """
import os
import signal
import sys
from spindle.cli.entry import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "spindle.cli.main":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
sys.argv = ["spindle", "--version"]
main()
"""


@pytest.mark.parametrize(
    ("prefix", "code", "out"),
    [
        ("", -signal.SIGINT, ""),
        ("import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)\n", 0, "spindle 0."),
    ],
)
def test_an_interrupt_while_loading_leaves_no_trace(prefix: str, code: int, out: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", prefix + _INTERRUPTED], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(out)
