"""The committed metadata image of a node, and the consumers that follow its changes.

One per process: it listens to the quorum, keeps the image with a `MetadataLoader`, and calls its
consumers in the order in which they were added, always on the event loop's thread.
"""

from collections.abc import Callable, Collection, Sequence

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.image import MetadataImage
from spindle.metadata_log.committed import CommittedBatch
from spindle.publication.loader import MetadataLoader, Publication, SnapshotReplay
from spindle.raft.ready import LeaderAndEpoch


class MetadataPublisher:
    """Base of the consumers. Methods must not block; an exception ends the node."""

    def on_publication(self, publication: Publication) -> None:
        """React to a new image and the delta that led to it."""

    def on_committed(self, last_offset: int) -> None:
        """React to a commit of everything up to this offset (inclusive), published or not."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """React to another leader of the quorum, or to none."""


class ImagePublisher:
    """A `QuorumListener` that turns committed batches into images."""

    def __init__(self) -> None:
        self._loader = MetadataLoader()
        self._consumers: list[MetadataPublisher] = []
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

    def add(self, consumer: MetadataPublisher) -> None:
        """Call this consumer from now on; `image` has everything that was published before."""
        self._consumers.append(consumer)

    def remove(self, consumer: MetadataPublisher) -> None:
        self._consumers.remove(consumer)

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        if not batches:
            return
        publications = self._loader.load_batches(batches)
        self.last_committed_offset = batches[-1].last_offset
        for publication in publications:
            self._publish(publication)
        self._committed()

    def begin_snapshot(self, snapshot_id: OffsetAndEpoch) -> SnapshotReplay:
        return self._loader.begin_snapshot(snapshot_id)

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


class ActiveBrokersWatch(MetadataPublisher):
    """Calls back once, when all of these brokers are active."""

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
