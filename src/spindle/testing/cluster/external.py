"""A cluster that was started elsewhere, with the interface of `spindle.testing`."""

from collections.abc import Mapping, Sequence

from spindle.local.topic_admin import make_topic, remove_topic


class ExistingCluster:
    """A cluster of Kafka or Spindle without faults.

    Attributes:
        bootstrap_servers: host:port,... of its brokers, as given.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self.bootstrap_servers = bootstrap_servers

    def create_topic(
        self,
        name: str,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Mapping[str, object] | None = None,
        replicas: Sequence[Sequence[int]] | None = None,
    ) -> None:
        """Create a topic, as `Cluster.create_topic` does.

        Raises:
            ValueError: `replicas` comes with one of the numbers.
            ApiError: the cluster refused.
        """
        make_topic(
            self.bootstrap_servers, name, partitions, replication_factor, configs or {}, replicas
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic.

        Raises:
            ApiError: the cluster refused.
        """
        remove_topic(self.bootstrap_servers, name)
