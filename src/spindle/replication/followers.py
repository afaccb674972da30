"""The leader's view of one follower, learned from the follower's fetches."""

from typing import Final

from spindle.protocol.sentinels import NO_OFFSET
from spindle.replication.fetch_session import FetchSession

NEVER_MS: Final = -(2**62)


class FollowerState:
    """A follower's progress in one leader epoch.

    Attributes:
        log_end_offset: the follower has everything before it; -1 before its first fetch.
        log_start_offset: where its log begins; -1 before its first fetch.
        broker_epoch: the broker epoch in its last fetch: None before the first, -1 if the version
            of the request has none.
        last_caught_up_ms: when it last had everything that the leader had.
        must_fetch: its log may have lost records, so it joins no ISR before its next fetch.
    """

    __slots__ = (
        "_fetches",
        "_last_fetch_ms",
        "_offered_end_offset",
        "broker_epoch",
        "last_caught_up_ms",
        "log_end_offset",
        "log_start_offset",
        "must_fetch",
        "replica_id",
    )

    def __init__(self, replica_id: int, now_ms: int, *, is_in_sync: bool) -> None:
        self.replica_id = replica_id
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.broker_epoch: int | None = None
        self.must_fetch = False
        self.last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        self._fetches: FetchSession | None = None
        self._last_fetch_ms = NEVER_MS
        self._offered_end_offset = NO_OFFSET

    def fetched(
        self,
        fetch_offset: int,
        log_start_offset: int,
        broker_epoch: int,
        leader_end_offset: int,
        now_ms: int,
        fetches: FetchSession | None,
    ) -> None:
        """Note a fetch of `fetch_offset` while the leader's log ended at `leader_end_offset`.

        A follower of a busy leader never reaches the log end. If it has now what the leader had at
        its previous fetch, it was caught up at the time of that fetch.
        """
        if fetch_offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
        elif fetch_offset >= self._offered_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._last_fetch_ms)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.broker_epoch = broker_epoch
        self.must_fetch = False
        self._fetches = fetches
        self._last_fetch_ms = now_ms
        self._offered_end_offset = max(self._offered_end_offset, leader_end_offset)

    @property
    def last_fetch_ms(self) -> int:
        """When it last fetched, whether or not the fetch named the partition."""
        session_ms = NEVER_MS if self._fetches is None else self._fetches.last_used_ms
        return max(self._last_fetch_ms, session_ms)

    def leader_appends(self, leader_end_offset: int) -> None:
        """Note that the leader's log, which ended at `leader_end_offset`, grows.

        A follower with everything does not name the partition in the fetches of its session. It
        was caught up until the last of them.
        """
        if self._fetches is not None and self.log_end_offset == leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, self._fetches.last_used_ms)

    def is_caught_up(self, leader_end_offset: int, now_ms: int, max_lag_ms: int) -> bool:
        """Return True if the follower has everything, or had it at most `max_lag_ms` ago."""
        return (
            self.log_end_offset == leader_end_offset
            or now_ms - self.last_caught_up_ms <= max_lag_ms
        )
