"""Replica assignments: check manual ones, choose the others."""

from collections.abc import Sequence

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ports import RandomSource
from spindle.common.uuids import Uuid
from spindle.metadata.image import MetadataImage
from spindle.metadata.placement import ReplicaPlacer, UsableBroker
from spindle.protocol.messages.metadata_records import PartitionRecord


def usable_brokers(image: MetadataImage) -> list[UsableBroker]:
    """Return the brokers that may get new replicas.

    Brokers that are about to stop are excluded, and those whose directories are all cordoned
    (KIP-1066). Fenced brokers are included, even those that were shut down. Brokers with an id
    below 0 are excluded, because such an id means "no broker" in records; another controller may
    have registered one.
    """
    return [
        UsableBroker(broker.broker_id, broker.rack, broker.is_fenced)
        for broker in image.cluster.brokers.values()
        if broker.broker_id >= 0
        and (broker.is_fenced or not broker.is_in_controlled_shutdown)
        and broker.has_uncordoned_directory()
    ]


def place_replicas(
    image: MetadataImage, random: RandomSource, partition_count: int, replication_factor: int
) -> list[list[int]]:
    """Return the replicas of new partitions.

    Raises:
        ApiError: INVALID_REPLICATION_FACTOR.
    """
    placer = ReplicaPlacer(usable_brokers(image), random)
    return placer.place(partition_count, replication_factor)


def check_manual_assignment(
    image: MetadataImage, replicas: Sequence[int], replication_factor: int | None
) -> None:
    """Refuse an assignment that cannot be carried out, with the checks of Kafka in their order.

    Since Kafka 4.4, a broker whose directories are all cordoned is refused (KIP-1066), also if it
    has a replica already.

    Raises:
        ApiError: INVALID_REPLICA_ASSIGNMENT.
    """

    def refuse(text: str) -> ApiError:
        return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, text)

    if not replicas:
        raise refuse("The manual partition assignment includes an empty replica list.")
    for broker_id in sorted(replicas):
        if broker_id < 0 or broker_id not in image.cluster.brokers:
            raise refuse(
                f"The manual partition assignment includes broker {broker_id}, "
                "but no such broker is registered."
            )
        if not image.cluster.brokers[broker_id].has_uncordoned_directory():
            raise refuse(
                f"The manual partition assignment includes broker {broker_id}, "
                "but all its log directories are cordoned."
            )
        if replicas.count(broker_id) > 1:
            raise refuse(
                f"The manual partition assignment includes the broker {broker_id} more than once."
            )
    if replication_factor is not None and len(replicas) != replication_factor:
        raise refuse(
            f"The manual partition assignment includes a partition with {len(replicas)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{replication_factor} replica(s)."
        )


def new_partition(
    image: MetadataImage, topic_id: Uuid, partition_id: int, replicas: list[int]
) -> PartitionRecord | None:
    """Return the record of a new partition, led by its first active replica; None without any."""
    isr = [replica for replica in replicas if image.cluster.is_active(replica)]
    if not isr:
        return None
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[image.cluster.default_directory(replica) for replica in replicas],
    )
