"""Topics for tests: created with leaders, and deleted."""

from collections.abc import Mapping

from spindle.client.admin.topics import NewTopic, create_topic, delete_topics
from spindle.client.cluster import cluster_view, metadata_request
from spindle.client.wire.cluster import WireClient
from spindle.client.wire.settings import client_settings
from spindle.common.ids import TopicPartition
from spindle.protocol.messages.metadata import MetadataResponse
from spindle.testing.cluster.properties import property_texts


def connected(bootstrap_servers: str) -> WireClient:
    """Return a client, which is a context manager."""
    return WireClient(
        client_settings({"bootstrap.servers": bootstrap_servers, "client.id": "spindle-testing"})
    )


def make_topic(
    bootstrap_servers: str,
    name: str,
    partitions: int,
    replication_factor: int | None,
    configs: Mapping[str, object],
) -> None:
    """Create a topic and return when each of its partitions has a leader.

    Raises:
        ApiError: the cluster refused.
        ClientError: no broker could be asked.
    """
    with connected(bootstrap_servers) as client:
        texts = property_texts(configs)
        topic = NewTopic(name, partitions, replication_factor, configs=texts)
        create_topic(client, topic)

        def attempt() -> None:
            request = metadata_request([name])
            view = cluster_view(client.ask(request, MetadataResponse))
            for partition in range(partitions):
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
