"""The clients that push metrics, and when they may ask and push next (KIP-714).

A client asks for its subscription, then pushes at its interval with the id of the subscription. It
must ask again when its subscription has changed. A client that has been silent for three intervals
is forgotten.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Final

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid, uuid_text
from spindle.metadata.configs import ConfigsImage
from spindle.protocol.records.compression import Codec
from spindle.serving.telemetry.otlp import MAX_NAME_LENGTH
from spindle.serving.telemetry.subscriptions import (
    ClientSubscription,
    MetricsSubscription,
    subscription_of_client,
    subscriptions_of,
)

MAX_CLIENTS: Final = 16_384
"""Clients that a broker remembers; beyond it, the one that was silent for longest is forgotten."""
_MIN_EXPIRY_MS: Final = 60_000
_MAY_ASK_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class TelemetryClient:
    """One client instance.

    Attributes:
        properties: by the names that patterns of subscriptions use, at most `MAX_NAME_LENGTH`
            characters of each.
        version: counts the changes of the cluster's subscriptions; that of `subscription`.
        asked_ms, pushed_ms: the times of its last requests of each kind that were not too early.
        is_terminating: its last push was the one before it closes.
        last_error: the error of its last request.
        seen_ms: the time of its last request.
    """

    __slots__ = (
        "asked_ms",
        "instance_id",
        "is_terminating",
        "last_error",
        "properties",
        "pushed_ms",
        "seen_ms",
        "subscription",
        "version",
    )

    def __init__(
        self,
        instance_id: Uuid,
        properties: Mapping[str, str],
        subscription: ClientSubscription,
        version: int,
    ) -> None:
        self.instance_id = instance_id
        self.properties = properties
        self.subscription = subscription
        self.version = version
        self.is_terminating = False
        self.last_error = ErrorCode.NONE
        self.seen_ms = 0
        self.asked_ms: int | None = None
        self.pushed_ms: int | None = None

    @property
    def expiry_ms(self) -> int:
        """The time for which the client is remembered after a request."""
        return max(_MIN_EXPIRY_MS, 3 * self.subscription.push_interval_ms)

    def may_ask(self, now_ms: int) -> bool:
        """Return whether an interval has passed since the last request; note the time if so."""
        times = [at for at in (self.asked_ms, self.pushed_ms) if at is not None]
        if times and now_ms - max(times) < self.subscription.push_interval_ms:
            return False
        self.asked_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Return whether the client has asked since its last push, or an interval has passed."""
        last = self.pushed_ms
        has_asked = self.asked_ms is not None and (last is None or self.asked_ms > last)
        is_early = last is not None and now_ms - last < self.subscription.push_interval_ms
        if is_early and not has_asked:
            return False
        self.pushed_ms = now_ms
        return True


