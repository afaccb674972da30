"""The programs that a scenario can be played against: releases of Apache Kafka, and Spindle."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from peers.java_tools import JavaTools, ToolResult
from peers.node import KafkaNode, Node, SpindleNode
from peers.paths import RELEASES, SPINDLE, use_release

RunTool = Callable[..., ToolResult]

_OTHER_NAMES = {"groups": "consumer-groups", "all-groups": "groups"}
"""The tools of Spindle that have another name than in `peers.java_tools.MAIN_CLASSES`."""
_TOOL_LIMIT_S = 120


@dataclass(frozen=True, slots=True)
class Program:
    """Nodes of a program, and its own tools.

    Attributes:
        name: such as "kafka-4.4.0", or "spindle".
        new_node: has the parameters of `Node`.
        run: runs a tool, by a short name such as `topics`, with its arguments.
    """

    name: str
    new_node: Callable[..., Node]
    run: RunTool


NAMES = (*(f"kafka-{release}" for release in RELEASES), "spindle")


@contextmanager
def program_of(name: str) -> Iterator[Program]:
    """Yield one of NAMES. The tools of Kafka run in one virtual machine, which ends after it."""
    if name == "spindle":
        yield Program(name, SpindleNode, _run_own_tool)
        return
    release = name.removeprefix("kafka-")
    use_release(release)
    with JavaTools() as tools:
        yield Program(name, partial(KafkaNode, release=release), tools.run)


def _run_own_tool(tool: str, *arguments: str) -> ToolResult:
    done = subprocess.run(
        [str(SPINDLE), "kafka", _OTHER_NAMES.get(tool, tool), *arguments],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
        timeout=_TOOL_LIMIT_S,
    )
    return ToolResult(done.returncode, done.stdout, done.stderr)
