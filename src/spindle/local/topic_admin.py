"""Topics for tests: created with leaders, and deleted."""

from collections.abc import Mapping, Sequence

from spindle.client.admin.topics import NewTopic, create_topic, delete_topics
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.cluster_metadata import cluster_view, metadata_request
from spindle.common.ids import TopicPartition
from spindle.local.cluster_spec import property_texts
from spindle.protocol.messages.metadata import MetadataResponse


def connected(bootstrap_servers: str) -> WireClient:
    """Return a client, which is a context manager."""
    return WireClient(
        client_settings({"bootstrap.servers": bootstrap_servers, "client.id": "spindle-testing"})
    )


def make_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int | None,
    replication_factor: int | None,
    configs: Mapping[str, object],
    replicas: Sequence[Sequence[int]] | None,
) -> None:
    """Create a topic and return when each of its partitions has a leader.

    Args:
        partitions: 1 by default, or as many as `replicas` has entries.
        replicas: the brokers of each partition; the cluster chooses them by default.

    Raises:
        ValueError: `replicas` comes with one of the two numbers that it decides.
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    texts = property_texts(configs)
    if replicas is None:
        count = 1 if partitions is None else partitions
        topic = NewTopic(name, count, replication_factor, configs=texts)
    elif partitions is not None or replication_factor is not None:
        raise ValueError("replicas decides the numbers of partitions and replicas: give it alone")
    else:
        count = len(replicas)
        topic = NewTopic(name, assignment=dict(enumerate(replicas)), configs=texts)
    with connected(bootstrap_servers) as client:
        create_topic(client, topic)

        def attempt() -> None:
            request = metadata_request([name])
            view = cluster_view(client.ask(request, MetadataResponse))
            for partition in range(count):
                view.leader_of(TopicPartition(name, partition))

        client.retrying(attempt)


def remove_topic(bootstrap_servers: str, name: str) -> None:
    """Delete a topic.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    with connected(bootstrap_servers) as client:
        delete_topics(client, [name])
