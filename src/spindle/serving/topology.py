"""The image as clients of one listener see it: live brokers, leaders, offline replicas."""

from collections.abc import Sequence

from spindle.common.errors import ErrorCode
from spindle.common.ids import Endpoint
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration


def alive_brokers(image: MetadataImage, listener: str) -> list[tuple[int, Endpoint, str | None]]:
    """Return (id, endpoint, rack) of the unfenced brokers with the listener, ordered by id."""
    alive_brokers = []
    for broker_id, broker in sorted(image.cluster.brokers.items()):
        endpoint = broker.endpoint(listener)
        if not broker.is_fenced and endpoint is not None:
            alive_brokers.append((broker_id, endpoint, broker.rack))
    return alive_brokers


def endpoint_of(image: MetadataImage, broker_id: int, listener: str) -> Endpoint | None:
    """Return a broker's endpoint on the listener; None if it is fenced or has none."""
    broker = image.cluster.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return None
    return broker.endpoint(listener)


def reachable(image: MetadataImage, broker_ids: Sequence[int], listener: str) -> list[int]:
    """Return the live brokers among these that have the listener, in the same order."""
    return [b for b in broker_ids if endpoint_of(image, b, listener) is not None]


def offline_replicas(
    image: MetadataImage, partition: PartitionRegistration, listener: str
) -> list[int]:
    """Return the replicas whose broker or whose directory there is offline (KIP-858)."""
    return [
        replica
        for replica, directory in zip(partition.replicas, partition.directories, strict=True)
        if endpoint_of(image, replica, listener) is None
        or not image.cluster.has_online_directory(replica, directory)
    ]


def has_endpoint(image: MetadataImage, broker_id: int, listener: str) -> bool:
    """Return True if a broker, fenced or not, is registered with the listener."""
    broker = image.cluster.brokers.get(broker_id)
    return broker is not None and broker.endpoint(listener) is not None


def named_leader_error(
    image: MetadataImage, partition: PartitionRegistration, listener: str, is_new_client: bool
) -> ErrorCode:
    """Return the Metadata error of a partition whose leader has no endpoint here, else NONE."""
    if has_endpoint(image, partition.leader, listener):
        return ErrorCode.NONE
    if is_new_client and partition.leader in image.cluster.brokers:
        return ErrorCode.LISTENER_NOT_FOUND
    return ErrorCode.LEADER_NOT_AVAILABLE
