"""What `spindle up` says once the cluster serves: for people a box, for programs a JSON line."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape

from spindle.cli.up.folder import NodeFolder, cluster_id
from spindle.config.broker_keys.spindle import METRICS_LISTENER


def bootstrap_servers(nodes: Sequence[NodeFolder]) -> str:
    """Where clients begin."""
    return ",".join(node.client_address for node in nodes if node.client_address is not None)


def greet(nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str, fate: str) -> None:
    """Print the addresses, the nodes and their directories, and things to try.

    Args:
        fate: what becomes of the folder.
    """
    # Nothing is wrapped: addresses, paths and commands are there to be copied.
    console = Console(highlight=False, soft_wrap=True)
    console.rule("Spindle", style="cyan")
    console.print(f"[bold]bootstrap.servers[/bold]  {bootstrap_servers(nodes)}")
    console.print(f"[bold]folder[/bold]             {escape(folder)} ({fate})")
    for node in nodes:
        for line in _node_lines(node, pids, folder):
            console.print(line)
    console.print()
    for line in _things_to_try(nodes, pids, folder):
        console.print(line)
    console.rule(style="cyan")


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
    yield "    " + escape(" ".join(path.removeprefix(f"{folder}/") for path in config.log_dirs))


def _metrics(node: NodeFolder) -> str | None:
    return node.config.optional_text(METRICS_LISTENER)


def _things_to_try(nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str) -> list[str]:
    brokers = [node for node in nodes if node.config.is_broker]
    bootstrap = brokers[0].client_address
    where = "disk-*" if len(nodes) == 1 else "node-*/disk-*"
    lines = ["Things to try in another terminal:"]
    if len(nodes) > 1:
        lines += [
            f"  spindle topics --bootstrap-server {bootstrap} --create --topic demo --partitions 3",
            f"  spindle quorum --bootstrap-server {bootstrap} describe --status",
        ]
    lines += [
        f"  seq 9 | spindle produce --bootstrap-server {bootstrap} --topic demo",
        f"  spindle log-dirs --bootstrap-server {bootstrap} --describe",
        "and in PySpark, after spindle.pipeline.get_spark(), straight from the disks:",
        '  spark.read.format("spindle-segments").option("subscribe", "demo")',
        escape(f'    .option("logDirs", "{folder}/{where}").load().show()'),
        "",
    ]
    if len(nodes) > 1:
        last = brokers[-1]
        lines += [
            f"kill -9 {pids.get(last.node_id)} ends node {last.node_id} the hard way; "
            "it comes back with",
            f"  spindle server start {escape(str(last.property_file))}",
            f"What a node says stands in its folder in {last.log_file.name}.",
            "Ctrl-C stops the cluster.",
        ]
    else:
        lines.append("Ctrl-C stops the node.")
    return lines


def ready_event(
    nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str, *, is_kept: bool
) -> str:
    """The cluster as one JSON object in one line."""
    return event(
        "ready",
        cluster_id=cluster_id(nodes),
        bootstrap_servers=bootstrap_servers(nodes),
        folder=folder,
        is_kept=is_kept,
        nodes=[_described(node, pids) for node in nodes],
    )


def event(name: str, **details: Any) -> str:
    """One line of `--json`."""
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
        "log_dirs": list(node.config.log_dirs),
        "property_file": str(node.property_file),
        "log_file": str(node.log_file),
    }
