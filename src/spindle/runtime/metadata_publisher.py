"""Brings the committed metadata to the broker: images in order, each followed by its reactions.

`image` is what handlers see. It moves on only when the replicas of a delta are in place, so a topic
that a client finds in metadata is one that this broker serves.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence

from spindle.common.ids import OffsetAndEpoch
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.metadata.loader import MetadataLoader, Publication
from spindle.raft.listener import CommittedBatch, LeaderAndEpoch

log = logging.getLogger(__name__)

Reaction = Callable[[Publication], Awaitable[None]]


class MetadataPublisher:
    """A listener of the quorum that applies publications one after another.

    Attributes:
        image: the newest image whose reactions are complete.
        newest: the newest committed image.
        leader: leader and epoch of the quorum as far as known.
    """

    def __init__(self, react: Reaction, on_fatal: Callable[[str], None]) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.newest: MetadataImage = EMPTY_IMAGE
        self.leader = LeaderAndEpoch()
        self._loader = MetadataLoader()
        self._react = react
        self._on_fatal = on_fatal
        self._queue: asyncio.Queue[Publication] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None
        self._watchers: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []
        self._observers: list[Callable[[], None]] = []

    @property
    def applied_offset(self) -> int:
        """Last offset of the metadata log whose reactions are complete."""
        return self.image.provenance.last_offset

    def start(self) -> None:
        """Begin to apply. What was committed before waits in the queue."""
        self._task = asyncio.create_task(self._run(), name="metadata publisher")

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def observe(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever `image` has moved."""
        self._observers.append(observer)

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """True as soon as the image fulfils the predicate, False when the time is over."""
        if predicate(self.image):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append((predicate, future))
        try:
            await asyncio.wait_for(future, timeout_s)
        except TimeoutError:
            return False
        finally:
            self._watchers = [w for w in self._watchers if w[1] is not future]
        return True

    # -- the quorum's listener

    def on_commit(self, batches: Sequence[CommittedBatch]) -> None:
        for publication in self._loader.load_batches(batches):
            self._enqueue(publication)

    def on_snapshot(self, snapshot_id: OffsetAndEpoch, batches: Iterable[CommittedBatch]) -> None:
        self._enqueue(self._loader.load_snapshot(snapshot_id, batches))

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader

    def _enqueue(self, publication: Publication) -> None:
        self.newest = publication.image
        self._queue.put_nowait(publication)

    async def _run(self) -> None:
        while True:
            publication = await self._queue.get()
            try:
                await self._react(publication)
            except Exception:  # a broker that cannot follow its metadata must not serve
                log.exception("metadata up to %s", publication.image.provenance)
                self._on_fatal("the metadata could not be applied")
                return
            self.image = publication.image
            self._announce()

    def _announce(self) -> None:
        for observer in self._observers:
            observer()
        for predicate, future in self._watchers:
            if not future.done() and predicate(self.image):
                future.set_result(None)
