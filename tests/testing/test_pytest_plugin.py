"""The pytest plugin, in test runs of its own."""

import re
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.timeout(300)

ROUND_TRIP = """
from confluent_kafka import Consumer, Producer

def round_trip(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"hello")
    assert producer.flush(30) == 0
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    message = consumer.poll(30)
    consumer.close()
    return message.value()
"""


def run(pytester: pytest.Pytester, *words: str) -> pytest.RunResult:
    """Run the tests without what this run itself was given."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the output of a test run with one cluster, in which two tests of four fail."""
    folder = tmp_path_factory.mktemp("run")
    (folder / "test_run.py").write_text(
        ROUND_TRIP
        + """
import pytest

names = []

def test_one(kafka_server, kafka_topic):
    names.append(kafka_topic)
    assert kafka_topic.startswith("test_one-")
    assert round_trip(kafka_server.bootstrap_servers, kafka_topic) == b"hello"

@pytest.mark.kafka_topic(partitions=3, configs={"retention.ms": 1000})
@pytest.mark.parametrize("word", ["a/b c"])
def test_two(kafka_server, kafka_topic, word):
    from confluent_kafka.admin import AdminClient
    topics = AdminClient({"bootstrap.servers": kafka_server.bootstrap_servers}).list_topics().topics
    assert len(topics[kafka_topic].partitions) == 3
    assert names[0] not in topics

def test_failing(kafka_server):
    assert False

def test_without_kafka():
    assert False
"""
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rpf"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False).stdout


def test_each_test_gets_a_topic_of_its_own(printed: str) -> None:
    passed = [line.split()[1] for line in printed.splitlines() if line.startswith("PASSED ")]
    assert passed == ["test_run.py::test_one", "test_run.py::test_two[a/b"], printed


def test_a_failing_test_shows_the_log(printed: str) -> None:
    failed = [line.split()[1] for line in printed.splitlines() if line.startswith("FAILED ")]
    assert failed == ["test_run.py::test_failing", "test_run.py::test_without_kafka"], printed
    assert printed.count("log of node 1") == 1
    assert re.search(r"log of node 1 \(.*server\.log\).*Kafka Server started", printed, re.DOTALL)


@pytest.mark.full
def test_workers_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
import pytest

@pytest.mark.parametrize("number", range(4))
def test_server(kafka_server, kafka_topic, number, tmp_path_factory):
    root = tmp_path_factory.getbasetemp().parent
    (root / f"{kafka_server.brokers[0].bootstrap_servers.replace(':', '-')}").touch()
"""
    )
    run(pytester, "-n", "2", "--basetemp", str(pytester.path / "temporary")).assert_outcomes(
        passed=4
    )
    assert len(list((pytester.path / "temporary").glob("127.0.0.1-*"))) == 2


@pytest.mark.full
def test_factories_start_clusters_of_other_shapes(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
def test_factories(kafka_cluster_factory, kafka_server_factory, kafka_server):
    pair = kafka_cluster_factory(brokers=2, directories=2)
    pair.disk(2, 2).fail()
    assert len(pair.brokers) == 2
    assert kafka_server_factory().bootstrap_servers != kafka_server.bootstrap_servers
    assert len(kafka_server.brokers[0].disks) == 2
    assert "num.partitions=7" in kafka_server.brokers[0].property_file.read_text()
"""
    )
    pytester.makeini("[pytest]\nkafka_directories = 2\nkafka_properties =\n    num.partitions=7\n")
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.full
def test_fixtures_use_an_existing_cluster_if_one_is_given(pytester: pytest.Pytester) -> None:
    from spindle.testing import Cluster

    pytester.makepyfile(
        ROUND_TRIP
        + """
def test_noproc(kafka_noproc, kafka_server, kafka_topic):
    assert kafka_server is kafka_noproc
    assert round_trip(kafka_server.bootstrap_servers, kafka_topic) == b"hello"
"""
    )
    with Cluster() as cluster:
        where = f"--kafka-bootstrap={cluster.bootstrap_servers}"
        run(pytester, where).assert_outcomes(passed=1)
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kafka_noproc needs --kafka-bootstrap*"])


def test_a_wrong_number_is_named(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_it(kafka_server): pass")
    pytester.makeini("[pytest]\nkafka_brokers = none\n")
    result = pytester.runpytest_inprocess("-p", "no:cacheprovider", "-p", "no:asyncio")
    assert "kafka_brokers is 'none', want a number from 1" in result.stdout.str()


def test_the_plugin_loads_nothing_of_the_node() -> None:
    script = (
        "import sys, pytest; before = set(sys.modules); import spindle.testing.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    loaded = ["spindle", "spindle.testing", "spindle.testing.pytest_plugin"]
    new = [m for m in done.stdout.split() if m.startswith("spindle")]
    assert new == loaded
