"""The words of `spindle up` once the cluster serves: a box for people, a line for programs."""

import importlib.util
import json
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape

from spindle.cli.up.folder import NodeFolder, bootstrap_servers, cluster_id
from spindle.cli.up.security import USERS, client_properties_file
from spindle.config.broker_keys.spindle import METRICS_LISTENER


def greet(nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str, fate: str) -> None:
    """Print the addresses, the nodes and their directories, and commands to try.

    Args:
        fate: what happens to the folder at the end.
    """
    # No line is wrapped: addresses, paths and commands are there to be copied.
    console = Console(highlight=False, soft_wrap=True)
    console.rule("Spindle", style="cyan")
    console.print(f"[bold]bootstrap.servers[/bold]  {bootstrap_servers(nodes)}")
    console.print(f"[bold]folder[/bold]             {escape(folder)} ({fate})")
    for user, path in _users(folder).items():
        console.print(f"[bold]{f'user {user}':<17}[/bold]  {escape(path)}")
    for node in nodes:
        for line in _node_lines(node, pids, folder):
            console.print(line)
    console.print()
    for line in things_to_try(nodes, pids, folder, spindle_command()):
        console.print(escape(line), style="dim" if line.startswith("#") else None)
    console.rule(style="cyan")


def _users(folder: str) -> dict[str, str]:
    """Return the property files for clients, by user; none if everyone may come in."""
    files = {user: client_properties_file(Path(folder), user) for user in USERS}
    return {user: str(path) for user, path in files.items() if path.exists()}


def spindle_command() -> str:
    """Return how a shell calls this installation: `spindle` if that is on the path, or its path."""
    own = Path(sys.executable).with_name("spindle")
    found = shutil.which("spindle")
    is_on_path = found is not None and own.exists() and Path(found).samefile(own)
    return "spindle" if is_on_path or not own.exists() else shlex.quote(str(own))


def _node_lines(node: NodeFolder, pids: Mapping[int, int], folder: str) -> Iterator[str]:
    config = node.config
    yield (
        f"[bold]node {node.node_id}[/bold]  pid {pids.get(node.node_id, '-')}, "
        f"{' and '.join(config.process_roles)}"
    )
    facts = {
        "clients": node.client_address,
        "controller": node.controller_address,
        "rack": config.rack,
        "metrics": _metrics(node),
    }
    yield "    " + "  ".join(escape(f"{name} {fact}") for name, fact in facts.items() if fact)
    yield "    " + escape(" ".join(path.removeprefix(f"{folder}/") for path in node.log_dirs))
    yield "    " + escape(f"log {node.log_file}")


def _metrics(node: NodeFolder) -> str | None:
    return node.config.optional_text(METRICS_LISTENER)


def things_to_try(
    nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str, spindle: str
) -> list[str]:
    """Return lines to paste: commands for a shell, and Python where PySpark is installed.

    Lines that explain begin with `#`, which is a comment in both.

    Args:
        spindle: the command as a shell calls it.
    """
    brokers = [node for node in nodes if node.config.is_broker]
    replicas = f" -r {min(len(brokers), 3)}" if len(brokers) > 1 else ""
    users = _users(folder)
    login = f" --command-config {shlex.quote(users[USERS[0]])}" if users else ""
    lines = [
        "# To try in another terminal:",
        f"export SPINDLE_BOOTSTRAP={bootstrap_servers(nodes)}",
        f"{spindle} topic create demo -p 3{replicas}{login}",
        f"seq 9 | {spindle} produce --topic demo{login}",
        f"{spindle} consume --topic demo --from-beginning --max-messages 9{login}",
        f"{spindle} log-dirs{login}",
        f"{spindle} status{login}",
        "",
    ]
    if importlib.util.find_spec("pyspark") is not None:
        where = f"{folder}/{'disk-*' if len(nodes) == 1 else 'node-*/disk-*'}"
        lines += [
            f"# In {sys.executable}, the records straight from the disks:",
            "from spindle.pipeline import get_spark",
            "spark = get_spark()",
            f'disks = spark.read.format("spindle-segments").option("logDirs", {json.dumps(where)})',
            'disks.option("subscribe", "demo").load().show()',
            "",
        ]
    if len(nodes) > 1:
        last = brokers[-1]
        lines += [
            f"# Node {last.node_id} dies and comes back:",
            f"kill -9 {pids.get(last.node_id)}",
            f"{spindle} server start {shlex.quote(str(last.property_file))}",
            "",
        ]
    return [*lines, f"# Ctrl-C in this terminal stops the {_noun(nodes)}."]


def _noun(nodes: Sequence[NodeFolder]) -> str:
    return "cluster" if len(nodes) > 1 else "node"


def ready_event(
    nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str, *, is_kept: bool
) -> str:
    """Return the cluster as one JSON object in one line."""
    return event(
        "ready",
        cluster_id=cluster_id(nodes),
        bootstrap_servers=bootstrap_servers(nodes),
        folder=folder,
        is_kept=is_kept,
        client_properties=_users(folder),
        nodes=[_described(node, pids) for node in nodes],
    )


def event(name: str, **details: Any) -> str:
    """Return one line of `--json`."""
    return json.dumps({"event": name, **details})


def _described(node: NodeFolder, pids: Mapping[int, int]) -> dict[str, Any]:
    return {
        "node_id": node.node_id,
        "pid": pids.get(node.node_id),
        "roles": list(node.config.process_roles),
        "clients": node.client_address,
        "controller": node.controller_address,
        "rack": node.config.rack,
        "metrics": _metrics(node),
        "log_dirs": node.log_dirs,
        "property_file": str(node.property_file),
        "log_file": str(node.log_file),
    }
