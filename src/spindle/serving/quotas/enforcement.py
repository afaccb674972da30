"""Enforces client quotas: measures usage and computes throttle times (KIP-13, KIP-124).

A request that exceeds a quota is answered at once, with the time that the client should wait, and
its connection is not read for that time (KIP-219). The callers of `charge_*` do the muting.
Replication between brokers is never charged.
"""

from collections.abc import Callable
from typing import Any, Final

from spindle.metadata.client_quotas import EMPTY_CLIENT_QUOTAS, ClientQuotasImage
from spindle.serving.context import RequestContext
from spindle.serving.quotas.limits import QuotaLimit, QuotaLimits
from spindle.serving.quotas.rates import WindowedRate, throttle_ms

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
_MAX_RATES: Final = 10_000
_INT_MAX: Final = 2**31 - 1


class _Quota:
    """One kind of quota: its limits, and a rate for each group of clients that share a limit."""

    def __init__(self, key: str, samples: int, window_ms: int) -> None:
        self._key = key
        self._samples = samples
        self._window_ms = window_ms
        self._rates: dict[tuple[str, str], WindowedRate] = {}
        self.limits = QuotaLimits({}, key)

    def update(self, image: ClientQuotasImage) -> None:
        """Replace the limits; the measured rates are kept."""
        self.limits = QuotaLimits(image.by_entity, self._key)

    def charge(self, user: str, client_id: str, amount: float, now_ms: int) -> int:
        """Record an amount; return how many ms to wait."""
        return self.charge_to(self.limits.of(user, client_id), amount, now_ms)

    def charge_to(self, found: QuotaLimit | None, amount: float, now_ms: int) -> int:
        """Record an amount against a limit of this quota; return how many ms to wait."""
        if found is None:
            return 0
        rate = self._rate(found, now_ms)
        rate.record(amount, now_ms)
        return throttle_ms(rate, found.limit, now_ms)

    def max_amount(self, user: str, client_id: str) -> float | None:
        """Return the largest amount for an idle client at once; None without a limit."""
        limit = self.limits.of(user, client_id)
        if limit is None:
            return None
        return limit.limit * (self._samples - 1) * self._window_ms / 1000

    def _rate(self, found: QuotaLimit, now_ms: int) -> WindowedRate:
        """Return the rate of a limit; drop the least recently used rate if there are too many."""
        rates = self._rates
        rate = rates.pop(found.shared_by, None)
        if rate is None:
            rate = WindowedRate(self._samples, self._window_ms)
            self._drop_forgotten(now_ms)
        rates[found.shared_by] = rate
        return rate

    def _drop_forgotten(self, now_ms: int) -> None:
        rates = self._rates
        for _ in range(2):
            if not rates:
                return
            oldest = next(iter(rates))
            if len(rates) < _MAX_RATES and not rates[oldest].is_forgotten(now_ms):
                return
            del rates[oldest]


class ClientQuotas:
    """All client quotas of a broker.

    Args:
        samples: `quota.window.num`.
        window_ms: `quota.window.size.seconds`.
        now_ms: a clock that does not go back.

    Attributes:
        is_active: a quota is configured; otherwise nothing needs to be charged.
    """

    def __init__(self, samples: int, window_ms: int, now_ms: Callable[[], int]) -> None:
        self.is_active = False
        self._now_ms = now_ms
        self._window_ms = window_ms
        self._produce = _Quota(PRODUCER_BYTE_RATE, samples, window_ms)
        self._fetch = _Quota(CONSUMER_BYTE_RATE, samples, window_ms)
        self._request = _Quota(REQUEST_PERCENTAGE, samples, window_ms)
        self._connect = _Quota(CONNECTION_CREATION_RATE, samples, window_ms)
        self._on_change: list[Callable[[], None]] = []
        self._image: ClientQuotasImage = EMPTY_CLIENT_QUOTAS

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call `listener` when limits have changed, so that muted connections can be released."""
        self._on_change.append(listener)

    def update(self, image: ClientQuotasImage) -> None:
        """Enforce the quotas of an image from now on."""
        if image.by_entity == self._image.by_entity:
            return
        self._image = image
        for quota in (self._produce, self._fetch, self._request, self._connect):
            quota.update(image)
        # Other quotas are enforced elsewhere, but their throttling is done by the same callers.
        self.is_active = bool(image.by_entity)
        for listener in self._on_change:
            listener()

    def charge_time(self, context: RequestContext, thread_time_s: float) -> None:
        """Record the event-loop time that a request used, for `charge_request`."""
        if self._request.limits:
            percent = thread_time_s * 100
            self._request.charge(user_of(context), context.client_id, percent, self._now_ms())

    def charge_request(self, context: RequestContext) -> int:
        """Return how many ms to wait for the time used so far, at most one window."""
        if not self._request.limits:
            return 0
        wait_ms = self._request.charge(user_of(context), context.client_id, 0.0, self._now_ms())
        return min(wait_ms, self._window_ms)

    def charge_connection(self, address: str) -> int:
        """Record a new connection.

        Returns:
            0 to serve it, else the delay in ms after which to close it unserved.
        """
        of_address = self._connect.limits.of_address(address)
        now_ms = self._now_ms()
        wait_ms = self._connect.charge_to(of_address, 1, now_ms)
        if wait_ms:
            self._connect.charge_to(of_address, -1, now_ms)
        return min(wait_ms, self._window_ms)

    def charge_produce(self, context: RequestContext, size_bytes: int, *, is_answered: bool) -> int:
        """Record a produce request of that size; return how many ms to wait."""
        user, client_id = user_of(context), context.client_id
        wait_ms = self._produce.charge(user, client_id, size_bytes, self._now_ms())
        return max(wait_ms, self.charge_request(context) if is_answered else 0)

    def charge_fetch(self, context: RequestContext, size_of: Callable[[], int]) -> int:
        """Record a response to a consumer; return how many ms to wait.

        A response for which the consumer must wait is neither sent nor recorded.

                Args:
                    size_of: computes the size of the response in bytes; called only if a limit
                        applies.
        """
        user, client_id, now_ms = user_of(context), context.client_id, self._now_ms()
        if self._fetch.limits.of(user, client_id) is None:
            return self.charge_request(context)
        size_bytes = size_of()
        wait_ms = max(
            self._fetch.charge(user, client_id, size_bytes, now_ms), self.charge_request(context)
        )
        if wait_ms:
            self._fetch.charge(user, client_id, -size_bytes, now_ms)
        return wait_ms

    def max_fetch_bytes(self, context: RequestContext) -> int:
        """Return the size of the largest response that the consumer's quota ever allows."""
        most = self._fetch.max_amount(user_of(context), context.client_id)
        return _INT_MAX if most is None else int(min(most, _INT_MAX))


def user_of(context: RequestContext) -> str:
    """Return the user name in the principal, as quotas name users."""
    return context.principal.partition(":")[2]


def throttle_time(response: Any) -> int:
    """Return the throttle time of a response; 0 if it has no such field."""
    wait_ms: int = getattr(response, "throttle_time_ms", 0)
    return wait_ms


def set_throttle_time(response: Any, wait_ms: int) -> None:
    """Set the throttle time of a response that has such a field; never lower it."""
    if hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = max(response.throttle_time_ms, wait_ms)
