"""Nodes in their own processes."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import pytest

from verification.fuzz.secured.target import SecuredNode
from verification.fuzz.target import TargetNode

Node = TypeVar("Node", bound=TargetNode)


def started(kind: type[Node], folder: Path) -> Iterator[Callable[..., Node]]:
    """Yield a function that starts a node; its keywords are keys with `_` for each dot.

    The nodes are stopped at the end.
    """
    nodes: list[Node] = []

    def start(**overrides: object) -> Node:
        keys = {name.replace("_", "."): str(value) for name, value in overrides.items()}
        node = kind(folder, keys)
        nodes.append(node)
        node.start()
        return node

    yield start
    for node in nodes:
        node.stop()


@pytest.fixture
def start_node(tmp_path: Path) -> Iterator[Callable[..., TargetNode]]:
    """Return a function that starts a node."""
    yield from started(TargetNode, tmp_path)


@pytest.fixture
def start_secured(tmp_path: Path) -> Iterator[Callable[..., SecuredNode]]:
    """Return a function that starts a node with TLS, logins and ACLs."""
    yield from started(SecuredNode, tmp_path)
