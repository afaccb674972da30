"""The life of the cluster behind `spindle up`."""

import shlex
import shutil
import tempfile
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from signal import Signals
from typing import Final

import click

from spindle.cli.failure import CommandFailed
from spindle.cli.up.console_process import ConsoleProcess
from spindle.cli.up.start_summary import event, greet, ready_event, spindle_command
from spindle.cli.up.terminal_supervisor import (
    STOPPED_BY_INTERRUPT,
    STOPPED_BY_TERMINATION,
    Stopped,
    TerminalSupervisor,
)
from spindle.common.text import error_text
from spindle.local.cluster_spec import ClusterSpec
from spindle.local.node_folder import (
    NodeFolder,
    bootstrap_servers,
    check_can_start,
    find_cluster,
    make_cluster,
    nodes_in_use,
)

_LOG_LINES: Final = 12
_ONLY_NEW: Final = {
    "overrides": "--override",
    "with_metrics": "--metrics",
    "is_secure": "--secure",
}
"""Names of the options that are for a new cluster only."""


@dataclass(frozen=True, slots=True)
class ForegroundCluster:
    """The cluster that `spindle up` starts. If `data` is None, it lives in a temporary folder."""

    data: Path | None
    is_kept: bool
    as_json: bool
    with_console: bool = False

    def run(
        self, spec: ClusterSpec, given: Collection[str], ports: Callable[[], list[int]], port: int
    ) -> int:
        """Create or open the cluster, run it, and remove it at the end; return the exit code.

        Args:
            given: names of the options that the user gave.
            ports: chooses the ports of a new cluster.
            port: the value of `--port`.
        """
        folder = Path(tempfile.mkdtemp(prefix="spindle-")) if self.data is None else self.data
        folder = folder.absolute()
        code = 0
        nodes: list[NodeFolder] = []
        try:
            nodes = find_cluster(folder)
            if nodes:
                _check_spec(nodes, spec, given, port, folder)
                check_can_start(nodes)
            else:
                nodes = make_cluster(spec, folder, ports())
            for warning in dict.fromkeys(w for node in nodes for w in node.config.warnings):
                click.echo(f"WARN {warning}", err=True)
            code = self._supervise(nodes, folder)
        except KeyboardInterrupt:
            code = STOPPED_BY_INTERRUPT
        finally:
            if not self.is_kept:
                self._remove(folder, nodes)
        # A stop by the user is the orderly end of this command.
        return 0 if code in (STOPPED_BY_INTERRUPT, STOPPED_BY_TERMINATION) else code

    def _remove(self, folder: Path, nodes: Sequence[NodeFolder]) -> None:
        in_use = nodes_in_use(nodes)
        if not in_use:
            shutil.rmtree(folder, ignore_errors=True)
            return
        names = ", ".join(map(str, in_use))
        self._tell(
            f"{folder} stays: node {names} still runs there",
            event("kept", folder=str(folder), running=in_use),
        )

    @property
    def _fate(self) -> str:
        return "kept" if self.is_kept else "removed at the end"

    def _supervise(self, nodes: Sequence[NodeFolder], folder: Path) -> int:
        started_s = time.monotonic()
        lost: list[NodeFolder] = []

        def on_ready(node: NodeFolder) -> None:
            after_s = round(time.monotonic() - started_s, 3)
            self._tell(
                f"node {node.node_id} serves after {after_s:.2f} s",
                event("node-ready", node_id=node.node_id, after_s=after_s),
            )

        def on_end(node: NodeFolder, code: int) -> None:
            lost.append(node)
            how = f"was killed by {Signals(-code).name}" if code < 0 else f"ended with code {code}"
            sentence = f"node {node.node_id} {how}"
            if is_serving and len(lost) < len(nodes):
                start = shlex.quote(str(node.property_file))
                sentence += f"; start it again with: {spindle_command()} server start {start}"
            self._tell(sentence, event("node-ended", node_id=node.node_id, code=code))
            if is_serving and code > 0 and code != STOPPED_BY_TERMINATION:
                # A log that is not kept is removed with the folder.
                kept = [f"the reason is in {node.log_file}"]
                lines = kept if self.is_kept else _last_lines(node, log_starts[node.node_id])
                click.echo("\n".join(lines), err=True)

        is_serving = False
        log_starts = {node.node_id: _size_bytes(node.log_file) for node in nodes}
        supervisor = TerminalSupervisor(on_ready, on_end)
        is_clean = True
        console: ConsoleProcess | None = None
        try:
            from spindle.runtime.process import run_node

            supervisor.start(nodes, run_node)
            supervisor.wait_ready()
            if not lost:
                pids = supervisor.pids
                console = self._start_console(nodes, folder)
                self._greet(nodes, pids, folder, None if console is None else console.address)
                is_serving = True
                supervisor.wait_end()
        except Stopped:
            pass
        finally:
            if supervisor.pids:
                sentence = "stopping; once more Ctrl-C kills the nodes"
                if lost and not is_serving:
                    sentence = "stopping the other nodes; Ctrl-C kills them"
                self._tell(sentence, event("stopping"))
            if console is not None:
                console.close()
            is_clean = supervisor.stop()
            supervisor.close()
        self._tell("stopped", event("stopped", is_clean=is_clean))
        if lost and not is_serving:
            reasons = [_why_not_started(node, log_starts[node.node_id]) for node in lost]
            raise CommandFailed("\n".join(reasons))
        return 0 if is_clean and len(lost) < len(nodes) else 1

    def _greet(
        self,
        nodes: Sequence[NodeFolder],
        pids: Mapping[int, int],
        folder: Path,
        console: str | None,
    ) -> None:
        if self.as_json:
            kept = self.is_kept
            click.echo(ready_event(nodes, pids, str(folder), is_kept=kept, console=console))
        else:
            greet(nodes, pids, str(folder), self._fate, console)

    def _start_console(self, nodes: Sequence[NodeFolder], folder: Path) -> ConsoleProcess | None:
        """Return the console; None without one. The cluster serves without it, too."""
        if not self.with_console:
            return None
        try:
            return ConsoleProcess(bootstrap_servers(nodes), folder)
        except OSError as error:
            click.echo(f"WARN no console: {error_text(error)}", err=True)
            return None

    def _tell(self, sentence: str, json_line: str) -> None:
        # The reader of a pipe may have gone; the nodes are stopped in order all the same.
        with suppress(BrokenPipeError):
            if self.as_json:
                click.echo(json_line)
            else:
                click.echo(sentence, err=True)


