"""The supervisor of a cluster, seen from the process that owns the cluster."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from spindle.common.text import error_text
from spindle.local.control_socket import NoReply, Refused, ask, listen
from spindle.local.errors import ClusterError

_COMMAND: Final = "from spindle.local.supervisor_server import main; main()"
REQUEST_S: Final = 60.0
"""Limit for an answer of the supervisor to a request that waits for nothing."""
_END_S: Final = 30.0


class SupervisorProcess:
    """A running `spindle.local.supervisor_server`.

    Its home is a folder of its own, which only this user may enter.

    Attributes:
        home: the folder; the supervisor removes it.

    Args:
        runner: name of the `NodeRunner`, `module:function`.

    Raises:
        ClusterError: the folder or the process cannot be made.
    """

    def __init__(self, runner: str) -> None:
        try:
            self.home = Path(tempfile.mkdtemp(prefix="spindle-"))
        except OSError as error:
            raise ClusterError(
                f"cannot make a folder for the cluster: {error_text(error)}"
            ) from error
        self._control_path = str(self.home / "supervisor.sock")
        self._owner = os.getpid()
        package = str(Path(__file__).parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        try:
            with listen(self._control_path) as control, self._log_file.open("wb") as log:
                words = (str(control.fileno()), str(self.home), str(self._owner), runner)
                # `-P` keeps modules of the working directory from taking the place of others.
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-c", _COMMAND, *words],
                    stdin=subprocess.PIPE,
                    stdout=log,
                    stderr=log,
                    pass_fds=(control.fileno(),),
                    env={**os.environ, "PYTHONPATH": path},
                    start_new_session=True,
                )
        except OSError as error:
            shutil.rmtree(self.home, ignore_errors=True)
            reason = error_text(error)
            raise ClusterError(f"cannot start a cluster in {self.home}: {reason}") from error
        except BaseException:
            shutil.rmtree(self.home, ignore_errors=True)
            raise

    @property
    def _log_file(self) -> Path:
        return self.home / "supervisor.log"

    def ask(self, what: str, timeout_s: float, **fields: Any) -> Any:
        """Ask the supervisor for something and return the result.

        Raises:
            ClusterError: it could not do that, or has ended.
            TimeoutError: it gave no answer in time.
        """
        try:
            return ask(self._control_path, {"do": what, **fields}, timeout_s)
        except Refused as error:
            raise ClusterError(str(error)) from None
        except NoReply as error:
            raise ClusterError(
                f"the cluster's process has ended ({error}){self._log_text}"
            ) from None

    @property
    def _log_text(self) -> str:
        """The log of a supervisor that has ended, as the end of an error message."""
        try:
            text = self._log_file.read_text(errors="replace").strip()
        except OSError:
            return ""
        return f":\n{text}" if text else ""

    def close(self) -> None:
        """Kill all nodes and the supervisor, and remove the home.

        In a process that was forked from the owner, do nothing.
        """
        if os.getpid() != self._owner or self._process.stdin is None:
            return
        self._process.stdin.close()
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.home, ignore_errors=True)
