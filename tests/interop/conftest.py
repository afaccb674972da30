"""Fixtures of the comparison: one Kafka and one Spindle node for each module."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from peers.compare import Pair
from peers.home_scripts import make_home
from peers.java_tools import JavaTools
from peers.node import KafkaNode, Node, SpindleNode
from peers.paths import (
    RELEASE,
    RELEASES,
    PeerUnavailable,
    java,
    kafka_libs,
    kafka_release,
    use_release,
)

_SLOWEST_FIRST = (
    "test_kafkas_group_suites.py",
    "test_spark_streams.py",
    "test_sink_exactly_once.py",
    "test_exports_survive.py",
    "test_moving_tutorial.py",
    "test_spark_cluster.py",
    "test_secured_kafka.py",
    "test_segments_of_running_nodes.py",
)
"""Modules that begin first, so that no worker waits for one of them at the end."""
_EVERY_TIME = (
    "test_wire_differences.py",
    "test_kafkas_acl_suite.py",
    "test_kafkas_cordon_suite.py",
    "test_kafkas_group_suites.py",
    "test_mixed_quorum.py",
    "test_mixed_replicas.py",
    "test_exactly_once_copy.py",
    "test_mixed_disks.py",
    "test_directory_moves.py",
    "test_java_client.py",
    "test_librdkafka_client.py",
    "test_storage_tool.py",
)
"""Modules that `make interop` runs; tests of all others are marked `full`."""
_OLDER_NEIGHBOUR = (
    "test_mixed_cordons.py",
    "test_mixed_disks.py",
    "test_mixed_quorum.py",
    "test_mixed_replicas.py",
    "test_mixed_transactions.py",
    "test_kafka_brokers_spindle_controllers.py",
    "test_directory_moves.py",
    "test_topics_tool.py",
    "test_groups_tool.py",
    "test_disks_tool.py",
)
"""Modules that run with the older neighbour, too."""
_LIMIT_S = 300
"""A test may start several Java programs on a machine where the other worker does the same."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("interop")
    group.addoption(
        "--candidate",
        choices=["spindle", "kafka"],
        default="spindle",
        help="program under test; `kafka` compares Kafka with itself, to check the scripts",
    )
    group.addoption(
        "--kafka-release",
        choices=RELEASES,
        default=os.environ.get("KAFKA_RELEASE", RELEASE),
        help="release of Apache Kafka; the older one runs modules of mixed clusters and tools only",
    )
    group.addoption(
        "--differences", type=Path, default=None, help="folder that keeps a diff for each mismatch"
    )


def pytest_configure(config: pytest.Config) -> None:
    use_release(config.getoption("--kafka-release", RELEASE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    if kafka_release() != RELEASE:
        others = [item for item in items if item.path.name not in _OLDER_NEIGHBOUR]
        items[:] = [item for item in items if item.path.name in _OLDER_NEIGHBOUR]
        config.hook.pytest_deselected(items=others)
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.interop)
            if item.path.name not in _EVERY_TIME or kafka_release() != RELEASE:
                item.add_marker(pytest.mark.full)
            if item.get_closest_marker("timeout") is None:
                item.add_marker(pytest.mark.timeout(_LIMIT_S))
    place = {name: number for number, name in enumerate(_SLOWEST_FIRST)}
    items.sort(key=lambda item: place.get(item.path.name, len(_SLOWEST_FIRST)))


@pytest.fixture(scope="session", autouse=True)
def kafka_is_available() -> None:
    """Say once, clearly, what is missing on this machine."""
    try:
        java()
        kafka_libs()
    except PeerUnavailable as missing:
        pytest.exit(f"interop tests cannot run: {missing}", returncode=3)


@pytest.fixture(scope="session")
def java_tools() -> Iterator[JavaTools]:
    with JavaTools() as tools:
        yield tools


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of `spindle home`; its name has a space."""
    return make_home(tmp_path_factory.mktemp("homes") / "a home")


NodeFactory = Callable[..., Node]


@pytest.fixture(scope="session")
def candidate_class(request: pytest.FixtureRequest) -> type[Node]:
    return (
        SpindleNode
        if request.config.getoption("--candidate", "spindle") == "spindle"
        else KafkaNode
    )


@pytest.fixture(scope="module")
def module_overrides(request: pytest.FixtureRequest) -> dict[str, str]:
    """Further broker keys of this module's nodes: its constant NODE_OVERRIDES."""
    return dict(getattr(request.module, "NODE_OVERRIDES", {}))


@pytest.fixture(scope="module")
def module_pair(
    tmp_path_factory: pytest.TempPathFactory,
    candidate_class: type[Node],
    module_overrides: dict[str, str],
    java_tools: JavaTools,
    request: pytest.FixtureRequest,
) -> Iterator[Pair]:
    folder = tmp_path_factory.mktemp("pair")
    nodes: list[Node] = [
        KafkaNode(folder / "reference", overrides=dict(module_overrides)),
        candidate_class(folder / "candidate", overrides=dict(module_overrides)),
    ]
    try:
        for node in nodes:
            node.format()
            node.start(wait=False)
        for node in nodes:
            node.wait_ready()
        yield Pair(nodes[0], nodes[1], java_tools, request.config.getoption("--differences", None))
    finally:
        for node in nodes:
            node.remove()


@pytest.fixture
def pair(module_pair: Pair, request: pytest.FixtureRequest) -> Pair:
    """Both nodes, running, shared by the tests of a module: use topic names of your own."""
    return Pair(
        module_pair.reference,
        module_pair.candidate,
        module_pair.java_tools,
        module_pair.differences,
        request.node.nodeid.rpartition("/")[2],
    )