def _check_spec(
    nodes: Sequence[NodeFolder],
    spec: ClusterSpec,
    given: Collection[str],
    port: int,
    folder: Path,
) -> None:
    """Refuse options that contradict a cluster that already exists.

    Raises:
        CommandFailed: an option contradicts the folder.
    """
    brokers = [node for node in nodes if node.config.is_broker]
    wanted_and_real = {
        "nodes": (spec.nodes, len(brokers)),
        "controllers": (spec.controllers, sum(not n.config.is_broker for n in nodes)),
        "dirs": (spec.dirs, len(nodes[0].config.log_dirs)),
        "racks": (spec.racks, len({n.config.rack for n in brokers if n.config.rack})),
        "port": (port, brokers[0].config.broker_listeners[0].port if brokers else 0),
    }
    for name, (wish, real) in wanted_and_real.items():
        if name in given and wish not in (real, 0 if name == "port" else real):
            raise CommandFailed(
                f"--{name} {wish}: {folder} holds a cluster with {real}; leave the option out, or "
                "take another folder"
            )
    for name, option in _ONLY_NEW.items():
        if name in given:
            raise CommandFailed(
                f"{option}: {folder} holds a cluster; edit its property files instead, such as "
                f"{nodes[0].property_file}"
            )


def _size_bytes(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _why_not_started(node: NodeFolder, log_start: int) -> str:
    return "\n".join([f"node {node.node_id} did not start:", *_last_lines(node, log_start)])


def _last_lines(node: NodeFolder, log_start: int) -> list[str]:
    """Return the last lines that the node has written after this position of the log, in bytes."""
    try:
        with node.log_file.open("rb") as file:
            file.seek(log_start)
            lines = file.read().decode(errors="replace").splitlines()
    except OSError as error:
        lines = [error_text(error)]
    return lines[-_LOG_LINES:]
