"""`spindle console` as a process of its own."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

_SPINDLE: Final = (sys.executable, "-c", "from spindle.cli.main import main; main()")
COMMAND: Final = (*_SPINDLE, "console")
UP: Final = (*_SPINDLE, "up")


class RunningConsole(NamedTuple):
    """A console that serves at an address such as `http://127.0.0.1:9088`."""

    address: str
    process: subprocess.Popen[str]


@contextmanager
def running_console(bootstrap: str, *options: str) -> Iterator[RunningConsole]:
    """Run a console on a free port until the end of the block."""
    words = (*COMMAND, "-b", bootstrap, "--port", "0", "--json", *options)
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr is not None else ""
            yield RunningConsole(json.loads(line)["address"].rstrip("/"), process)
        finally:
            process.kill()
