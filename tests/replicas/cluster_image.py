"""Images of a small cluster, made from the records that a controller would write."""

from collections.abc import Sequence
from typing import Any

from metadata_history import image_of, uuid

from spindle.common.uuids import DIRECTORY_UNASSIGNED, Uuid
from spindle.metadata.features import LATEST_METADATA_VERSION, METADATA_VERSION
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

LISTENER = "PLAINTEXT"


def directory_of(broker_id: int, number: int = 0) -> Uuid:
    """Return the id of a broker's log directory."""
    return uuid(1000 * broker_id + number + 1)


class ClusterImage:
    """A cluster that changes record by record; `image` is its newest state."""

    def __init__(self, *broker_ids: int) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self._records: list[Message] = []
        self.write(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST_METADATA_VERSION))
        for broker_id in broker_ids:
            self.register(broker_id)

    def write(self, *records: Message) -> MetadataImage:
        """Commit records in one delta; return the image after them."""
        self._records += records
        self.image = image_of(list(records), self.image)
        return self.image

    def records_after(self, offset: int) -> list[tuple[int, Message]]:
        """Return what was committed after the offset, with its offsets."""
        return list(enumerate(self._records))[offset + 1 :]

    # -- brokers

    def register(self, broker_id: int, *, directories: int = 1, listener: str = LISTENER) -> int:
        """Register a broker that is not fenced; return its epoch, larger than any before."""
        epoch = self.image.provenance.last_offset + 1
        self.write(
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=uuid(epoch + 1_000_000),
                broker_epoch=epoch,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(
                        name=listener, host=f"host{broker_id}", port=9092
                    )
                ],
                rack=f"rack{broker_id}",
                fenced=False,
                log_dirs=[directory_of(broker_id, n) for n in range(directories)],
            )
        )
        return epoch

    def broker_epoch(self, broker_id: int) -> int:
        return self.image.cluster.brokers[broker_id].epoch

    def fence(self, broker_id: int) -> None:
        self._change_broker(broker_id, 1)

    def unfence(self, broker_id: int) -> None:
        self._change_broker(broker_id, -1)

    def _change_broker(self, broker_id: int, fenced: int) -> None:
        self.write(
            BrokerRegistrationChangeRecord(
                broker_id=broker_id, broker_epoch=self.broker_epoch(broker_id), fenced=fenced
            )
        )

    # -- topics

    def create(
        self, name: str, *replicas: Sequence[int], directories: Sequence[Sequence[Uuid]] = ()
    ) -> Uuid:
        """Create a topic; the first replica of each partition leads it, all are in sync.

        A replica is recorded in its broker's directory where there is one, as Kafka's controllers
        do, and in none where there are several; unless `directories` says otherwise.
        """
        topic_id = uuid(500_000 + self.image.provenance.last_offset)
        places = directories or [[self._place(broker) for broker in its] for its in replicas]
        self.write(
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    topic_id=topic_id,
                    partition_id=index,
                    replicas=list(its),
                    isr=list(its),
                    leader=its[0],
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=list(place),
                )
                for index, (its, place) in enumerate(zip(replicas, places, strict=True))
            ),
        )
        return topic_id

    def _place(self, broker_id: int) -> Uuid:
        known = self.image.cluster.brokers.get(broker_id)
        has_one = known is None or len(known.directories) == 1
        return directory_of(broker_id) if has_one else DIRECTORY_UNASSIGNED

    def delete(self, name: str) -> None:
        self.write(RemoveTopicRecord(topic_id=self.image.topics.by_name[name].topic_id))

    def change(self, name: str, index: int = 0, **fields: object) -> None:
        """Commit a PartitionChangeRecord; `leader` begins a new leader epoch."""
        self.write(self.change_record(name, index, **fields))

    def change_record(self, name: str, index: int = 0, **fields: Any) -> PartitionChangeRecord:
        topic_id = self.image.topics.by_name[name].topic_id
        if "replicas" in fields:
            replicas: Sequence[int] = fields["replicas"]
            fields.setdefault("directories", [self._place(broker_id) for broker_id in replicas])
        return PartitionChangeRecord(topic_id=topic_id, partition_id=index, **fields)
