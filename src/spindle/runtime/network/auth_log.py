"""The authentication log of a listener: user, address, mechanism and reason of a failure.

A client can fail as often as it likes, so equal failures are logged once a minute, and at most 100
different ones. The counters count all. No text contains a password or token.
"""

import logging
from collections.abc import Callable
from typing import Final

from spindle.common.text import quoted
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.runtime.network.sasl_state import SaslSession

log = logging.getLogger(__name__)

_WINDOW_S: Final = 60.0
_MAX_LINES: Final = 100
_MAX_REASON: Final = 1000


class LoginLog:
    """Writes and counts the authentications of one listener. `steady_s` is a monotonic clock."""

    def __init__(
        self, listener: str, metrics: RequestMetrics, steady_s: Callable[[], float]
    ) -> None:
        self._listener = listener
        self._metrics = metrics
        self._steady_s = steady_s
        self._began_s = 0.0
        self._written: set[tuple[str, str, str]] = set()
        self._left_out = 0

    def succeeded(self, address: str, session: SaslSession, *, is_again: bool) -> None:
        """Log and count an authentication or re-authentication."""
        if is_again:
            self._metrics.successful_reauthentications += 1
        else:
            self._metrics.successful_authentications += 1
        log.debug(
            "%s %s with %s on listener %s from %s",
            quoted(session.login.user),
            "authenticated again" if is_again else "authenticated",
            session.mechanism,
            self._listener,
            address,
        )

    def failed(
        self, address: str, reason: str, *, user: str = "", mechanism: str = "", is_again: bool
    ) -> None:
        """Log and count a failure; `user` is the name that the client sent, "" if there is none."""
        if is_again:
            self._metrics.failed_reauthentications += 1
        else:
            self._metrics.failed_authentications += 1
        # A client may give half a megabyte as its name.
        shown, reason = quoted(user) if user else "a client", reason[:_MAX_REASON]
        if not self._may_write((address, shown, reason)):
            return
        log.warning(
            "authentication of %s%s on listener %s from %s failed: %s",
            shown,
            f" with {mechanism}" if mechanism else "",
            self._listener,
            address,
            reason,
        )

    def _may_write(self, failure: tuple[str, str, str]) -> bool:
        now_s = self._steady_s()
        if now_s - self._began_s >= _WINDOW_S:
            if self._left_out:
                log.warning(
                    "%d more authentications failed on listener %s, most for the same reasons",
                    self._left_out,
                    self._listener,
                )
            self._began_s = now_s
            self._written.clear()
            self._left_out = 0
        if failure in self._written or len(self._written) >= _MAX_LINES:
            self._left_out += 1
            return False
        self._written.add(failure)
        return True
