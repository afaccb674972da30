"""A node in its own process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from spindle.testing.fuzz.target import TargetNode

StartNode = Callable[..., TargetNode]


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[StartNode]:
    """Return a function that starts a node; its keywords are keys with `_` for each dot."""
    nodes: list[TargetNode] = []

    def start(**overrides: object) -> TargetNode:
        keys = {name.replace("_", "."): str(value) for name, value in overrides.items()}
        node = TargetNode(tmp_path, keys)
        nodes.append(node)
        node.start()
        return node

    yield start
    for node in nodes:
        node.stop()
