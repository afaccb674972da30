"""Which replicas may be in the ISR, by the committed state of their brokers (KIP-841, KIP-903)."""

from spindle.common.uuids import Uuid
from spindle.protocol.sentinels import NO_BROKER_EPOCH
from spindle.replicas.metadata_view import MetadataView


class CommittedEligibility:
    """The newest committed state of the brokers of one partition's replicas.

    Unlike Kafka's leaders, this also looks at the replica's directory: a follower whose disk has
    died cannot catch up, so it must not hold the high watermark for `replica.lag.time.max.ms`.
    """

    __slots__ = ("_metadata", "_partition", "_topic_id")

    def __init__(self, metadata: MetadataView, topic_id: Uuid, partition: int) -> None:
        self._metadata = metadata
        self._topic_id = topic_id
        self._partition = partition

    def is_eligible(self, replica_id: int, broker_epoch: int) -> bool:
        """See `IsrEligibility`."""
        image = self._metadata.image
        broker = image.cluster.brokers.get(replica_id)
        if broker is None or not broker.is_active:
            return False
        if broker_epoch not in (NO_BROKER_EPOCH, broker.epoch):
            return False
        known = image.topics.partition(self._topic_id, self._partition)
        return (
            known is not None
            and replica_id in known.replicas
            and broker.has_online_directory(known.directory(replica_id))
        )

    def is_alive(self, replica_id: int) -> bool:
        """See `IsrEligibility`."""
        broker = self._metadata.image.cluster.brokers.get(replica_id)
        return broker is not None and not broker.is_fenced

    def is_broker_epoch_stale(self, replica_id: int, broker_epoch: int) -> bool:
        """Return True if the broker has registered again since `broker_epoch` (KIP-903)."""
        broker = self._metadata.image.cluster.brokers.get(replica_id)
        return (
            broker is not None
            and not broker.is_fenced
            and NO_BROKER_EPOCH != broker_epoch < broker.epoch
        )
