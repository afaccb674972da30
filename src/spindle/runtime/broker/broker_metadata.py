"""Applies the committed metadata to the broker: images in order, each followed by its reactions.

Handlers see `image`, the newest committed one, at once; the reactions then update the replicas.
While `is_behind`, a handler that misses a replica waits with `catch_up`, so that a topic which a
client finds in metadata is one that this broker serves. Before `start` the log is only read.
Everything up to then becomes one delta, so that the broker reacts to no past state.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from spindle.common.uuids import Uuid
from spindle.metadata.image import EMPTY_IMAGE, MetadataImage
from spindle.protocol.sentinels import NO_BROKER_EPOCH
from spindle.publication.loader import Publication, initial_publication
from spindle.publication.publishers import MetadataPublisher
from spindle.raft.ready import LeaderAndEpoch
from spindle.runtime import background

log = logging.getLogger(__name__)

Reaction = Callable[[Publication], Awaitable[None]]


class BrokerMetadata(MetadataPublisher):
    """Applies publications one after another.

    Attributes:
        image: the newest committed image, once the broker has caught up for the first time.
        newest: the newest committed image, also before that.
        applied: the newest image whose reactions are complete.
        leader: leader and epoch of the quorum, as last heard.
        stored_end_offset: end offset of the metadata that was on the disk when the node started;
            0 if there was none, None while it is unknown.
    """

    def __init__(self, react: Reaction, on_fatal: Callable[[str], None]) -> None:
        self.image: MetadataImage = EMPTY_IMAGE
        self.newest: MetadataImage = EMPTY_IMAGE
        self.applied: MetadataImage = EMPTY_IMAGE
        self.leader = LeaderAndEpoch()
        self.stored_end_offset: int | None = None
        self._stored: MetadataImage | None = None
        self._had_stopped_in_epoch = False
        self._committed_offset = -1
        self._react = react
        self._on_fatal = on_fatal
        self._queue: asyncio.Queue[Publication] = asyncio.Queue()
        self._is_started = False
        self._is_reacting = False
        self._task: asyncio.Task[None] | None = None
        self._watchers: list[tuple[Callable[[MetadataImage], bool], asyncio.Future[None]]] = []
        self._observers: list[Callable[[], None]] = []
        self._once: dict[Callable[[], None], None] = {}

    @property
    def is_behind(self) -> bool:
        """Return True while reactions to `image` are running."""
        return self.applied is not self.image

    @property
    def offset(self) -> int:
        """Return the last applied offset; before `start`, the last offset that was read."""
        if not self._is_started or (self._queue.empty() and not self._is_reacting):
            return max(self._committed_offset, self.applied.provenance.last_offset)
        return self.applied.provenance.last_offset

    def stopped(self, broker_id: int, broker_epoch: int) -> None:
        """Compare the metadata that was on the disk with the end of the last run.

        Args:
            broker_epoch: in the marks of a clean stop; -1 if the last run did not end cleanly. Then
                the node may have had newer metadata than its disk has now.
        """
        known = None if self._stored is None else self._stored.cluster.brokers.get(broker_id)
        self._had_stopped_in_epoch = (
            broker_epoch != NO_BROKER_EPOCH and known is not None and known.epoch == broker_epoch
        )

    def is_created_since_stop(self, topic_id: Uuid) -> bool:
        """See `MetadataView`. False once an image has been applied."""
        return (
            self._had_stopped_in_epoch
            and self.applied is EMPTY_IMAGE
            and self._stored is not None
            and topic_id not in self._stored.topics.by_id
        )

    def start(self) -> None:
        """Begin to react, first to everything committed so far as one delta."""
        self._is_started = True
        self.image = self.newest
        self._queue.put_nowait(initial_publication(self.newest))
        self._task = background.run_once(self._run(), "metadata reactions")

    async def stop(self) -> None:
        """Stop reacting."""
        await background.end(self._task)

    def observe(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever a reaction is complete."""
        self._observers.append(observer)

    def when_applied(self, callback: Callable[[], None]) -> None:
        """Call `callback` once, when the next reaction is complete, unless `forget` comes first."""
        self._once[callback] = None

    def forget(self, callback: Callable[[], None]) -> None:
        """Do not call `callback` any more."""
        self._once.pop(callback, None)

    async def catch_up(self, timeout_s: float) -> bool:
        """Wait until everything committed so far is applied; return False after the timeout."""
        target = self.newest.provenance.last_offset
        return await self.wait_for(lambda i: i.provenance.last_offset >= target, timeout_s)

    async def wait_for(self, predicate: Callable[[MetadataImage], bool], timeout_s: float) -> bool:
        """Wait until the applied image fulfils the predicate; return False after the timeout."""
        if predicate(self.applied):
            return True
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watchers.append((predicate, future))
        try:
            async with asyncio.timeout(timeout_s):
                await future
        except TimeoutError:
            return False
        finally:
            self._watchers = [w for w in self._watchers if w[1] is not future]
        return True

    # -- consumer of the image publisher

    def on_publication(self, publication: Publication) -> None:
        self.newest = publication.image
        end_offset = publication.image.provenance.last_offset + 1
        # A node without metadata on its disk fetches older states than that of its stop, too.
        if self._stored is None and self.stored_end_offset and end_offset >= self.stored_end_offset:
            self._stored = publication.image
        if self._is_started:
            self.image = publication.image
            self._queue.put_nowait(publication)

    def on_committed(self, last_offset: int) -> None:
        self._committed_offset = last_offset
        if not self._is_started:
            self._announce()

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        self.leader = leader

    async def _run(self) -> None:
        while True:
            publication = await self._queue.get()
            self._is_reacting = True
            try:
                await self._react(publication)
            except Exception:  # a broker that cannot follow its metadata must not serve
                log.exception("applying the metadata up to %s failed", publication.image.provenance)
                self._on_fatal("the metadata could not be applied")
                return
            self.applied = publication.image
            self._is_reacting = False
            self._announce()

    def _announce(self) -> None:
        for observer in self._observers:
            observer()
        once, self._once = self._once, {}
        for callback in once:
            callback()
        for predicate, future in self._watchers:
            if not future.done() and predicate(self.applied):
                future.set_result(None)
