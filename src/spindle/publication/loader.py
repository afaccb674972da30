"""From committed batches to images: snapshots, metadata transactions (KIP-868), publications.

The records between BeginTransaction and EndTransaction become visible together or, after an
AbortTransaction, never. Records before an open transaction are published at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain

from spindle.common.errors import ProtocolViolation
from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.delta import MetadataDelta
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage, MetadataProvenance
from spindle.metadata.snapshot import records_after_topics, records_before_topics
from spindle.metadata_log.committed import CommittedBatch
from spindle.metadata_log.partition_values import PartitionValueReader
from spindle.metadata_log.snapshots import SnapshotBatch
from spindle.protocol.message import Message
from spindle.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
)
from spindle.protocol.metadata_frame import parse_frame
from spindle.publication.feed import SnapshotReader


@dataclass(frozen=True, slots=True)
class Publication:
    """One step of the published image, for the consumers of metadata.

    `size_bytes` counts the batches of the log that led here; 0 for a snapshot.
    """

    delta: MetadataDelta
    image: MetadataImage
    size_bytes: int
    is_snapshot: bool = False


class MetadataLoader:
    """Holds the committed image of a node and moves it along the metadata log."""

    def __init__(self) -> None:
        self.image = EMPTY_IMAGE
        self._delta: MetadataDelta | None = None
        self._in_transaction = False
        self._size_bytes = 0
        self._provenance = EMPTY_IMAGE.provenance

    @property
    def is_in_transaction(self) -> bool:
        """True while records are held back; no snapshot may be made of such a position."""
        return self._in_transaction

    def load_batches(self, batches: Sequence[CommittedBatch]) -> list[Publication]:
        """Replay batches that follow the last ones; return the publications that they complete.

        Raises:
            ProtocolViolation: a record contradicts the records before it.
        """
        published: list[Publication] = []
        for batch in batches:
            self._size_bytes += batch.size_bytes
            for index, record in enumerate(batch.records):
                self._replay(record, batch, batch.base_offset + index, published)
            self._provenance = MetadataProvenance(
                batch.last_offset, batch.epoch, batch.append_time_ms
            )
        if not self._in_transaction:
            self._publish(published)
        return published

    def load_snapshot(
        self, snapshot_id: OffsetAndEpoch, batches: Iterable[SnapshotBatch]
    ) -> Publication:
        """Take the state of a snapshot, in place of everything before it."""
        replay = self.begin_snapshot(snapshot_id)
        for batch in batches:
            replay.replay(batch)
        publication = replay.complete()
        self.take_snapshot(publication)
        return publication

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> "SnapshotReplay":
        """Return an empty step from the present image to that of a snapshot; changes nothing."""
        return SnapshotReplay(self.image, snapshot_id)

    def take_snapshot(self, publication: Publication) -> None:
        """Continue from the publication of a complete `SnapshotReplay`."""
        assert publication.delta.base is self.image, "the image has changed during the read"
        self.image = publication.image
        self._provenance = publication.image.provenance
        self._delta = None
        self._in_transaction = False
        self._size_bytes = 0

    def _replay(
        self, record: Message, batch: CommittedBatch, offset: int, published: list[Publication]
    ) -> None:
        if isinstance(record, BeginTransactionRecord):
            if self._in_transaction:
                raise ProtocolViolation(f"BeginTransactionRecord at {offset} inside a transaction")
            if offset > batch.base_offset:
                self._provenance = MetadataProvenance(
                    offset - 1, batch.epoch, batch.append_time_ms, is_batch_aligned=False
                )
            self._publish(published)
            self._in_transaction = True
        elif isinstance(record, EndTransactionRecord):
            self._end_transaction(record, offset)
        elif isinstance(record, AbortTransactionRecord):
            self._end_transaction(record, offset)
            self._delta = None
        else:
            if self._delta is None:
                self._delta = MetadataDelta(self.image)
            self._delta.replay(record, offset)

    def _end_transaction(self, record: Message, offset: int) -> None:
        if not self._in_transaction:
            raise ProtocolViolation(f"{type(record).__name__} at {offset} outside a transaction")
        self._in_transaction = False

    def _publish(self, published: list[Publication]) -> None:
        if self._provenance == self.image.provenance:
            return
        delta = self._delta or MetadataDelta(self.image)
        self.image = delta.apply(self._provenance)
        published.append(Publication(delta, self.image, self._size_bytes))
        self._delta = None
        self._size_bytes = 0


class SnapshotReplay(SnapshotReader):
    """The step from an image to that of a snapshot, made batch by batch.

    Until `complete` nobody sees it, so other work can be done between two batches.
    """

    def __init__(self, base: MetadataImage, snapshot_id: OffsetAndEpoch) -> None:
        self._delta = MetadataDelta(base)
        self._delta.begin_snapshot()
        self._snapshot_id = snapshot_id
        self._append_time_ms = -1
        self._partitions = PartitionValueReader()

    def replay(self, batch: SnapshotBatch) -> None:
        self._append_time_ms = max(self._append_time_ms, batch.append_time_ms)
        last_offset = self._snapshot_id.offset - 1
        read_partition, topics = self._partitions.read, self._delta.topics
        for value in batch.values:
            partition = read_partition(value)
            if partition is None:
                self._delta.replay(parse_frame(value)[0], last_offset)
            else:
                topics.set_partition(*partition)

    def complete(self) -> Publication:
        """Return the step."""
        last_offset, epoch = self._snapshot_id.offset - 1, self._snapshot_id.epoch
        provenance = MetadataProvenance(last_offset, epoch, self._append_time_ms)
        return Publication(self._delta, self._delta.apply(provenance), 0, is_snapshot=True)


def initial_publication(image: MetadataImage) -> Publication:
    """Return the publication that leads from the empty image to `image`.

    It contains no topics that were created and deleted before: a reaction to an earlier state would
    change disks that already have the newest one.
    """
    delta = MetadataDelta(EMPTY_IMAGE)
    for record in chain(records_before_topics(image), records_after_topics(image)):
        delta.replay(record, image.provenance.last_offset)
    delta.topics.create_all(image.topics)
    delta.apply(image.provenance)
    return Publication(delta, image, 0)
