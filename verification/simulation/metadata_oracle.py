"""The committed metadata, in one place: every node must come to the same.

Invariants: one leader per epoch; a leader has everything that was committed before; the same batch
at the same offset everywhere; the same image at the same offset, by replay or from a snapshot.
"""

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.snapshot import snapshot_records
from spindle.metadata_log.committed import CommittedBatch
from spindle.protocol.message import Message
from spindle.protocol.metadata_frame import frame
from spindle.publication.loader import Publication
from spindle.publication.publishers import MetadataPublisher
from verification.simulation.verdict import Verdict

ImageListener = Callable[[MetadataImage], None]


class MetadataOracle:
    """The committed log and the images along it.

    Attributes:
        newest: the newest image that any node has come to.
        end_offset: everything below was committed.
        listeners: get every image that is newer than all before.
        record_listeners: are given all committed records once and in order, as long as none is
            missed.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.newest: MetadataImage = EMPTY_IMAGE
        self.end_offset = 0
        self.listeners: list[ImageListener] = []
        self.record_listeners: list[Callable[[Sequence[Message]], None]] = []
        self._has_missed = False
        self._verdict = verdict
        self._leaders: dict[int, str] = {}
        self._batches: dict[int, tuple[int, int, bytes]] = {}
        self._images: dict[int, bytes] = {}

    def leads(self, host: str, epoch: int, log_end_offset: int) -> None:
        """Check a node that has become leader of the quorum."""
        leader = self._leaders.setdefault(epoch, host)
        self._verdict.check(leader == host, f"{leader} and {host} both lead quorum epoch {epoch}")
        self._verdict.check(
            log_end_offset >= self.end_offset,
            f"{host} leads quorum epoch {epoch} with a log up to {log_end_offset}, but everything "
            f"below {self.end_offset} was committed",
        )

    def committed(self, host: str, batches: Sequence[CommittedBatch]) -> None:
        """Check batches that a node hands on as committed."""
        self._follow([batch for batch in batches if batch.base_offset >= self.end_offset])
        for batch in batches:
            what = (batch.last_offset, batch.epoch, _digest(batch.records))
            known = self._batches.setdefault(batch.base_offset, what)
            self._verdict.check(
                known == what,
                f"{host} has another metadata batch at {batch.base_offset} than was committed "
                f"there: (last offset, epoch, digest) {what} in place of {known}",
            )
            self.end_offset = max(self.end_offset, batch.last_offset + 1)

    def _follow(self, new: Sequence[CommittedBatch]) -> None:
        """Give the listeners batches that no node has handed on before, while none is missed."""
        if not new:
            return
        if new[0].base_offset == self.end_offset and not self._has_missed:
            records = [record for batch in new for record in batch.records]
            for listener in self.record_listeners:
                listener(records)
        else:
            self._has_missed = True

    def published(self, host: str, image: MetadataImage) -> None:
        """Check an image that a node has published."""
        offset = image.provenance.last_offset
        digest = _image_digest(image)
        known = self._images.setdefault(offset, digest)
        self._verdict.check(
            known == digest, f"{host} has another image at offset {offset} than others"
        )
        if offset > self.newest.provenance.last_offset:
            self.newest = image
            for listener in self.listeners:
                listener(image)


class MetadataWatcher(MetadataPublisher):
    """Watches one life of one node: takes part as image consumer and as listener."""

    def __init__(self, host: str, oracle: MetadataOracle, verdict: Verdict) -> None:
        self._host = host
        self._oracle = oracle
        self._verdict = verdict
        self._next_offset: int | None = None

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for batch in batches:
            expected = self._next_offset
            self._verdict.check(
                expected is None or batch.base_offset == expected,
                f"{self._host} hands on offset {batch.base_offset} where {expected} was due",
            )
            self._next_offset = batch.last_offset + 1
        self._oracle.committed(self._host, batches)

    def on_snapshot(self, next_offset: int) -> None:
        self._next_offset = next_offset

    def listen(self, publisher: Any) -> None:
        """Get the quorum's deliveries to a node before its publisher does."""
        on_commit, on_snapshot = publisher.on_commit, publisher.on_snapshot

        def committed(batches: Sequence[CommittedBatch]) -> None:
            self.on_commit(batches)
            on_commit(batches)

        def snapshot(snapshot_id: Any, content: Any) -> None:
            self.on_snapshot(snapshot_id.offset)
            on_snapshot(snapshot_id, content)

        publisher.on_commit = committed
        publisher.on_snapshot = snapshot

    def on_publication(self, publication: Publication) -> None:
        self._oracle.published(self._host, publication.image)


def _digest(records: Sequence[Message]) -> bytes:
    digest = blake2b(digest_size=8)
    for record in records:
        digest.update(frame(record, type(record).LAST_VERSION))
    return digest.digest()


def _image_digest(image: MetadataImage) -> bytes:
    """Return a digest of the records of a snapshot of the image, in any order."""
    frames = sorted(frame(r, type(r).LAST_VERSION) for r in snapshot_records(image))
    return blake2b(b"".join(frames), digest_size=8).digest()
