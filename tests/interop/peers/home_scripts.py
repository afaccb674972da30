"""The scripts of `spindle home`, as the tests run them beside Kafka's Java tools."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from peers.compare import Answer, tool_answer
from peers.java_tools import ToolResult
from peers.paths import SPINDLE

SCRIPT_OF = {
    "acls": "kafka-acls",
    "all-groups": "kafka-groups",
    "client-metrics": "kafka-client-metrics",
    "transactions": "kafka-transactions",
    "dump-log": "kafka-dump-log",
    "topics": "kafka-topics",
    "configs": "kafka-configs",
    "groups": "kafka-consumer-groups",
    "get-offsets": "kafka-get-offsets",
    "log-dirs": "kafka-log-dirs",
    "metadata-quorum": "kafka-metadata-quorum",
    "features": "kafka-features",
    "broker-api-versions": "kafka-broker-api-versions",
    "leader-election": "kafka-leader-election",
    "reassign-partitions": "kafka-reassign-partitions",
}
_TIME = re.compile(r"^\[[\d ,:-]+\] ")
_JAVA_EXCEPTION = re.compile(r"^(java|joptsimple|org\.apache\.kafka)\.[\w.$]+(Exception|Error)\b")


def make_home(folder: Path) -> Path:
    """Write the scripts into a folder and return it."""
    subprocess.run([str(SPINDLE), "home", str(folder)], check=True, capture_output=True)
    return folder


def run_script(home: Path, tool: str, *words: str) -> ToolResult:
    """Run the script of a tool, named as `java_tools` names it."""
    done = subprocess.run(
        [str(home / "bin" / f"{SCRIPT_OF[tool]}.sh"), *words],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)


def comparable(result: ToolResult) -> Answer:
    """Return the answer without usage tables, traces and clock times, which differ by program."""
    answer = tool_answer(result)
    lines: list[str] = []
    for line in answer["stderr"]:
        if line.startswith(("Option  ", "Option (* = required)")):
            break
        text = _TIME.sub("", line)
        if not _JAVA_EXCEPTION.match(text) and "\tSuppressed: " not in text:
            lines.append(text)
    answer["stderr"] = lines
    # Kafka's metadata log grows by itself.
    answer["stdout"] = [re.sub(r"Epoch: \d+$", "Epoch: <n>", line) for line in answer["stdout"]]
    return answer
