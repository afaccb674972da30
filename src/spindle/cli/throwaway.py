"""The node behind `spindle up`: its folder, its property file, its life."""

import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.panel import Panel

from spindle.cli.failure import CommandFailed
from spindle.cli.property_file import load_node_config
from spindle.cli.storage.format_options import FormatOptions, format_request
from spindle.cli.storage.formatting import format_directories
from spindle.common.filesystem import OsFileSystem
from spindle.common.uuids import Uuid, uuid_from_random, uuid_text
from spindle.config.node_config import NodeConfig
from spindle.config.properties import format_properties
from spindle.log.identity import META_PROPERTIES

_NODE_ID = 1
_STOPPED_BY_INTERRUPT = 130
_STOPPED_BY_TERMINATION = 143


@dataclass(frozen=True, slots=True)
class ThrowawayNode:
    """What `spindle up` starts. `data` None is a temporary folder of its own."""

    data: Path | None
    directory_count: int
    client_port: int
    controller_port: int
    keep: bool

    def run(self) -> int:
        """Make, start and, at the end, remove the node; the exit code."""
        folder = Path(tempfile.mkdtemp(prefix="spindle-")) if self.data is None else self.data
        try:
            config = self.prepare(folder.absolute())
            # Only here, because a folder that cannot be made does without the server.
            from spindle.runtime.node import run_node

            code = run_node(config, on_ready=lambda node: self._greet(config, folder.absolute()))
        except KeyboardInterrupt:
            code = _STOPPED_BY_INTERRUPT
        finally:
            if not self.keep:
                shutil.rmtree(folder, ignore_errors=True)
        # Being told to stop is how this command ends when all is well.
        return 0 if code in (_STOPPED_BY_INTERRUPT, _STOPPED_BY_TERMINATION) else code

    def prepare(self, folder: Path) -> NodeConfig:
        """Write the property file and format the directories that are not formatted yet."""
        directories = [str(folder / f"disk-{n}") for n in range(1, self.directory_count + 1)]
        file = folder / "server.properties"
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(_NODE_ID),
            "listeners": (
                f"PLAINTEXT://127.0.0.1:{self.client_port},"
                f"CONTROLLER://127.0.0.1:{self.controller_port}"
            ),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{_NODE_ID}@127.0.0.1:{self.controller_port}",
            "log.dirs": ",".join(directories),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_text(format_properties(properties))
        except OSError as error:
            raise CommandFailed(f"cannot write {file}: {error.strerror}") from None
        config = load_node_config(str(file))
        if not any(os.path.exists(os.path.join(d, META_PROPERTIES)) for d in directories):
            options = FormatOptions(cluster_id=uuid_text(_new_uuid()))
            request = format_request(config, options, _new_uuid, os.urandom)
            now_ms = time.time_ns() // 1_000_000
            format_directories(request, OsFileSystem(), _new_uuid, now_ms, lambda line: None)
        return config

    def _greet(self, config: NodeConfig, folder: Path) -> None:
        bootstrap = f"127.0.0.1:{self.client_port}"
        fate = "kept" if self.keep else "removed at the end"
        lines = [
            f"[bold]bootstrap.servers[/bold]  {bootstrap}",
            f"[bold]folder[/bold]             {folder} ({fate})",
            *(f"[bold]log directory[/bold]      {directory}" for directory in config.log_dirs),
            "",
            "Things to try in another terminal:",
            f"  seq 9 | spindle produce --bootstrap-server {bootstrap} --topic demo",
            f"  spindle log-dirs --bootstrap-server {bootstrap} --describe",
            "and in PySpark, after spindle.pipeline.get_spark(), straight from the disks:",
            '  spark.read.format("spindle-segments").option("subscribe", "demo")',
            f'    .option("logDirs", "{folder}/disk-*").load().show()',
            "",
            "Ctrl-C stops the node.",
        ]
        console = Console(highlight=False)
        console.print(Panel.fit("\n".join(lines), title="Spindle", border_style="cyan"))
        for warning in config.warnings:
            click.echo(f"WARN {warning}", err=True)


def _new_uuid() -> Uuid:
    return uuid_from_random(os.urandom)
