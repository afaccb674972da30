"""Signals that end a command, also while it is loaded, and outputs that cannot be written."""

import os
import signal
import subprocess
import sys

import pytest
from child_signals import default_signals

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
        [sys.executable, "-c", prefix + _INTERRUPTED],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=default_signals,
    )
    assert (done.returncode, done.stderr) == (code, "")
    assert done.stdout.startswith(out)


_STOPPED = """
import os
import signal
import sys
import click
from spindle.cli import main as command_line
from spindle.cli.entry import main


@click.command()
def wait():
    try:
        os.kill(os.getpid(), {number})
        signal.pause()
    except KeyboardInterrupt:
        click.echo("undone")
        raise click.Abort from None

command_line.spindle.get_command = lambda context, name: wait
sys.argv = ["spindle", "wait"]
main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_terminated_undoes_what_it_has_begun(number: int) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _STOPPED.format(number=int(number))],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=default_signals,
    )
    assert (done.returncode, done.stdout, done.stderr) == (128 + number, "undone\n", "")


_HELP = (sys.executable, "-c", "from spindle.cli.main import main; main(['--help'])")


def test_an_output_that_nobody_reads_ends_the_command_in_silence() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(_HELP, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_full_output_is_named() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(_HELP, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "standard output: No space left on device\n")
