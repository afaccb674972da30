"""Incremental fetch sessions (KIP-227), by topic name or by topic id (KIP-516).

A session remembers the partitions of a fetcher, so that a request names only what changed and an
answer holds only what is new. The cache is bounded: a fetcher that finds no room is served without
a session, which is always legal.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from spindle.common.errors import ErrorCode
from spindle.common.uuids import Uuid
from spindle.protocol.messages.fetch import FetchRequest

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1
_MAX_PARTITIONS: Final = 500_000


class PartitionKey(NamedTuple):
    """A partition as the fetcher named it: `topic` is "" for one named by id."""

    topic: str
    topic_id: Uuid
    partition: int


class FetchedPartition:
    """What a fetcher wants of a partition, and what it was last told.

    `topic` is the name that a topic id had when it was first resolved, "" before: whoever is being
    served when the topic goes is told about the name, and a new topic of that name is another one.
    """

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "fetcher_log_start_offset",
        "high_watermark",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "topic",
    )

    def __init__(self, wanted: FetchRequest.FetchTopic.FetchPartition) -> None:
        self.high_watermark = -1
        self.log_start_offset = -1
        self.topic = ""
        self.update(wanted)

    def update(self, wanted: FetchRequest.FetchTopic.FetchPartition) -> None:
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.partition_max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.fetcher_log_start_offset = wanted.log_start_offset

    def is_news(self, high_watermark: int, log_start_offset: int) -> bool:
        """Whether an answer without data has something to tell."""
        return (high_watermark, log_start_offset) != (self.high_watermark, self.log_start_offset)

    def remember(self, high_watermark: int, log_start_offset: int) -> None:
        """The fetcher is told this."""
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset


class FetchSession:
    """The partitions of one fetcher, in the order in which they are served."""

    __slots__ = ("epoch", "last_used_ms", "partitions", "session_id", "uses_topic_ids")

    def __init__(self, session_id: int, uses_topic_ids: bool, now_ms: int) -> None:
        self.session_id = session_id
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.last_used_ms = now_ms
        self.partitions: dict[PartitionKey, FetchedPartition] = {}

    def update(self, request: FetchRequest) -> None:
        for topic in request.forgotten_topics_data:
            for partition in topic.partitions:
                self.partitions.pop(PartitionKey(topic.topic, topic.topic_id, partition), None)
        for key, wanted in wanted_partitions(request):
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = FetchedPartition(wanted)
            else:
                known.update(wanted)

    def move_to_end(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions that were served go last, so that a small answer does not starve others."""
        for key in keys:
            known = self.partitions.pop(key, None)
            if known is not None:
                self.partitions[key] = known


def wanted_partitions(
    request: FetchRequest,
) -> Iterable[tuple[PartitionKey, FetchRequest.FetchTopic.FetchPartition]]:
    for topic in request.topics:
        for wanted in topic.partitions:
            yield PartitionKey(topic.topic, topic.topic_id, wanted.partition), wanted


class SessionError(Exception):
    """The request does not fit the session that it names; the whole answer is this code."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code)
        self.code = code


class FetchContext(NamedTuple):
    """What to serve: all partitions in order; `session` is None for a request without one."""

    partitions: dict[PartitionKey, FetchedPartition]
    session: FetchSession | None
    is_incremental: bool

    @property
    def session_id(self) -> int:
        return self.session.session_id if self.session else INVALID_SESSION_ID


class FetchSessionCache:
    """All sessions of a broker, at most `max_sessions`, with at most `max_partitions` in all.

    Args:
        next_id: gives random positive 31-bit numbers.
        min_eviction_ms: a session must have been idle that long to make room for another.
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
        self._sessions: dict[int, FetchSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, api_version: int, now_ms: int) -> FetchContext:
        """The partitions that a request asks for, with or without a session.

        Raises:
            SessionError: unknown session, wrong epoch, or a change between names and ids.
        """
        epoch = request.session_epoch
        uses_topic_ids = api_version >= 13
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            return self._open_full(request, uses_topic_ids, now_ms)
        session = self._sessions.get(request.session_id)
        if session is None:
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise SessionError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            self.forget(session)
            raise SessionError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        count_before = len(session.partitions)
        session.update(request)
        self._partition_count += len(session.partitions) - count_before
        if self._partition_count > self._max_partitions and len(session.partitions) > count_before:
            # The fetcher starts anew with a full request, and is served without a session.
            self.forget(session)
            raise SessionError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.last_used_ms = now_ms
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        # Most recently used last: the first one is the one to evict.
        self._sessions[session.session_id] = self._sessions.pop(session.session_id)
        return FetchContext(session.partitions, session, is_incremental=True)

    def forget(self, session: FetchSession) -> None:
        """Close a session, for example one whose fetcher was not told of it."""
        if self._sessions.pop(session.session_id, None) is not None:
            self._partition_count -= len(session.partitions)

    def _open_full(self, request: FetchRequest, uses_topic_ids: bool, now_ms: int) -> FetchContext:
        if request.session_id != INVALID_SESSION_ID:
            known = self._sessions.get(request.session_id)
            if known is not None:
                self.forget(known)
        partitions = {key: FetchedPartition(wanted) for key, wanted in wanted_partitions(request)}
        if request.session_epoch == FINAL_EPOCH or not self._has_room(len(partitions), now_ms):
            return FetchContext(partitions, None, is_incremental=False)
        session_id = self._next_id()
        while session_id in self._sessions or session_id == INVALID_SESSION_ID:
            session_id = self._next_id()
        session = FetchSession(session_id, uses_topic_ids, now_ms)
        session.partitions = partitions
        self._sessions[session_id] = session
        self._partition_count += len(partitions)
        return FetchContext(partitions, session, is_incremental=False)

    def _has_room(self, partition_count: int, now_ms: int) -> bool:
        """Whether there is room for one more session, if need be in place of idle ones."""
        if not self._max_sessions or partition_count > self._max_partitions:
            return False
        while (
            len(self._sessions) >= self._max_sessions
            or self._partition_count + partition_count > self._max_partitions
        ):
            oldest = next(iter(self._sessions.values()))
            if now_ms - oldest.last_used_ms < self._min_eviction_ms:
                return False
            self.forget(oldest)
        return True
