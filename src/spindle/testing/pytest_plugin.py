"""The pytest plugin: fixtures for Kafka clusters that Spindle starts.

pytest imports this module at every start, so it imports nothing else of Spindle until a test asks
for a fixture.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from spindle.testing.cluster.cluster import Cluster
    from spindle.testing.cluster.external import ExistingCluster

_LOG_LINES: Final = 40
_NAME_LENGTH: Final = 80
_INI: Final = {
    "kafka_bootstrap": "host:port,... of an existing cluster; kafka_server then starts none",
    "kafka_brokers": "brokers of kafka_server, 1 by default",
    "kafka_directories": "log directories of each broker of kafka_server, 1 by default",
    "kafka_topic_partitions": "partitions of kafka_topic, 1 by default",
}
_clusters = pytest.StashKey[list[Any]]()
"""Clusters that fixtures have started and not ended, of the session."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options and the keys of the configuration file."""
    group = parser.getgroup("kafka", "Kafka clusters (spindle)")
    group.addoption(
        "--kafka-bootstrap",
        metavar="HOST:PORT",
        help="use this cluster for kafka_server and kafka_noproc, and start none",
    )
    group.addoption("--kafka-brokers", type=int, metavar="N", help=_INI["kafka_brokers"])
    group.addoption("--kafka-directories", type=int, metavar="N", help=_INI["kafka_directories"])
    for name, text in _INI.items():
        parser.addini(name, text, default="")
    parser.addini("kafka_properties", "key=value for every node of kafka_server", type="linelist")


def pytest_configure(config: pytest.Config) -> None:
    """Describe the marker, and begin the list of clusters."""
    config.addinivalue_line(
        "markers",
        "kafka_topic(partitions=None, replication_factor=None, configs=None): the shape of the "
        "topic of the fixture kafka_topic",
    )
    config.stash[_clusters] = []


# -- clusters


def _option(config: pytest.Config, name: str) -> str:
    given = config.getoption(name, default=None)
    return str(config.getini(name) if given is None else given).strip()


def _count(config: pytest.Config, name: str) -> int:
    text = _option(config, name) or "1"
    if not text.isdecimal() or int(text) < 1:
        raise pytest.UsageError(f"{name} is {text!r}, want a number from 1")
    return int(text)


def _properties(config: pytest.Config) -> dict[str, object]:
    properties: dict[str, object] = {}
    for line in config.getini("kafka_properties"):
        key, separator, value = line.partition("=")
        if not separator:
            raise pytest.UsageError(f"kafka_properties has {line!r}, want key=value")
        properties[key.strip()] = value.strip()
    return properties


def _factory(config: pytest.Config) -> Iterator[Callable[..., "Cluster"]]:
    """Yield a function that starts clusters, and end them all afterwards."""
    from spindle.testing.cluster.cluster import Cluster

    alive = config.stash[_clusters]
    with ExitStack() as stack:

        def start(*shape: Any, **options: Any) -> Cluster:
            cluster = stack.enter_context(Cluster(*shape, **options))
            alive.append(cluster)
            stack.callback(alive.remove, cluster)
            return cluster

        yield start


@pytest.fixture(scope="session")
def kafka_server_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., "Cluster"]]:
    """Return a function with the arguments of `Cluster`; its clusters end with the session."""
    yield from _factory(pytestconfig)


@pytest.fixture
def kafka_cluster_factory(pytestconfig: pytest.Config) -> Iterator[Callable[..., "Cluster"]]:
    """Return a function with the arguments of `Cluster`; its clusters end with the test."""
    yield from _factory(pytestconfig)


@pytest.fixture(scope="session")
def kafka_noproc(pytestconfig: pytest.Config) -> "ExistingCluster":
    """Return the external cluster of `--kafka-bootstrap` or `kafka_bootstrap`."""
    from spindle.testing.cluster.external import ExistingCluster

    bootstrap = _option(pytestconfig, "kafka_bootstrap")
    if not bootstrap:
        pytest.fail("kafka_noproc needs --kafka-bootstrap or kafka_bootstrap", pytrace=False)
    return ExistingCluster(bootstrap)


@pytest.fixture(scope="session")
def kafka_server(request: pytest.FixtureRequest) -> "Cluster | ExistingCluster":
    """Return the cluster of the session: one broker, unless the configuration has more.

    Each worker of pytest-xdist has a cluster of its own.
    """
    config: pytest.Config = request.config
    if _option(config, "kafka_bootstrap"):
        existing: ExistingCluster = request.getfixturevalue("kafka_noproc")
        return existing
    start: Callable[..., Cluster] = request.getfixturevalue("kafka_server_factory")
    return start(
        brokers=_count(config, "kafka_brokers"),
        directories=_count(config, "kafka_directories"),
        properties=_properties(config),
    )


@pytest.fixture
def kafka_topic(
    request: pytest.FixtureRequest, kafka_server: "Cluster | ExistingCluster"
) -> Iterator[str]:
    """Return the name of a new topic of `kafka_server`; it is deleted after the test."""
    shape: dict[str, Any] = {"partitions": _count(request.config, "kafka_topic_partitions")}
    marker = request.node.get_closest_marker("kafka_topic")
    if marker is not None:
        shape.update(
            zip(("partitions", "replication_factor", "configs"), marker.args, strict=False)
        )
        shape.update(marker.kwargs)
    stem = re.sub(r"[^A-Za-z0-9._-]", "-", request.node.name)[:_NAME_LENGTH]
    name = f"{stem}-{secrets.token_hex(4)}"
    kafka_server.create_topic(name, **shape)
    yield name
    kafka_server.delete_topic(name)


# -- reports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Attach the end of the nodes' logs to the report of a test that failed with a cluster."""
    report = yield
    if report.failed:
        used = [entry for entry in getattr(item, "fixturenames", ()) if entry.startswith("kafka_")]
        for cluster in item.config.stash[_clusters] if used else ():
            for node in cluster.nodes:
                title = f"log of node {node.node_id} ({node.log_file})"
                report.sections.append((title, node.log_tail(_LOG_LINES)))
    return report
