"""The summary that `spindle up` prints when the cluster is ready: a box, or a JSON line."""

import importlib.util
import json
import math
import shlex
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.text import Text

from spindle.config.broker_keys.spindle import METRICS_LISTENER
from spindle.local.node_folder import NodeFolder, bootstrap_servers, cluster_id
from spindle.local.security import (
    USERS,
    authority_file,
    client_properties_file,
    python_settings_file,
)

_COMMANDS_FILE: Final = "to-try.txt"
"""A file in the folder of the cluster, with all commands, if the terminal shows only some."""


def greet(
    nodes: Sequence[NodeFolder],
    pids: Mapping[int, int],
    folder: str,
    fate: str,
    console_address: str | None = None,
) -> None:
    """Print the addresses, the nodes and their directories, and suggested commands.

    On a terminal, commands that would scroll the addresses away are written to a file instead.

    Args:
        fate: what happens to the folder at the end.
        console_address: of the page in a browser; None without it.
    """
    # No line is wrapped: addresses, paths and commands are there to be copied.
    console = Console(highlight=False, soft_wrap=True)
    head = [
        _fact("bootstrap.servers", bootstrap_servers(nodes)),
        *([_fact("console", console_address)] if console_address else []),
        _fact("folder", f"{folder} ({fate})"),
        *(_fact(f"user {user}", path) for user, path in _users(folder).items()),
    ]
    blocks = [
        [line for node in nodes for line in _node_lines(node, pids, folder)],
        *(
            [Text(line, "dim" if line.startswith("#") else "") for line in block]
            for block in suggested_commands(nodes, pids, folder, spindle_command())
        ),
    ]
    end = f"Ctrl-C in this terminal stops the {_noun(nodes)}."
    shown = blocks
    if console.is_terminal:
        # Two rules, the last line, and the cursor below.
        rows = console.height - 4 - _rows(head, console.width)
        shown = _fitting(blocks, rows, console.width)
        file = Path(folder) / _COMMANDS_FILE
        if len(shown) < len(blocks) and _is_written(file, blocks):
            end = f"{end} More to try: {file}"
    console.rule("Spindle", style="cyan")
    for line in (*head, *(line for block in shown for line in (*block, Text()))):
        console.print(line)
    console.print(Text(f"# {end}", "dim"))
    console.rule(style="cyan")


def _fact(name: str, text: str) -> Text:
    return Text.assemble((f"{name:<17}", "bold"), "  ", text)


def _rows(lines: Iterable[Text], width: int) -> int:
    """Return the number of rows on a terminal that wraps long lines."""
    return sum(max(1, math.ceil(line.cell_len / width)) for line in lines)


def _fitting(blocks: Iterable[list[Text]], rows: int, width: int) -> list[list[Text]]:
    """Return the blocks that fit into this number of rows, each with an empty row after it."""
    shown = []
    for block in blocks:
        needed = _rows(block, width) + 1
        if needed <= rows:
            rows -= needed
            shown.append(block)
    return shown


def _is_written(file: Path, blocks: Iterable[Iterable[Text]]) -> bool:
    """Write the lines of the blocks; return False if they cannot be written."""
    lines = [line.plain for block in blocks for line in (*block, Text())]
    try:
        file.write_text("\n".join(lines), encoding="utf-8")
    except OSError:
        return False
    return True


def _users(folder: str) -> dict[str, str]:
    """Return the property files for clients, by user; none without security."""
    files = {user: client_properties_file(Path(folder), user) for user in USERS}
    return {user: str(path) for user, path in files.items() if path.exists()}


def spindle_command() -> str:
    """Return the shell command of this installation: `spindle` if on the PATH, else its path."""
    own = Path(sys.executable).with_name("spindle")
    on_path = shutil.which("spindle")
    is_on_path = on_path is not None and own.exists() and Path(on_path).samefile(own)
    return "spindle" if is_on_path or not own.exists() else shlex.quote(str(own))


