"""Fetch replicas from all brokers at the same time, through this process."""

from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing import get_context
from typing import NamedTuple, Protocol

from spindle.audit.fetched_replica import audit_fetched_replica
from spindle.audit.replica import AuditedReplica, unreadable_replica
from spindle.audit.replica_place import ReplicaPlace
from spindle.audit.throttle import ReadThrottle
from spindle.audit.workers import AuditProgress
from spindle.client.admin.cluster import ClusterNode
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.fan_out import BROKER_FAILURES, ask_every_broker
from spindle.client.cluster_metadata import BrokerAddress
from spindle.common.errors import ApiError
from spindle.common.uuids import Uuid


class WantedReplica(NamedTuple):
    """A replica to fetch; its size is the broker's report, -1 if unknown."""

    place: ReplicaPlace
    topic_id: Uuid
    size_bytes: int


class BrokerReplicas(NamedTuple):
    """The replicas to fetch from one broker."""

    node: ClusterNode
    replicas: Sequence[WantedReplica]

    @property
    def broker(self) -> BrokerAddress:
        return BrokerAddress(self.node.node_id, self.node.host, self.node.port)


class ReplicaFetch(Protocol):
    """Fetches replicas, in this process (`fetch_replicas`) or in Spark tasks."""

    def __call__(
        self,
        client: WireClient,
        brokers: Sequence[BrokerReplicas],
        *,
        bytes_per_second: int | None,
        on_progress: Callable[[AuditProgress], None],
    ) -> list[AuditedReplica]:
        """Return the results, without those of replicas that were moved away."""


def fetch_replicas(
    client: WireClient,
    brokers: Sequence[BrokerReplicas],
    *,
    bytes_per_second: int | None,
    on_progress: Callable[[AuditProgress], None],
) -> list[AuditedReplica]:
    """Fetch and check replicas, one after another from each broker.

    Args:
        client: knows the cluster.
        bytes_per_second: maximum rate of fetches from each log directory, None for no limit.
        on_progress: not used, because brokers send in parallel, on threads.
    """
    directories = {replica.place.path.parent for part in brokers for replica in part.replicas}
    throttle = ReadThrottle(bytes_per_second, directories, get_context("fork"))
    by_broker = {part.node.node_id: part for part in brokers}
    answers = ask_every_broker(
        client,
        [part.node for part in brokers],
        lambda single, broker: _fetch(single, by_broker[broker.node_id], throttle),
    )
    replicas = []
    for answer in answers.values():
        if isinstance(answer, Exception):
            raise answer
        replicas += answer
    return replicas


def _fetch(
    client: WireClient, part: BrokerReplicas, throttle: ReadThrottle
) -> list[AuditedReplica]:
    replicas = []
    for number, (place, topic_id, _) in enumerate(part.replicas):
        wait = partial(throttle.wait, place.path.parent)
        try:
            replicas.append(
                audit_fetched_replica(client, part.broker, place, topic_id, on_bytes=wait)
            )
        except ApiError as error:
            if not has_moved(client, place):
                replicas.append(not_fetched(place, str(error)))
        except BROKER_FAILURES as error:
            # Each further request could take as long to fail.
            rest = len(part.replicas) - number - 1
            reason = f"{error}; with it {rest} more replicas of the broker"
            replicas.append(not_fetched(place, reason))
            break
    return replicas


def has_moved(client: WireClient, place: ReplicaPlace) -> bool:
    """Return whether the replica was moved to another broker meanwhile."""
    name, number = place.partition
    topic = client.metadata().topics.get(name)
    view = None if topic is None else topic.partitions.get(number)
    return view is None or place.node_id not in view.replicas


def not_fetched(place: ReplicaPlace, reason: str) -> AuditedReplica:
    """Return the result for a replica that could not be fetched."""
    return unreadable_replica(place, OSError(f"it was not fetched: {reason}"))
