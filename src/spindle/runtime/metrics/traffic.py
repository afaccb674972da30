"""Metrics of clients: requests by API, connections, bytes and messages by topic."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from prometheus_client import Metric

from spindle.runtime.metrics.families import QUANTILES, counter, gauge, summaries
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.serving.traffic import TopicTraffic

_TOPIC_COUNTERS: Final = (
    ("bytes_in", "Bytes of records that producers have appended."),
    ("bytes_out", "Bytes of records sent to consumers."),
    ("messages_in", "Records that producers have appended."),
    ("total_produce_requests", "Partitions of produce requests."),
    ("total_fetch_requests", "Partitions in answers to fetch requests of consumers."),
    ("failed_produce_requests", "Partitions of produce requests whose append failed."),
    ("failed_fetch_requests", "Partitions in answers to fetch requests that have an error."),
)
_AUTHENTICATION_COUNTERS: Final = (
    ("successful_authentication", "Connections that have authenticated with SASL."),
    ("failed_authentication", "Connections whose TLS handshake or SASL authentication failed."),
    ("successful_reauthentication", "Sessions renewed on their connection."),
    ("failed_reauthentication", "Sessions whose renewal failed."),
    (
        "expired_connections_killed",
        "Connections closed because they sent requests after the end of their session.",
    ),
)
_ATTRIBUTES: Final = {
    "successful_authentication": "successful_authentications",
    "failed_authentication": "failed_authentications",
    "successful_reauthentication": "successful_reauthentications",
    "failed_reauthentication": "failed_reauthentications",
    "expired_connections_killed": "sessions_expired",
    "total_produce_requests": "produces",
    "total_fetch_requests": "fetches",
    "failed_produce_requests": "failed_produces",
    "failed_fetch_requests": "failed_fetches",
}


def request_metrics(requests: RequestMetrics, now_s: float) -> Iterator[Metric]:
    """Yield the metrics of all listeners; `now_s` is the time of a monotonic clock."""
    yield summaries(
        "kafka_network_request_metrics_total_time_seconds",
        "Time from a request's last byte to its answer, by API and listener; quantiles of the "
        "last one to two minutes.",
        [
            (
                {"request": _kafka_name(times.api), "listener": times.listener},
                times.count,
                times.total_s,
                list(zip(QUANTILES, times.quantiles_s(QUANTILES, now_s), strict=True)),
            )
            for times in requests.times.values()
            if times.count
        ],
    )
    prefix = "kafka_server_socket_server_metrics"
    yield gauge(f"{prefix}_connection_count", "Open connections.", requests.connections)
    yield counter(
        f"{prefix}_connection_creation", "Connections accepted.", requests.connections_opened
    )
    yield counter(
        f"{prefix}_connection_refused",
        "Connections refused because of max.connections, max.connections.per.ip or a quota.",
        requests.connections_refused,
    )
    yield counter(
        f"{prefix}_connection_throttled",
        "Connections that had to wait because of a quota.",
        requests.connections_muted,
    )
    for name, documentation in _AUTHENTICATION_COUNTERS:
        count = getattr(requests, _ATTRIBUTES[name])
        yield counter(f"{prefix}_{name}", documentation, count)
    yield counter(f"{prefix}_incoming_byte", "Bytes received.", requests.bytes_in)
    yield counter(f"{prefix}_outgoing_byte", "Bytes sent.", requests.bytes_out)


def _kafka_name(api: str) -> str:
    """Return Kafka's name of an API: ListOffsets for `list_offsets`."""
    return "".join(word.capitalize() for word in api.split("_"))


def total_metrics(total: TopicTraffic) -> Iterator[Metric]:
    """Yield the sums over all topics, deleted topics included."""
    for name, documentation in _TOPIC_COUNTERS:
        yield counter(
            f"kafka_server_broker_all_topics_metrics_{name}",
            f"{documentation} Sum over all topics.",
            getattr(total, _ATTRIBUTES.get(name, name)),
        )


def topic_text(topics: Sequence[tuple[str, TopicTraffic]]) -> bytes:
    """Return the metrics of each topic in Prometheus' text format.

    This module formats the text itself, because there may be many topics and an object for each
    number would take ten times as long. Topic names need no escapes.
    """
    parts = []
    for name, documentation in _TOPIC_COUNTERS:
        value_of = attrgetter(_ATTRIBUTES.get(name, name))
        family = f"kafka_server_broker_topic_metrics_{name}_total"
        parts.append(f"# HELP {family} {documentation}\n# TYPE {family} counter\n")
        parts += [f'{family}{{topic="{topic}"}} {value_of(of)}.0\n' for topic, of in topics]
    return "".join(parts).encode()
