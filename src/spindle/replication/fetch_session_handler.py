"""The fetcher's half of an incremental fetch session (KIP-227), by topic id (KIP-516).

The leader remembers what was asked of it, so a request names only the partitions that changed since
the one before. Work per request goes with the changes, not with the partitions followed.
"""

from typing import Final, NamedTuple

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicIdPartition
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.replication.fetch_session import INITIAL_EPOCH, INVALID_SESSION_ID

_MAX_EPOCH: Final = 2**31 - 1

Position = FetchRequest.FetchTopic.FetchPartition


class NextFetch(NamedTuple):
    """The content of the next request of a session."""

    session_id: int
    session_epoch: int
    wanted: dict[TopicIdPartition, Position]
    forgotten: list[TopicIdPartition]


class FetchSessionHandler:
    """The partitions that are fetched from one leader, and which of them its session knows."""

    __slots__ = ("_changed", "_epoch", "_forgotten", "_known", "_lost", "_session_id", "_wanted")

    def __init__(self) -> None:
        self._session_id = INVALID_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._wanted: dict[TopicIdPartition, Position] = {}
        self._changed: dict[TopicIdPartition, None] = {}
        self._forgotten: dict[TopicIdPartition, None] = {}
        self._known: dict[TopicIdPartition, None] = {}
        self._lost: dict[TopicIdPartition, None] = {}

    def __len__(self) -> int:
        """Return the number of partitions wanted."""
        return len(self._wanted)

    def want(self, key: TopicIdPartition, position: Position) -> None:
        """Fetch the partition from here on; replaces an earlier position."""
        self._wanted[key] = position
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def forget(self, key: TopicIdPartition) -> None:
        """Stop fetching the partition."""
        self._wanted.pop(key, None)
        self._changed.pop(key, None)
        if key in self._known:
            self._forgotten[key] = None

    def mark_response_dropped(self, key: TopicIdPartition) -> None:
        """Ask for the partition again: its response was discarded, and incremental sessions do not
        resend.

        If the partition is wanted again, begin a new session. In the old one the leader would wait
        for the next change of the high watermark before it sends the present one.
        """
        self._lost[key] = None

    def next_fetch(self) -> NextFetch:
        """Return the next request; call `on_response` or `on_failure` before the next one."""
        if self._lost:
            if any(key in self._wanted for key in self._lost):
                self._begin_session()
            self._lost.clear()
        if self._epoch == INITIAL_EPOCH:
            wanted, forgotten = dict(self._wanted), []
            self._known = dict.fromkeys(wanted)
        else:
            wanted = {key: self._wanted[key] for key in self._changed}
            forgotten = list(self._forgotten)
            for key in forgotten:
                del self._known[key]
            self._known.update(self._changed)
        self._changed.clear()
        self._forgotten.clear()
        return NextFetch(self._session_id, self._epoch, wanted, forgotten)

    def on_response(self, response: FetchResponse) -> bool:
        """Apply a response; if it does not fit, begin a new session and return False."""
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = INVALID_SESSION_ID
            self.on_failure()
            return False
        answered = [
            TopicIdPartition(topic.topic_id, data.partition_index)
            for topic in response.responses
            for data in topic.partitions
        ]
        # With its quota used up a leader answers with nothing but the time to wait (KIP-219).
        is_throttled = response.throttle_time_ms > 0 and not answered
        is_whole = self._epoch != INITIAL_EPOCH or len(answered) == len(self._known)
        if not (is_whole or is_throttled) or not self._known.keys() >= set(answered):
            self.on_failure()
            return False
        self._session_id = response.session_id
        if response.session_id == INVALID_SESSION_ID:
            self._begin_session()
        else:
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return True

    def on_failure(self) -> None:
        """Begin a new session: it is unknown what the leader knows.

        The next request names everything, and the id of the old session, which the leader closes.
        """
        self._begin_session()

    def _begin_session(self) -> None:
        self._epoch = INITIAL_EPOCH
        self._changed.clear()
        self._forgotten.clear()
        self._known.clear()
