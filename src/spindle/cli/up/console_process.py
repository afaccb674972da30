"""The console that `spindle up` serves: `spindle console` as a process beside the nodes."""

import contextlib
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from spindle.local.node_process import die_with
from spindle.local.tcp_ports import HOST

_PORT: Final = 9088
_PACKAGES: Final = ("starlette", "uvicorn", "jinja2", "python_multipart")
_LOG: Final = "console.log"
_STOP_S: Final = 5.0


def is_console_installed() -> bool:
    """Return whether the packages of the extra `spindle-log[console]` are installed."""
    try:
        return all(find_spec(name) is not None for name in _PACKAGES)
    except ModuleNotFoundError:
        # An import hook may refuse a package in this way.
        return False


class ConsoleProcess:
    """A console on port 9088 of this machine, or on a free port if that one is in use.

    It ends with `close`, or when this process ends in any way.

    Args:
        bootstrap: addresses of the cluster.
        folder: gets the log of the console.

    Raises:
        OSError: the log cannot be written, or there can be no more processes.

    Attributes:
        address: for a browser; it can be opened at once.
    """

    def __init__(self, bootstrap: str, folder: Path) -> None:
        parent = os.getpid()
        with _listening_socket() as listening, (folder / _LOG).open("ab") as log:
            fd = listening.fileno()
            self.address = f"http://{HOST}:{listening.getsockname()[1]}/"
            code = "from spindle.cli.main import main; main()"
            words = ("console", "-b", bootstrap, "--allow-changes", "--fd", str(fd))
            self._process = subprocess.Popen(
                (sys.executable, "-c", code, *words),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=(fd,),
                # Ctrl-C of the terminal is for this process, which stops all others in order.
                start_new_session=True,
                # This process has one thread.
                preexec_fn=lambda: die_with(parent),
            )

    def close(self) -> None:
        """End the console."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_STOP_S)
        self._process.kill()
        self._process.wait()


def _listening_socket() -> socket.socket:
    """Return a socket that listens on the port of consoles, or on a free one."""
    listening = socket.socket()
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((HOST, _PORT))
    except OSError:
        listening.bind((HOST, 0))
    listening.listen()
    return listening
