"""`controller_mutation_rate`: the number of partitions a client may create and delete (KIP-599).

The active controller enforces it. A request that exceeds the client's quota is refused if its
version has the error for that. A request of an older version is served, and its answer throttles
the client.
"""

from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.controller.decision import ChargePartitions, no_quota
from spindle.metadata.client_quotas import EMPTY_CLIENT_QUOTAS, ClientQuotasImage
from spindle.protocol.api import ApiKey
from spindle.serving.context import RequestContext
from spindle.serving.quotas.enforcement import user_of
from spindle.serving.quotas.limits import QuotaLimit, QuotaLimits
from spindle.serving.quotas.rates import TokenBucket

CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
_MAX_BUCKETS: Final = 10_000

FIRST_STRICT_VERSION: Final[dict[int, int]] = {
    ApiKey.CREATE_TOPICS: 6,
    ApiKey.DELETE_TOPICS: 5,
    ApiKey.CREATE_PARTITIONS: 3,
}
"""The first version whose requests are refused instead of throttled, by API."""


class Mutations:
    """The partitions that one request creates or deletes; `wait_ms` is its throttle time."""

    def __init__(self, bucket: TokenBucket | None, now_ms: int, *, is_strict: bool) -> None:
        self.wait_ms = 0
        self.charge: ChargePartitions = no_quota if bucket is None else self._charge
        self._bucket = bucket
        self._now_ms = now_ms
        self._is_strict = is_strict

    def _charge(self, count: int) -> None:
        assert self._bucket is not None
        if not self._is_strict:
            self._bucket.take(count, self._now_ms)
            self.wait_ms = self._bucket.wait_ms(self._now_ms)
            return
        self.wait_ms = self._bucket.wait_ms(self._now_ms)
        if self.wait_ms:
            # Kafka's response has no message here.
            raise ApiError(ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        self._bucket.take(count, self._now_ms)


class MutationQuotas:
    """The buckets of all clients.

    Args:
        samples: `controller.quota.window.num`.
        window_ms: `controller.quota.window.size.seconds`.
    """

    def __init__(self, samples: int, window_ms: int) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._image: ClientQuotasImage = EMPTY_CLIENT_QUOTAS
        self._limits = QuotaLimits({}, CONTROLLER_MUTATION_RATE)
        self._buckets: dict[tuple[str, str], TokenBucket] = {}

    def begin(
        self, image: ClientQuotasImage, api_key: int, context: RequestContext | None, now_ms: int
    ) -> Mutations:
        """Start to count one request; a request of the node itself has no context and is free."""
        if image is not self._image:
            self._image = image
            self._limits = QuotaLimits(image.by_entity, CONTROLLER_MUTATION_RATE)
        first_strict = FIRST_STRICT_VERSION.get(api_key)
        if context is None or first_strict is None or not self._limits:
            return Mutations(None, now_ms, is_strict=False)
        limit = self._limits.of(user_of(context), context.client_id)
        bucket = None if limit is None else self._bucket(limit, now_ms)
        return Mutations(bucket, now_ms, is_strict=context.api_version >= first_strict)

    def _bucket(self, found: QuotaLimit, now_ms: int) -> TokenBucket:
        """Return the bucket of a quota; drop the least recently used one of too many."""
        bucket = self._buckets.pop(found.shared_by, None)
        if bucket is None:
            bucket = TokenBucket(self._samples, self._window_ms, found.limit, now_ms)
            if len(self._buckets) >= _MAX_BUCKETS:
                del self._buckets[next(iter(self._buckets))]
        else:
            bucket.set_pace(found.limit, now_ms)
        self._buckets[found.shared_by] = bucket
        return bucket
