"""One node for the hostile-input tests, started as users start it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from peers.node import KafkaNode, Node, SpindleNode


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--wire-candidate",
        choices=["spindle", "kafka"],
        default="spindle",
        help="program under test; `kafka` checks the tests against the reference",
    )


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Node]:
    spindle = request.config.getoption("--wire-candidate", "spindle") == "spindle"
    one: Node = (SpindleNode if spindle else KafkaNode)(
        tmp_path_factory.mktemp("node"), directory_count=2
    )
    try:
        with one:
            yield one
    finally:
        one.remove()
