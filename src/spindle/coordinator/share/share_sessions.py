"""Share sessions: the partitions that a member fetches from one broker (KIP-932).

A member opens a session with epoch 0, sends the next epoch with each request, and closes it with
epoch -1. A request of the session names only the partitions that change.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.ids import TopicIdPartition

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


class SessionKey(NamedTuple):
    """The owner of a session."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions of one member, the one to serve next first.

    Attributes:
        epoch: the epoch of the next request.
    """

    __slots__ = ("epoch", "key", "partitions")

    def __init__(self, key: SessionKey) -> None:
        self.key = key
        self.epoch = 1
        self.partitions: dict[TopicIdPartition, None] = {}

    def update(
        self, added: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]
    ) -> None:
        """Add and remove partitions."""
        for partition in added:
            self.partitions.setdefault(partition)
        for partition in forgotten:
            self.partitions.pop(partition, None)

    def serve_later(self, served: Iterable[TopicIdPartition]) -> None:
        """Move partitions behind the others, so that each gets its turn."""
        for partition in served:
            if partition in self.partitions:
                del self.partitions[partition]
                self.partitions[partition] = None


class ShareSessions:
    """The sessions of a broker, at most `max_sessions` (`group.share.max.share.sessions`)."""

    def __init__(self, max_sessions: int) -> None:
        self._max_sessions = max_sessions
        self._by_key: dict[SessionKey, ShareSession] = {}

    def __len__(self) -> int:
        return len(self._by_key)

    @property
    def partition_count(self) -> int:
        """Number of partitions in all sessions."""
        return sum(len(session.partitions) for session in self._by_key.values())

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._by_key.get(key)

    def open(self, key: SessionKey) -> ShareSession:
        """Open a session, in place of an earlier one of the member.

        Raises:
            ApiError: SHARE_SESSION_LIMIT_REACHED.
        """
        self._by_key.pop(key, None)
        if len(self._by_key) >= self._max_sessions:
            raise ApiError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED,
                f"this broker has {self._max_sessions} share sessions, the limit "
                "group.share.max.share.sessions",
            )
        session = self._by_key[key] = ShareSession(key)
        return session

    def continue_with(self, key: SessionKey, epoch: int) -> ShareSession:
        """Return the session of a request with this epoch; the next request needs the next epoch.

        Raises:
            ApiError: SHARE_SESSION_NOT_FOUND or INVALID_SHARE_SESSION_EPOCH.
        """
        session = self._find(key)
        if session.epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_SHARE_SESSION_EPOCH,
                f"the share session of member {key.member_id} expects epoch {session.epoch}, "
                f"the request has {epoch}",
            )
        session.epoch = 1 if epoch == _MAX_EPOCH else epoch + 1
        return session

    def close(self, key: SessionKey) -> ShareSession:
        """Remove and return the session of a member.

        Raises:
            ApiError: SHARE_SESSION_NOT_FOUND.
        """
        session = self._find(key)
        del self._by_key[key]
        return session

    def clear(self) -> list[ShareSession]:
        """Remove and return all sessions."""
        sessions = list(self._by_key.values())
        self._by_key.clear()
        return sessions

    def _find(self, key: SessionKey) -> ShareSession:
        session = self._by_key.get(key)
        if session is None:
            raise ApiError(
                ErrorCode.SHARE_SESSION_NOT_FOUND,
                f"member {key.member_id} of group {key.group_id} has no share session here",
            )
        return session
