"""Changes of leaders, ISR and ELR that follow from changes of a broker.

The order of the records matters: a broker's partitions are moved away before the record that fences
it, and a broker is unfenced before it is elected anywhere.
"""

from collections.abc import Callable, Iterable, Iterator

from spindle.common.ids import NO_LEADER
from spindle.common.uuids import Uuid
from spindle.controller.decision import ControllerSettings
from spindle.controller.partition_change_builder import PartitionChanges
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.features import REGISTRATION_CHANGE_LEVEL
from spindle.metadata.image import MetadataImage
from spindle.metadata.partitions import PartitionRegistration
from spindle.metadata.topics import TopicImage
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FenceBrokerRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
)

NO_BROKER = -1


def partitions_where(
    topics: Iterable[TopicImage], wanted: Callable[[PartitionRegistration], bool]
) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
    """Yield the partitions of the topics that satisfy `wanted`, in order."""
    for topic in topics:
        for partition_id, partition in topic.partitions.items():
            if wanted(partition):
                yield topic, partition_id, partition


def has_leaderships(image: MetadataImage, broker_id: int) -> bool:
    """Return whether the broker leads any partition."""
    return any(
        partition.leader == broker_id
        for topic in image.topics.with_replicas_on(broker_id)
        for partition in topic.partitions.values()
    )


class BrokerChangeRecords:
    """Collects the records that events about brokers cause."""

    def __init__(self, image: MetadataImage, settings: ControllerSettings) -> None:
        self._image = image
        self._settled_count = 0
        self.settings = settings
        self.records: list[Message] = []

    def settle(self) -> MetadataImage:
        """Apply the records so far, so that the next event of the same decision sees them."""
        if self._settled_count < len(self.records):
            delta = MetadataDelta(self._image)
            for record in self.records[self._settled_count :]:
                delta.replay(record, self._image.provenance.last_offset)
            self._image = delta.apply(self._image.provenance)
            self._settled_count = len(self.records)
        return self._image

    def fence(self, broker_id: int, limit: int | None = None) -> bool:
        """Fence a broker: it loses its leaderships and leaves every ISR.

        At most `limit` partitions change. Return False if more remain; the broker is fenced by a
        later call.
        """
        if not self._leave_isr(broker_id, limit):
            return False
        broker = self._image.cluster.brokers[broker_id]
        if self._image.metadata_version >= REGISTRATION_CHANGE_LEVEL:
            self.records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=broker.epoch, fenced=1
                )
            )
        else:
            self.records.append(FenceBrokerRecord(id=broker_id, epoch=broker.epoch))
        return True

    def unfence(self, broker_id: int, limit: int | None = None) -> bool:
        """Unfence a broker and elect it where a partition has no leader.

        Return False if `limit` was reached; `elections.elect_waiting` elects the others.
        """
        broker = self._image.cluster.brokers[broker_id]
        if self._image.metadata_version >= REGISTRATION_CHANGE_LEVEL:
            self.records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=broker.epoch, fenced=-1
                )
            )
        else:
            self.records.append(UnfenceBrokerRecord(id=broker_id, epoch=broker.epoch))
        topics = self._image.topics.with_leaderless()
        leaderless = partitions_where(topics, lambda p: p.leader == NO_LEADER)
        return self.update(leaderless, add=broker_id, limit=limit)

    def begin_controlled_shutdown(self, broker_id: int, limit: int | None = None) -> bool:
        """Move leaderships away from a broker that is about to stop and still serves (KIP-841).

        Return False if `limit` was reached and the next call must continue.
        """
        broker = self._image.cluster.brokers[broker_id]
        if not broker.is_in_controlled_shutdown:
            self.records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker_id, broker_epoch=broker.epoch, in_controlled_shutdown=1
                )
            )
        return self._leave_isr(broker_id, limit)

    def unregister(self, broker_id: int) -> None:
        """Remove the broker from the cluster."""
        self._leave_isr(broker_id)
        broker = self._image.cluster.brokers[broker_id]
        self.records.append(UnregisterBrokerRecord(broker_id=broker_id, broker_epoch=broker.epoch))

    def forget_previous_incarnation(self, broker_id: int, *, is_clean: bool) -> None:
        """Handle a new process with this broker id: its replicas may lack records (KIP-966)."""
        if is_clean or not self._image.features.is_elr_enabled:
            self._leave_isr(broker_id)
            return
        self.update(
            partitions_where(
                self._image.topics.with_replicas_on(broker_id),
                lambda p: broker_id in p.isr or broker_id in p.elr,
            ),
            unclean=broker_id,
        )

    def directory_failed(self, broker_id: int, directory: Uuid) -> None:
        """Handle a failed log directory of the broker and the replicas in it (KIP-858)."""
        self.update(
            partitions_where(
                self._image.topics.with_replicas_on(broker_id),
                lambda p: broker_id in p.replicas and p.directory(broker_id) == directory,
            ),
            remove=broker_id,
        )

    def update(
        self,
        partitions: Iterable[tuple[TopicImage, int, PartitionRegistration]],
        *,
        remove: int = NO_BROKER,
        add: int = NO_BROKER,
        unclean: int = NO_BROKER,
        limit: int | None = None,
    ) -> bool:
        """Choose leader and ISR again for each partition of one broker.

        `remove` and `unclean` leave the ISR and cannot lead; `add` can lead although it is still
        fenced in the image; `unclean` may lack records, so it also leaves the ELR. Return False if
        `limit` stopped it early.
        """
        last_count = None if limit is None else len(self.records) + limit
        active = {b.broker_id for b in self._image.cluster.brokers.values() if b.is_active}
        active |= {add}
        active -= {remove, unclean}
        changes = PartitionChanges(self._image, self.settings, active.__contains__)
        for topic, partition_id, partition in partitions:
            change = changes.by_policy(topic, partition_id, partition)
            if unclean != NO_BROKER:
                change.unclean_shutdown_replicas = (unclean,)
            change.target_isr = [r for r in partition.isr if r not in (remove, unclean)]
            record = change.build()
            if record is not None:
                if len(self.records) == last_count:
                    return False
                self.records.append(record)
        return True

    def _leave_isr(self, broker_id: int, limit: int | None = None) -> bool:
        # Without a function for each partition: a broker with very many leaves in several calls.
        members = (
            (topic, partition_id, partition)
            for topic in self._image.topics.with_replicas_on(broker_id)
            for partition_id, partition in topic.partitions.items()
            if broker_id in partition.isr
        )
        return self.update(members, remove=broker_id, limit=limit)
