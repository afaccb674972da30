"""The memory that a node uses."""

from __future__ import annotations

import subprocess
from pathlib import Path

from peers.java_tools import java_command
from peers.node import KafkaNode, Node


def live_bytes(node: Node) -> int:
    """Return the memory in use: the JVM's heap after a full collection, else the resident set.

    The resident memory of a JVM shows only how much it was allowed to take.
    """
    if not isinstance(node, KafkaNode):
        return node.rss_bytes()
    jcmd = str(Path(java_command()[0]).with_name("jcmd"))

    def ask(command: str) -> str:
        done = subprocess.run(
            [jcmd, str(node.pid), command], capture_output=True, text=True, check=True
        )
        return done.stdout

    ask("GC.run")
    words = ask("GC.heap_info").replace(",", " ").split()
    return int(words[words.index("used") + 1].rstrip("K")) * 1024
