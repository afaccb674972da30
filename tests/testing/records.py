"""Records for the tests of clusters: produced and read back by the project's own client."""

from collections.abc import Iterable

from spindle.client.blocking.client import WireClient
from spindle.client.blocking.producer import BlockingProducer
from spindle.client.blocking.reader import Reader
from spindle.client.blocking.settings import client_settings
from spindle.client.log_dirs import LogDirView
from spindle.common.ids import TopicPartition
from spindle.protocol.records.builder import SimpleRecord
from spindle.testing import Cluster, Disk


def client_of(cluster: Cluster, api_timeout_ms: int = 60_000) -> WireClient:
    """Return a client that gives up after that time."""
    times = {"default.api.timeout.ms": api_timeout_ms, "request.timeout.ms": api_timeout_ms}
    properties = {key: str(value) for key, value in times.items()}
    return WireClient(
        client_settings({"bootstrap.servers": cluster.bootstrap_servers, **properties})
    )


def send(
    cluster: Cluster,
    values: Iterable[bytes],
    topic: str = "t",
    partition: int = 0,
    api_timeout_ms: int = 60_000,
) -> None:
    """Send each value in a batch of its own, with acks=all."""
    with client_of(cluster, api_timeout_ms) as client:
        producer = BlockingProducer(client)
        for value in values:
            producer.send(TopicPartition(topic, partition), [SimpleRecord(value=value)])


def read(
    cluster: Cluster,
    count: int,
    topic: str = "t",
    partition: int = 0,
    api_timeout_ms: int = 60_000,
) -> list[bytes | None]:
    """Return the values from the start of a partition, at least so many."""
    with client_of(cluster, api_timeout_ms) as client:
        reader = Reader(client, {TopicPartition(topic, partition): 0}, isolation_level=0)
        values: list[bytes | None] = []
        while len(values) < count:
            values += [record.value for record in reader.poll()]
        return values


def described(cluster: Cluster, disk: Disk) -> LogDirView:
    """Return what the broker tells of a disk (DescribeLogDirs)."""
    with client_of(cluster) as client:
        views = client.describe_log_dirs()[disk.node.node_id]
    (view,) = [view for view in views if view.path == str(disk.path)]
    return view
