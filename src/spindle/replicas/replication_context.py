"""The objects that all leaders of a broker share: broker state, a clock, the controller."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from spindle.common.uuids import Uuid
from spindle.protocol.sentinels import NO_BROKER_EPOCH
from spindle.replicas.damages import DamagedReplicas
from spindle.replicas.metadata_view import MetadataView
from spindle.replicas.record_decoding import RecordDecoding
from spindle.replication.leader_state import IsrProposal

if TYPE_CHECKING:
    from spindle.replicas.partition import Partition


@dataclass(slots=True)
class ReplicationContext:
    """One per broker.

    Attributes:
        steady_ms: a clock for durations.
        max_lag_ms: `replica.lag.time.max.ms`.
        propose: sends a proposed ISR to the controller (AlterPartition), and passes the result to
            the partition.
        decoding: decodes the larger batches of clients.
        damages: the replicas whose records cannot be read.
    """

    broker_id: int
    metadata: MetadataView
    steady_ms: Callable[[], int]
    max_lag_ms: int
    propose: "Callable[[Partition, IsrProposal], None]"
    decoding: RecordDecoding = field(default_factory=RecordDecoding)
    damages: DamagedReplicas = field(default_factory=DamagedReplicas)


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
