"""When a node makes a snapshot of its image: after enough bytes of log or enough time (KIP-630)."""

from collections.abc import Iterator
from dataclasses import dataclass

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.image import MetadataImage
from spindle.metadata_log.encoding import encode_image
from spindle.publication.loader import Publication


@dataclass(frozen=True, slots=True)
class SnapshotWork:
    """A snapshot to write. `last_append_time_ms` goes into its header."""

    snapshot_id: OffsetAndEpoch
    last_append_time_ms: int
    image: MetadataImage

    def values(self) -> Iterator[bytes]:
        """Return the framed records in order, on any thread: the image is immutable."""
        return encode_image(self.image)


class SnapshotGenerator:
    """Decides when a snapshot is due, by bytes and by time. A limit of 0 disables the rule."""

    def __init__(self, *, max_bytes: int, max_interval_ms: int, now_ms: int) -> None:
        self._max_bytes = max_bytes
        self._max_interval_ms = max_interval_ms
        self._size_bytes = 0
        self._since_ms = now_ms

    def on_publication(self, publication: Publication, now_ms: int) -> SnapshotWork | None:
        """Return the snapshot to write, if a limit is exceeded and the image ends with a batch."""
        if publication.is_snapshot:
            self._reset(now_ms)
            return None
        self._size_bytes += publication.size_bytes
        provenance = publication.image.provenance
        if not provenance.is_batch_aligned or not self._is_due(now_ms):
            return None
        self._reset(now_ms)
        return SnapshotWork(
            OffsetAndEpoch(provenance.last_offset + 1, provenance.last_epoch),
            provenance.last_append_time_ms,
            publication.image,
        )

    def _is_due(self, now_ms: int) -> bool:
        if 0 < self._max_bytes <= self._size_bytes:
            return True
        return 0 < self._max_interval_ms <= now_ms - self._since_ms

    def _reset(self, now_ms: int) -> None:
        self._size_bytes = 0
        self._since_ms = now_ms
