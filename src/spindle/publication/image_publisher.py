"""The committed metadata image of a node, and those who want to know when it changes.

One per process: it listens to the quorum, keeps the image with a `MetadataLoader`, and calls its
consumers in the order in which they were added, always on the event loop's thread.
"""

from collections.abc import Callable, Collection, Iterable, Sequence

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.image import MetadataImage
from spindle.metadata_log.committed import CommittedBatch
from spindle.publication.loader import MetadataLoader, Publication
from spindle.raft.leader import LeaderAndEpoch


class ImageConsumer:
    """Reacts to what it overrides. Methods must not block and must not raise."""

    def on_publication(self, publication: Publication) -> None:
        """A new image, with the delta that led to it."""

    def on_committed(self, last_offset: int) -> None:
        """Everything up to this offset (inclusive) is committed, published or not."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """The quorum has another leader, or none."""


class ImagePublisher:
    """A `QuorumListener` that turns committed batches into images."""

    def __init__(self) -> None:
        self._loader = MetadataLoader()
        self._consumers: list[ImageConsumer] = []
        self.leader = LeaderAndEpoch()
        self.last_committed_offset = -1

    @property
    def image(self) -> MetadataImage:
        """The newest published image."""
        return self._loader.image

    @property
    def is_in_transaction(self) -> bool:
        """Whether committed records wait for the end of a metadata transaction."""
        return self._loader.is_in_transaction

    def add(self, consumer: ImageConsumer) -> None:
        """Call this consumer from now on; what was published before it can read from `image`."""
        self._consumers.append(consumer)

    def remove(self, consumer: ImageConsumer) -> None:
        self._consumers.remove(consumer)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        if not batches:
            return
        publications = self._loader.load_batches(batches)
        self.last_committed_offset = batches[-1].last_offset
        for publication in publications:
            self._publish(publication)
        self._committed()

    def read_snapshot(
        self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]
    ) -> Publication:
        return self._loader.read_snapshot(snapshot_id, batches)

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, content: Publication) -> None:
        self._loader.take_snapshot(content)
        self.last_committed_offset = snapshot_id.offset - 1
        self._publish(content)
        self._committed()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader
        for consumer in list(self._consumers):
            consumer.on_leader_change(leader)

    def _publish(self, publication: Publication) -> None:
        for consumer in list(self._consumers):
            consumer.on_publication(publication)

    def _committed(self) -> None:
        for consumer in list(self._consumers):
            consumer.on_committed(self.last_committed_offset)


class ActiveBrokersWatch(ImageConsumer):
    """Calls back once, when every one of these brokers is active."""

    def __init__(
        self, publisher: ImagePublisher, broker_ids: Collection[int], then: Callable[[], None]
    ) -> None:
        self._publisher = publisher
        self._broker_ids = broker_ids
        self._then = then
        publisher.add(self)
        self._look(publisher.image)

    def on_publication(self, publication: Publication) -> None:
        self._look(publication.image)

    def _look(self, image: MetadataImage) -> None:
        if all(map(image.cluster.is_active, self._broker_ids)):
            self._publisher.remove(self)
            self._then()
