"""Warnings about clients that ask for a feature which this broker does not have.

The error code that such a client gets may point to another cause, so the broker's log names the
client and the feature. A client that tries again and again does not fill the log.
"""

import logging
from collections.abc import Callable
from typing import Final

from spindle.common.ids import TRANSACTIONS_TOPIC
from spindle.common.log_text import quoted
from spindle.serving.context import RequestContext

log = logging.getLogger(__name__)

_INTERVAL_MS: Final = 10 * 60 * 1000
_MAX_ENTRIES: Final = 1000


class RefusalLog:
    """Writes one warning in 10 minutes per client and cause; remembers the last 1,000 of them.

    A client is a client id at an address. `steady_ms` is a monotonic clock in milliseconds.
    """

    def __init__(self, steady_ms: Callable[[], int]) -> None:
        self._steady_ms = steady_ms
        self._warned_ms: dict[tuple[str, str, str], int] = {}

    def warn(self, context: RequestContext, cause: str, detail: str) -> None:
        """Warn that a request of this client is refused.

        Args:
            context: The request.
            cause: The feature that is missing, in the same words every time.
            detail: the refused request, and what the client can do instead.
        """
        now_ms = self._steady_ms()
        client = (context.client_id, context.client_address, cause)
        warned_ms = self._warned_ms.get(client)
        if warned_ms is not None and now_ms - warned_ms < _INTERVAL_MS:
            return
        self._warned_ms.pop(client, None)
        self._warned_ms[client] = now_ms
        if len(self._warned_ms) > _MAX_ENTRIES:
            # The first entry is the oldest, because a new warning moves its client to the end.
            del self._warned_ms[next(iter(self._warned_ms))]
        log.warning(
            "client %s at %s (%s %s): %s: %s",
            quoted(context.client_id),
            context.client_address,
            context.client_software_name,
            context.client_software_version,
            cause,
            detail,
        )


def warn_of_no_transactions_topic(
    refusals: RefusalLog, context: RequestContext, transactional_id: str
) -> None:
    """Warn that a transactional producer has no coordinator to ask, so that it waits for nothing.

    Its topic cannot be created if it wants more replicas than there are brokers.
    """
    refusals.warn(
        context,
        "transactions have no coordinator",
        f"{TRANSACTIONS_TOPIC} cannot be created, so init_transactions of transactional.id "
        f"{quoted(transactional_id)} times out; start more brokers, or lower "
        "transaction.state.log.replication.factor",
    )
