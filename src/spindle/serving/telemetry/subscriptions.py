"""Which metrics the operator wants from a client, and how often (KIP-714).

A subscription is a configuration resource of the type CLIENT_METRICS. A client gets the metrics of
all subscriptions that match it, with the shortest of their intervals, under one subscription id.
"""

import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from spindle.common.checksums import crc32c
from spindle.common.uuids import Uuid
from spindle.config.client_metrics_keys import CLIENT_METRICS_KEYS
from spindle.metadata.configs import CLIENT_METRICS_RESOURCE, ConfigsImage

log = logging.getLogger(__name__)

ALL_METRICS: Final = "*"
"""The entry of a subscription to all metrics of a client."""
_FIRST_BUCKETS: Final = 16


@dataclass(frozen=True, slots=True)
class MetricsSubscription:
    """The metrics that an operator wants from some clients.

    Attributes:
        metrics: prefixes of names of metrics; `*` for all.
        match: a pattern for each property that a client must have; none matches every client.
    """

    name: str
    metrics: tuple[str, ...]
    interval_ms: int
    match: Mapping[str, re.Pattern[str]]

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Return whether every pattern matches the whole property of a client."""
        return all(
            name in properties and pattern.fullmatch(properties[name]) is not None
            for name, pattern in self.match.items()
        )


@dataclass(frozen=True, slots=True)
class ClientSubscription:
    """The metrics that one client is to push: the answer to GetTelemetrySubscriptions."""

    subscription_id: int
    metrics: tuple[str, ...]
    push_interval_ms: int


def subscriptions_of(configs: ConfigsImage) -> tuple[MetricsSubscription, ...]:
    """Return the subscriptions of a cluster, sorted by name.

    One whose pattern only Java understands is left out: a controller of Kafka has accepted it.
    """
    subscriptions = []
    for resource, values in configs.by_resource.items():
        if resource.resource_type != CLIENT_METRICS_RESOURCE or not values:
            continue
        try:
            subscriptions.append(_subscription(resource.name, values))
        except re.error as error:
            log.warning("client metrics %s match no client here: %s", resource.name, error)
    return tuple(sorted(subscriptions, key=lambda subscription: subscription.name))


def subscription_of_client(
    instance_id: Uuid, properties: Mapping[str, str], subscriptions: Iterable[MetricsSubscription]
) -> ClientSubscription:
    """Merge the subscriptions that match a client.

    Args:
        properties: of the client, by the names that patterns use: `client_id`,
            `client_instance_id`, `client_software_name`, `client_software_version`,
            `client_source_address`, `client_source_port`.
    """
    wanted: dict[str, None] = {}
    interval_ms = _default_interval_ms()
    for subscription in subscriptions:
        if subscription.matches(properties):
            wanted.update(dict.fromkeys(subscription.metrics))
            interval_ms = min(interval_ms, subscription.interval_ms)
    metrics = (ALL_METRICS,) if ALL_METRICS in wanted else tuple(_as_hash_set(wanted))
    return ClientSubscription(
        _subscription_id(metrics, interval_ms, instance_id), metrics, interval_ms
    )


def _subscription(name: str, values: Mapping[str, str]) -> MetricsSubscription:
    match: dict[str, re.Pattern[str]] = {}
    for pattern in _items(values, "match"):
        client_property, _, expression = pattern.partition("=")
        match[client_property.strip()] = re.compile(expression.strip())
    interval = values.get("interval.ms")
    interval_ms = _default_interval_ms() if interval is None else int(interval)
    return MetricsSubscription(name, _items(values, "metrics"), interval_ms, match)


def _items(values: Mapping[str, str], key: str) -> tuple[str, ...]:
    items = CLIENT_METRICS_KEYS[key].parse(values.get(key, ""))
    assert isinstance(items, tuple)
    return items


def _default_interval_ms() -> int:
    default = CLIENT_METRICS_KEYS["interval.ms"].default
    assert isinstance(default, int)
    return default


# ------------------------------------------------------------ ids as Kafka computes them


def _subscription_id(metrics: tuple[str, ...], interval_ms: int, instance_id: Uuid) -> int:
    """Return the id that a Kafka broker gives, too, so that a client may change the broker."""
    text = f"[{', '.join(metrics)}]{interval_ms}"
    return _int32(crc32c(text.encode()) ^ _uuid_hash(instance_id))


def _uuid_hash(value: Uuid) -> int:
    high, low = int.from_bytes(value[:8], "big"), int.from_bytes(value[8:], "big")
    mixed = high ^ low
    return (mixed >> 32) ^ (mixed & 0xFFFF_FFFF)


def _as_hash_set(names: Iterable[str]) -> list[str]:
    """Return names in the order in which Java's HashSet lists them."""
    names = list(names)
    buckets = _FIRST_BUCKETS
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread_hash(name) & (buckets - 1))


def _spread_hash(text: str) -> int:
    value = 0
    units = text.encode("utf-16-be")
    for index in range(0, len(units), 2):
        value = (31 * value + int.from_bytes(units[index : index + 2], "big")) & 0xFFFF_FFFF
    return value ^ (value >> 16)


def _int32(value: int) -> int:
    return value - 2**32 if value >= 2**31 else value
