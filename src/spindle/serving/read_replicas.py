"""Chooses the replica that a consumer should read from (KIP-392)."""

from typing import Final

from spindle.metadata.image import MetadataImage
from spindle.protocol.sentinels import NO_NODE
from spindle.replicas.partition import Partition
from spindle.serving.topology import endpoint_of

RACK_AWARE_SELECTOR: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


def preferred_read_replica(
    partition: Partition,
    image: MetadataImage,
    listener: str,
    rack: str,
    fetch_offset: int,
) -> int:
    """Return a follower in the consumer's rack; -1 if there is none or the leader is there.

    Only in-sync followers that have the offset qualify: others might redirect the consumer at
    once. Prefer the highest end offset, then the latest caught-up time.
    """
    leader = partition.leader
    if leader is None or _rack(image, leader.local_id, listener) == rack:
        return NO_NODE
    candidates = [
        follower
        for follower in leader.followers
        if follower.replica_id in leader.isr
        and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        and _rack(image, follower.replica_id, listener) == rack
    ]
    if not candidates:
        return NO_NODE
    best = max(candidates, key=lambda f: (f.log_end_offset, f.last_caught_up_ms, -f.replica_id))
    return best.replica_id


def _rack(image: MetadataImage, broker_id: int, listener: str) -> str | None:
    """Return the rack of a live broker that has the listener; None otherwise."""
    if endpoint_of(image, broker_id, listener) is None:
        return None
    return image.cluster.brokers[broker_id].rack
