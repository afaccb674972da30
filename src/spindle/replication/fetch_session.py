"""Incremental fetch sessions (KIP-227), by topic name or by topic id (KIP-516).

A session remembers the partitions of a fetcher, so that a request names only what changed and an
answer holds only what is new. It also watches them: partitions to which something has happened
gather in `dirty`, and a fetch looks at no others. The cache is bounded: a fetcher that finds no
room is served without a session, as KIP-227 allows at any time.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple, Protocol

from spindle.common.errors import ErrorCode
from spindle.common.uuids import ZERO_UUID, Uuid
from spindle.protocol import versions
from spindle.protocol.messages.fetch import FetchRequest

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
FULL_LOOK_MS: Final = 5_000
"""A session looks at all its partitions once in this time. So its fetcher also learns changes
without an event, such as a log start that retention moved."""
_MAX_EPOCH: Final = 2**31 - 1
_MAX_PARTITIONS: Final = 500_000
_NO_PARTITIONS: Final = FetchRequest(session_epoch=FINAL_EPOCH)


class PartitionKey(NamedTuple):
    """A partition as the fetcher named it: `topic` is "" for one named by id."""

    topic: str
    topic_id: Uuid
    partition: int


class Watched(Protocol):
    """A partition that can be watched."""

    def watch(self, watcher: "FetchedPartition", *, appends: bool) -> None: ...
    def unwatch(self, watcher: "FetchedPartition") -> None: ...


class LentPartition(NamedTuple):
    """A partition of a session that a lane serves; the offsets are as last sent to the fetcher.

    Attributes:
        topic: the topic's name or id, in bytes.
    """

    topic: bytes
    partition: int
    current_leader_epoch: int
    fetch_offset: int
    max_bytes: int
    high_watermark: int
    log_start_offset: int


class LentSession(NamedTuple):
    """A session that a lane serves; `partitions` are in the order in which they are served."""

    session_id: int
    epoch: int
    uses_topic_ids: bool
    partitions: list[LentPartition]


class FetchedPartition:
    """A partition as a fetcher wants it, and the last answer about it; watches the partition.

    Attributes:
        topic: the name that the topic id had when it was first resolved; "" before. It stays after
            the topic is deleted, so that the fetcher learns the deletion.
        is_progress_new: a follower has named the partition, and the fetch offset in that request
            has not been counted as its progress yet. The leader may learn the partition only after
            the request.
        is_checked: permission and leadership were verified; only offsets may have changed since.
        high_watermark, log_start_offset: as last sent to the fetcher; -1 before.
    """

    __slots__ = (
        "_watched",
        "current_leader_epoch",
        "fetch_offset",
        "fetcher_log_start_offset",
        "high_watermark",
        "is_checked",
        "is_progress_new",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "session",
        "topic",
    )

    def __init__(
        self,
        session: "FetchSession",
        key: PartitionKey,
        wanted: FetchRequest.FetchTopic.FetchPartition,
    ) -> None:
        self.key = key
        self.high_watermark = -1
        self.log_start_offset = -1
        self.topic = ""
        self.session = session
        self._watched: Watched | None = None
        self.update(wanted)

    def update(self, wanted: FetchRequest.FetchTopic.FetchPartition) -> None:
        """Take what a request says of the partition."""
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.fetcher_log_start_offset = wanted.log_start_offset
        self.is_progress_new = True
        self.is_checked = False

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return True if an answer without records has something to report."""
        return (high_watermark, log_start_offset) != (self.high_watermark, self.log_start_offset)

    def remember(self, high_watermark: int, log_start_offset: int) -> None:
        """Record what the response contains."""
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset

    def take_back(self, lent: LentPartition) -> None:
        """Store the state after requests that a lane has served."""
        self.current_leader_epoch = lent.current_leader_epoch
        self.fetch_offset = lent.fetch_offset
        self.max_bytes = lent.max_bytes
        self.is_checked = False
        self.remember(lent.high_watermark, lent.log_start_offset)

    # -- watching

    def attach(self, partition: Watched | None) -> None:
        """Watch this partition instead of the present one; None to watch nothing."""
        if self.session.is_closed:
            partition = None
        if partition is not self._watched:
            if self._watched is not None:
                self._watched.unwatch(self)
            self._watched = partition
            self.is_checked = False
            if partition is not None:
                partition.watch(self, appends=self.session.is_replica)

    def log_moved(self) -> None:
        """Handle an append or a new log start; only followers are woken."""
        self.session.mark_changed(self, must_wake=True)

    def committed(self) -> None:
        """Handle a new high watermark.

        Wake a consumer. A follower learns it with the next records or after its `max_wait_ms`,
        unless consumers read from followers.
        """
        session = self.session
        session.mark_changed(self, must_wake=not session.is_replica or session.serves_consumers)

    def changed(self) -> None:
        """Handle a new leadership, or that the partition can no longer be served."""
        self.is_checked = False
        self.session.mark_changed(self, must_wake=True)


