"""The memory that a node uses."""

from __future__ import annotations

import subprocess
from pathlib import Path

from peers.java_tools import java_command
from peers.node import KafkaNode, Node


def live_bytes(node: Node) -> int:
    """Return the memory in use: the live objects of a JVM, else the resident set.

    The resident memory of a JVM shows only how much it was allowed to take.
    """
    if not isinstance(node, KafkaNode):
        return node.rss_bytes()
    jcmd = str(Path(java_command()[0]).with_name("jcmd"))
    # Unlike GC.run this collects everything at once, whatever options the JVM has.
    done = subprocess.run(
        [jcmd, str(node.pid), "GC.class_histogram"], capture_output=True, text=True, check=True
    )
    # The last line is: Total  objects  bytes
    return int(done.stdout.split()[-1])