def _node_lines(node: NodeFolder, pids: Mapping[int, int], folder: str) -> Iterator[Text]:
    config = node.config
    facts = {
        "clients": node.client_address,
        "controller": node.controller_address,
        "pid": pids.get(node.node_id),
        "rack": config.rack,
        "metrics": _metrics(node),
    }
    shown = "  ".join(f"{name} {fact}" for name, fact in facts.items() if fact)
    yield Text.assemble((f"node {node.node_id}", "bold"), "  ", shown)
    places = [*node.log_dirs, "log", str(node.log_file)]
    yield Text("    " + " ".join(place.removeprefix(f"{folder}/") for place in places))


def _metrics(node: NodeFolder) -> str | None:
    return node.config.optional_text(METRICS_LISTENER)


def suggested_commands(
    nodes: Sequence[NodeFolder], pids: Mapping[int, int], folder: str, spindle: str
) -> list[list[str]]:
    """Return blocks of lines to paste, the most useful first: commands for a shell, and Python.

    Lines that explain begin with `#`, which is a comment in both.

    Args:
        spindle: the command as a shell calls it.
    """
    brokers = [node for node in nodes if node.config.is_broker]
    replicas = f" -r {min(len(brokers), 3)}" if len(brokers) > 1 else ""
    users = _users(folder)
    admin = USERS[0]
    login = f' --command-config "${admin}"' if users else ""
    blocks = [
        [
            "# To try in another terminal:",
            f"export SPINDLE_BOOTSTRAP={bootstrap_servers(nodes)}",
            *([f"{admin}={shlex.quote(users[admin])}"] if users else []),
            f"{spindle} topic create demo -p 3{replicas}{login}",
            f"seq 9 | {spindle} produce demo{login}",
            f"{spindle} consume demo --from-beginning -n 9{login}",
            f"{spindle} status{login}",
            f"{spindle} disks list{login}",
        ]
    ]
    if len(nodes) > 1:
        last = brokers[-1]
        start = shlex.quote(str(last.property_file))
        blocks.append(
            [
                f"# Node {last.node_id} dies and comes back:",
                f"kill -9 {pids.get(last.node_id)}; {spindle} server start {start}",
            ]
        )
    if users:
        blocks.append(_python_clients(Path(folder)))
    if importlib.util.find_spec("pyspark") is not None:
        where = json.dumps(f"{folder}/{'disk-*' if len(nodes) == 1 else 'node-*/disk-*'}")
        blocks.append(
            [
                f"# Read the records straight from the disks, in {sys.executable}:",
                "from spindle.pipeline import get_spark",
                'disks = get_spark().read.format("spindle-segments")',
                f'disks.option("logDirs", {where}).option("subscribe", "demo").load().show()',
            ]
        )
    return blocks


def _python_clients(folder: Path) -> list[str]:
    """Return Python code that connects as the user for applications."""
    user = USERS[-1]
    return [
        f"# In Python, as user {user}; docs/guide/security.md has the settings one by one:",
        "import json, ssl",
        f"settings = json.load(open({json.dumps(str(python_settings_file(folder, user)))}))",
        'confluent_kafka.Producer(settings["confluent-kafka"])',
        'kafka.KafkaProducer(**settings["kafka-python"])',
        f"context = ssl.create_default_context(cafile={json.dumps(str(authority_file(folder)))})",
        'aiokafka.AIOKafkaProducer(**settings["aiokafka"], ssl_context=context)',
    ]


def _noun(nodes: Sequence[NodeFolder]) -> str:
    return "cluster" if len(nodes) > 1 else "node"


def ready_event(
    nodes: Sequence[NodeFolder],
    pids: Mapping[int, int],
    folder: str,
    *,
    is_kept: bool,
    console: str | None = None,
) -> str:
    """Return the cluster as one JSON object in one line.

    Args:
        console: the address of the page in a browser; None without it.
    """
    return event(
        "ready",
        cluster_id=cluster_id(nodes),
        bootstrap_servers=bootstrap_servers(nodes),
        folder=folder,
        is_kept=is_kept,
        console=console,
        client_properties=_users(folder),
        python_settings={
            user: str(python_settings_file(Path(folder), user)) for user in _users(folder)
        },
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