class FetchSession:
    """The partitions of one fetcher, in the order in which they were named.

    Attributes:
        dirty: partitions to look at, in the order in which they are to be served.
        full_look_ms: when all partitions were last looked at.
        is_lent: a lane serves the session; what is stored here is out of date.
        is_outdated: the next request is refused, so that the fetcher begins a new session.
        on_dirty: wakes the fetch that waits; None while none does.
        last_used_ms: when the last request came.
        serves_consumers: consumers read from this follower and wait for its high watermark
            (KIP-392).
    """

    __slots__ = (
        "dirty",
        "epoch",
        "full_look_ms",
        "is_closed",
        "is_lent",
        "is_outdated",
        "is_replica",
        "last_used_ms",
        "on_dirty",
        "partitions",
        "serves_consumers",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(
        self, session_id: int, uses_topic_ids: bool, now_ms: int, *, is_replica: bool = False
    ) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.is_replica = is_replica
        self.serves_consumers = False
        self.is_closed = False
        self.is_lent = False
        self.is_outdated = False
        self.epoch = 1
        self.last_used_ms = self.full_look_ms = now_ms
        self.partitions: dict[PartitionKey, FetchedPartition] = {}
        self.dirty: dict[PartitionKey, FetchedPartition] = {}
        self.on_dirty: Callable[[], None] | None = None

    def update(self, request: FetchRequest) -> None:
        """Take what a request adds, changes and forgets."""
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                key = PartitionKey(topic.topic, topic.topic_id, partition)
                forgotten = self.partitions.pop(key, None)
                if forgotten is not None:
                    forgotten.attach(None)
                    self.dirty.pop(key, None)
        for key, wanted in wanted_partitions(request):
            known = self.partitions.get(key)
            if known is None:
                known = self.partitions[key] = FetchedPartition(self, key, wanted)
            else:
                known.update(wanted)
            self.dirty[key] = known

    def mark_changed(self, partition: FetchedPartition, *, must_wake: bool) -> None:
        """Mark the partition for the next check; with `must_wake`, check at once."""
        self.dirty[partition.key] = partition
        if must_wake and self.on_dirty is not None:
            self.on_dirty()

    def take_dirty(self) -> Iterable[FetchedPartition]:
        """Return the partitions to look at, which are clean from now on."""
        taken, self.dirty = self.dirty, {}
        return taken.values()

    def mark_all_changed(self, now_ms: int) -> None:
        """Have every partition looked at; those that are dirty already keep their turn."""
        self.full_look_ms = now_ms
        self.dirty.update(self.partitions)

    def lend(self) -> LentSession:
        """Let a lane serve the session; stop watching."""
        self.is_lent = True
        order = {**self.dirty, **self.partitions}
        for partition in order.values():
            partition.attach(None)
        return LentSession(
            self.session_id,
            self.epoch,
            self.uses_topic_ids,
            [
                LentPartition(
                    key.topic_id if self.uses_topic_ids else key.topic.encode(),
                    key.partition,
                    p.current_leader_epoch,
                    p.fetch_offset,
                    p.max_bytes,
                    p.high_watermark,
                    p.log_start_offset,
                )
                for key, p in order.items()
            ],
        )

    def take_back(self, lent: LentSession, now_ms: int) -> None:
        """Serve the session again, from the state that it has now."""
        self.is_lent = False
        self.epoch = lent.epoch
        self.last_used_ms = self.full_look_ms = now_ms
        self.dirty = {}
        for part in lent.partitions:
            if self.uses_topic_ids:
                key = PartitionKey("", part.topic, part.partition)
            else:
                key = PartitionKey(part.topic.decode(), ZERO_UUID, part.partition)
            partition = self.partitions[key]
            partition.take_back(part)
            self.dirty[key] = partition

    def close(self) -> None:
        """Stop watching."""
        self.is_closed = True
        for partition in self.partitions.values():
            partition.attach(None)


def wanted_partitions(
    request: FetchRequest,
) -> Iterable[tuple[PartitionKey, FetchRequest.FetchTopic.FetchPartition]]:
    """Return the partitions that a request names, in its order."""
    for topic in request.topics:
        for wanted in topic.partitions:
            yield PartitionKey(topic.topic, topic.topic_id, wanted.partition), wanted


class SessionError(Exception):
    """A request that does not fit the session it names; the whole answer is this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class FetchContext(NamedTuple):
    """The session to serve. A request without one gets a session that ends with its answer."""

    session: FetchSession
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.session_id

    @property
    def is_remembered(self) -> bool:
        """Return True if the session continues after this request."""
        return self.session.session_id != INVALID_SESSION_ID

    @property
    def partitions(self) -> dict[PartitionKey, FetchedPartition]:
        return self.session.partitions


class FetchSessionCache:
    """All sessions of a broker, at most `max_sessions`, with at most `max_partitions` in all.

    A follower's session may replace a consumer's at any time.

    Args:
        next_id: gives random positive 31-bit numbers.
        min_eviction_ms: how long a session must have been idle before another may replace it.
    """

    def __init__(
        self,
        max_sessions: int,
        next_id: Callable[[], int],
        min_eviction_ms: int = 120_000,
        max_partitions: int = _MAX_PARTITIONS,
    ) -> None:
        self._max_sessions = max_sessions
        self._next_id = next_id
        self._min_eviction_ms = min_eviction_ms
        self._max_partitions = max_partitions
        self._partition_count = 0
        self.sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self.sessions)

    def open(
        self, request: FetchRequest, api_version: int, now_ms: int, *, is_replica: bool = False
    ) -> FetchContext:
        """Open or continue a session, as the request asks.

        A session that has no partitions left ends, and the request is served without one.

        Args:
            now_ms: of a steady clock.

        Raises:
            SessionError: the session is unknown or has another epoch, the request names topics by
                id and the session by name or the other way round, or there is no room left.
        """
        epoch = request.session_epoch
        uses_topic_ids = api_version >= versions.FETCH_TOPIC_IDS
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._open_full(request, uses_topic_ids, now_ms, is_replica)
        session = self.sessions.get(request.session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.is_outdated or session.is_lent:
            self.forget(session)
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        count_before = len(session.partitions)
        session.update(request)
        self._partition_count += len(session.partitions) - count_before
        if self._partition_count > self._max_partitions and len(session.partitions) > count_before:
            # The fetcher begins anew with a full request and is served without a session.
            self.forget(session)
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self.forget(session)
            return self._open_full(_NO_PARTITIONS, uses_topic_ids, now_ms, is_replica)
        session.last_used_ms = now_ms
        if now_ms - session.full_look_ms >= FULL_LOOK_MS:
            session.mark_all_changed(now_ms)
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        # The most recently used session stands last, so that the first is evicted.
        self.sessions[session.session_id] = self.sessions.pop(session.session_id)
        return FetchContext(session, is_incremental=True)

    def forget(self, session: FetchSession) -> None:
        """Close a session, such as one whose id never reached its fetcher."""
        if self.sessions.pop(session.session_id, None) is not None:
            self._partition_count -= len(session.partitions)
        session.close()

    def lend(self, session_id: int) -> LentSession | None:
        """Let a lane serve a consumer's session; None if there is none."""
        session = self.sessions.get(session_id)
        if session is None or session.is_replica or session.is_lent or session.on_dirty is not None:
            return None
        return session.lend()

    def take_back(self, lent: LentSession, now_ms: int) -> None:
        """Serve a session again that a lane has served, unless it was closed meanwhile."""
        session = self.sessions.get(lent.session_id)
        if session is not None and session.is_lent:
            session.take_back(lent, now_ms)

    def end_lent(self, session_id: int) -> None:
        """Close the session of a lane's connection that has ended."""
        session = self.sessions.get(session_id)
        if session is not None and session.is_lent:
            self.forget(session)

    def close_replica_sessions(self) -> None:
        """Close followers' sessions so that they send full fetches with all offsets.

        A follower with everything names no partition, so the leader does not learn what
        its log holds after its directory was offline. A fetch that waits is served as ever.
        """
        for session in self.sessions.values():
            session.is_outdated = session.is_replica

    def _open_full(
        self, request: FetchRequest, uses_topic_ids: bool, now_ms: int, is_replica: bool
    ) -> FetchContext:
        if request.session_id != INVALID_SESSION_ID:
            known = self.sessions.get(request.session_id)
            if known is not None:
                self.forget(known)
        session = FetchSession(INVALID_SESSION_ID, uses_topic_ids, now_ms, is_replica=is_replica)
        session.update(request)
        count = len(session.partitions)
        if request.session_epoch != FINAL_EPOCH and self._has_room(count, now_ms, is_replica):
            session_id = self._next_id()
            while session_id in self.sessions or session_id == INVALID_SESSION_ID:
                session_id = self._next_id()
            session.session_id = session_id
            self.sessions[session_id] = session
            self._partition_count += count
        return FetchContext(session, is_incremental=False)

    def _has_room(self, partition_count: int, now_ms: int, is_replica: bool) -> bool:
        """Make room for one more session, by eviction if need be; return False without room."""
        if not self._max_sessions or partition_count > self._max_partitions:
            return False
        while (
            len(self.sessions) >= self._max_sessions
            or self._partition_count + partition_count > self._max_partitions
        ):
            evicted = self._evictable(now_ms, is_replica)
            if evicted is None:
                return False
            self.forget(evicted)
        return True

    def _evictable(self, now_ms: int, for_replica: bool) -> FetchSession | None:
        oldest = next(iter(self.sessions.values()))
        if now_ms - oldest.last_used_ms >= self._min_eviction_ms and not oldest.is_lent:
            return oldest
        if for_replica:
            return next((s for s in self.sessions.values() if not s.is_replica), None)
        return None
