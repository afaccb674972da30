"""Broker heartbeats: which brokers are alive, and the next state of each (KIP-631, KIP-841).

Contact times and reported offsets are soft state of the active controller: they are never written,
and a controller that becomes active starts without them.

    FENCED --caught up, wants to serve--> UNFENCED --wants to stop--> CONTROLLED_SHUTDOWN
    any state, nothing led, wants to stop ------------------------> SHUTDOWN_NOW
"""

from collections.abc import Callable
from enum import Enum
from typing import Final

from spindle.metadata.cluster import BrokerRegistration
from spindle.metadata.image import MetadataImage
from spindle.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest
from spindle.protocol.sentinels import NO_OFFSET


class BrokerControlState(Enum):
    """The state of a broker that the controller aims for."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"

    @property
    def is_fenced(self) -> bool:
        return self in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW)


CHECKS_PER_SESSION: Final = 8
"""Minimum number of checks for silent brokers per session timeout, besides those when a session
ends."""
_NO_ACTIVE_BROKER: Final = 1 << 62
_LONG_AGO_MS: Final = -(1 << 62)


class _Beat:
    """Soft state of one broker."""

    __slots__ = ("contact_ms", "epoch", "metadata_offset", "shutdown_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.contact_ms: int | None = None
        self.metadata_offset = NO_OFFSET
        self.shutdown_offset = NO_OFFSET


class BrokerHeartbeatManager:
    """The active controller's record of its brokers' heartbeats."""

    def __init__(self, session_timeout_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._checked_ms = 0
        self._beats: dict[int, _Beat] = {}

    def activate(self, image: MetadataImage, now_ms: int) -> None:
        """Start as the active controller: restart the session timeouts of unfenced brokers."""
        self._beats.clear()
        self._checked_ms = now_ms
        for broker_id, broker in image.cluster.brokers.items():
            beat = self._beats[broker_id] = _Beat(broker.epoch)
            if not broker.is_fenced:
                beat.contact_ms = now_ms

    def register(self, broker_id: int, epoch: int) -> None:
        """Begin the session of an accepted registration; a new epoch has no heartbeat yet."""
        beat = self._beats.get(broker_id)
        if beat is None or beat.epoch != epoch:
            self._beats[broker_id] = _Beat(epoch)

    def remove(self, broker_id: int) -> None:
        self._beats.pop(broker_id, None)

    def contact(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """Record a heartbeat, even if it is refused later."""
        beat = self._beats.get(broker_id)
        if beat is not None and beat.epoch == epoch:
            beat.contact_ms = now_ms

    def report_offset(self, broker_id: int, metadata_offset: int) -> None:
        """Record the offset to which the broker has read the metadata log."""
        beat = self._beats.get(broker_id)
        if beat is not None:
            beat.metadata_offset = metadata_offset

    def begin_shutdown(self, broker_id: int, offset: int) -> None:
        """Record the offset that others must reach before the broker stops; only once."""
        beat = self._beats.get(broker_id)
        if beat is not None and beat.shutdown_offset == NO_OFFSET:
            beat.shutdown_offset = offset

    def has_valid_session(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Return whether a heartbeat of this broker epoch arrived within the session timeout."""
        beat = self._beats.get(broker_id)
        if beat is None or beat.epoch != epoch or beat.contact_ms is None:
            return False
        return beat.contact_ms + self._session_timeout_ms >= now_ms

    def silence_ms(self, now_ms: int) -> dict[int, int]:
        """Return the time in ms since the last heartbeat of each tracked broker, by id."""
        return {
            broker_id: now_ms - beat.contact_ms
            for broker_id, beat in self._beats.items()
            if beat.contact_ms is not None
        }

    def next_expired(self, now_ms: int) -> int | None:
        """Return the broker that has been silent longest beyond its session, if there is one.

        The broker's timeout restarts, so that a broker that cannot be fenced does not block the
        others. Call it `CHECKS_PER_SESSION` times per session, and at `next_expiry_ms`. A longer
        gap means that this process was stopped, with unread heartbeats in its sockets, so that time
        does not count as silence.
        """
        gap_ms = now_ms - self._checked_ms
        self._checked_ms = now_ms
        if gap_ms > self._session_timeout_ms // 2:
            for beat in self._beats.values():
                if beat.contact_ms is not None:
                    beat.contact_ms = min(now_ms, beat.contact_ms + gap_ms)
        stale = [
            (beat.contact_ms, broker_id)
            for broker_id, beat in self._beats.items()
            if beat.contact_ms is not None and beat.contact_ms + self._session_timeout_ms < now_ms
        ]
        if not stale:
            return None
        broker_id = min(stale)[1]
        self._beats[broker_id].contact_ms = now_ms
        return broker_id

    def end_session(self, broker_id: int) -> None:
        """Stop tracking a fenced broker until its next heartbeat."""
        self._beats[broker_id].contact_ms = None

    def next_expiry_ms(self) -> int | None:
        """Return when the next session ends if its broker stays silent; None without a session."""
        contacts = [b.contact_ms for b in self._beats.values() if b.contact_ms is not None]
        return min(contacts) + self._session_timeout_ms + 1 if contacts else None

    def expire(self, broker_id: int) -> None:
        """Make the broker the one that has been silent longest, until its next heartbeat."""
        self._beats[broker_id].contact_ms = _LONG_AGO_MS

    def next_state(
        self,
        image: MetadataImage,
        broker: BrokerRegistration,
        request: BrokerHeartbeatRequest,
        has_leaderships: Callable[[], bool],
    ) -> tuple[BrokerControlState, BrokerControlState]:
        """Return (current state, next state)."""
        if broker.is_fenced:
            return BrokerControlState.FENCED, self._leave_fenced(broker, request)
        beat = self._beats.get(broker.broker_id)
        if beat is not None and beat.shutdown_offset != NO_OFFSET:
            current = BrokerControlState.CONTROLLED_SHUTDOWN
            if has_leaderships() or beat.shutdown_offset > self._lowest_active_offset(image):
                return current, current
            return current, BrokerControlState.SHUTDOWN_NOW
        current = BrokerControlState.UNFENCED
        if request.want_fence:
            stops = request.want_shut_down
            return current, BrokerControlState.SHUTDOWN_NOW if stops else BrokerControlState.FENCED
        if request.want_shut_down:
            led = has_leaderships()
            return (
                current,
                BrokerControlState.CONTROLLED_SHUTDOWN if led else BrokerControlState.SHUTDOWN_NOW,
            )
        return current, current

    def _leave_fenced(
        self, broker: BrokerRegistration, request: BrokerHeartbeatRequest
    ) -> BrokerControlState:
        if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        if not request.want_fence and request.current_metadata_offset >= broker.register_offset:
            return BrokerControlState.UNFENCED
        return BrokerControlState.FENCED

    def _lowest_active_offset(self, image: MetadataImage) -> int:
        return min(
            (
                beat.metadata_offset
                for broker_id, beat in self._beats.items()
                if image.cluster.is_active(broker_id) and beat.shutdown_offset == NO_OFFSET
            ),
            default=_NO_ACTIVE_BROKER,
        )