class TelemetryClients:
    """All clients of one broker that have asked or pushed lately.

    Attributes:
        throttled: requests that came before their time.
        unknown_subscriptions: pushes for a subscription that is not that of the client.

    Args:
        configs: returns the configurations of the cluster, which hold the subscriptions.
        max_bytes: largest payload of a push.
    """

    def __init__(self, configs: Callable[[], ConfigsImage], max_bytes: int) -> None:
        self._configs = configs
        self._max_bytes = max_bytes
        self._known = configs()
        self._subscriptions: tuple[MetricsSubscription, ...] = subscriptions_of(self._known)
        self._version = 0
        self._by_id: OrderedDict[Uuid, TelemetryClient] = OrderedDict()
        self.throttled = 0
        self.unknown_subscriptions = 0

    def __len__(self) -> int:
        return len(self._by_id)

    def __contains__(self, instance_id: Uuid) -> bool:
        return instance_id in self._by_id

    def ask(
        self, instance_id: Uuid, properties: Mapping[str, str], now_ms: int
    ) -> ClientSubscription:
        """Return what the client is to push.

        Raises:
            ApiError: THROTTLING_QUOTA_EXCEEDED if it has asked or pushed less than an interval ago,
                and its subscription is still the same.
        """
        client = self._client(instance_id, properties, now_ms)
        if not client.may_ask(now_ms) and client.last_error not in _MAY_ASK_AGAIN:
            raise self._too_early(client)
        client.last_error = ErrorCode.NONE
        return client.subscription

    def push(
        self,
        instance_id: Uuid,
        properties: Mapping[str, str],
        now_ms: int,
        *,
        subscription_id: int,
        compression_type: int,
        payload_bytes: int,
        is_terminating: bool,
    ) -> TelemetryClient:
        """Return the client if its push is to be taken.

        Raises:
            ApiError: INVALID_REQUEST after the last push of a client, THROTTLING_QUOTA_EXCEEDED,
                UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE or TELEMETRY_TOO_LARGE.
        """
        client = self._client(instance_id, properties, now_ms)
        try:
            if client.is_terminating:
                raise ApiError(
                    ErrorCode.INVALID_REQUEST,
                    f"client {uuid_text(instance_id)} has pushed for the last time before",
                )
            if not client.may_push(now_ms) and not is_terminating:
                raise self._too_early(client)
            if subscription_id != client.subscription.subscription_id:
                self.unknown_subscriptions += 1
                raise ApiError(
                    ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                    f"the subscription of client {uuid_text(instance_id)} is "
                    f"{client.subscription.subscription_id}, not {subscription_id}",
                )
            if compression_type not in tuple(Codec):
                raise ApiError(
                    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                    f"compression type {compression_type} is not one of 0 to 4",
                )
            if payload_bytes > self._max_bytes:
                raise ApiError(
                    ErrorCode.TELEMETRY_TOO_LARGE,
                    f"{payload_bytes} bytes are more than telemetry.max.bytes={self._max_bytes}",
                )
        except ApiError as error:
            client.last_error = error.code
            raise
        finally:
            client.is_terminating = is_terminating
        client.last_error = ErrorCode.NONE
        return client

    def forget(self, instance_id: Uuid) -> None:
        """Forget a client whose connection has ended."""
        self._by_id.pop(instance_id, None)

    def expire(self, now_ms: int) -> None:
        """Forget the clients that have been silent for too long."""
        silent = [c for c in self._by_id.values() if now_ms - c.seen_ms > c.expiry_ms]
        for client in silent:
            del self._by_id[client.instance_id]

    def _too_early(self, client: TelemetryClient) -> ApiError:
        self.throttled += 1
        return ApiError(
            ErrorCode.THROTTLING_QUOTA_EXCEEDED,
            f"client {uuid_text(client.instance_id)} did not wait for "
            f"{client.subscription.push_interval_ms} ms",
        )

    def _client(
        self, instance_id: Uuid, properties: Mapping[str, str], now_ms: int
    ) -> TelemetryClient:
        """Return the client; one whose subscription may have changed begins anew."""
        self._follow_configs()
        client = self._by_id.get(instance_id)
        if client is None or client.version != self._version:
            named = {**properties, "client_instance_id": uuid_text(instance_id)}
            subscription = subscription_of_client(instance_id, named, self._subscriptions)
            # A client chooses its names: for labels, the beginning of each is enough.
            kept = {name: text[:MAX_NAME_LENGTH] for name, text in named.items()}
            client = TelemetryClient(instance_id, kept, subscription, self._version)
            self._by_id[instance_id] = client
        client.seen_ms = now_ms
        self._by_id.move_to_end(instance_id)
        if len(self._by_id) > MAX_CLIENTS:
            self._by_id.popitem(last=False)
        return client

    def _follow_configs(self) -> None:
        configs = self._configs()
        if configs is self._known:
            return
        self._known, before = configs, self._subscriptions
        self._subscriptions = subscriptions_of(configs)
        if self._subscriptions != before:
            self._version += 1
