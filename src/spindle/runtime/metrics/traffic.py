"""Metrics of what clients do: requests by API, connections, bytes and messages by topic."""

from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final

from prometheus_client import Metric

from spindle.runtime.metrics.families import QUANTILES, counter, gauge, summaries
from spindle.runtime.metrics.requests import RequestMetrics
from spindle.serving.traffic import TopicTraffic

_TOPIC_COUNTERS: Final = (
    ("bytes_in", "Bytes of records appended for producers."),
    ("bytes_out", "Bytes of records given to consumers."),
    ("messages_in", "Records appended for producers."),
    ("total_produce_requests", "Appends asked for by producers, by partition."),
    ("total_fetch_requests", "Partitions in answers to consumers."),
    ("failed_produce_requests", "Appends that failed."),
    ("failed_fetch_requests", "Partitions answered with an error."),
)
_ATTRIBUTES: Final = {
    "total_produce_requests": "produces",
    "total_fetch_requests": "fetches",
    "failed_produce_requests": "failed_produces",
    "failed_fetch_requests": "failed_fetches",
}


def request_metrics(requests: RequestMetrics, now_s: float) -> Iterator[Metric]:
    """Of all listeners. `now_s` is a clock that does not go back."""
    yield summaries(
        "kafka_network_request_metrics_total_time_seconds",
        "Requests by API and listener: time from the last byte to the answer; quantiles of the "
        "last minute or two.",
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
        "Connections turned away by max.connections, max.connections.per.ip or a quota.",
        requests.connections_refused,
    )
    yield counter(
        f"{prefix}_connection_throttled",
        "Times that a quota made a connection wait.",
        requests.connections_muted,
    )
    yield counter(f"{prefix}_incoming_byte", "Bytes received.", requests.bytes_in)
    yield counter(f"{prefix}_outgoing_byte", "Bytes sent.", requests.bytes_out)


def _kafka_name(api: str) -> str:
    """`list_offsets` is ListOffsets to operators."""
    return "".join(word.capitalize() for word in api.split("_"))


def total_metrics(total: TopicTraffic) -> Iterator[Metric]:
    """Of all topics together, deleted ones included."""
    for name, documentation in _TOPIC_COUNTERS:
        yield counter(
            f"kafka_server_broker_all_topics_metrics_{name}",
            f"{documentation} All topics together.",
            getattr(total, _ATTRIBUTES.get(name, name)),
        )


def topic_text(topics: Sequence[tuple[str, TopicTraffic]]) -> bytes:
    """By topic, in Prometheus' text format.

    Written here because there may be many: an object for each number would take ten times as long.
    Names of topics have no characters that the format would want escaped.
    """
    parts = []
    for name, documentation in _TOPIC_COUNTERS:
        value_of = attrgetter(_ATTRIBUTES.get(name, name))
        family = f"kafka_server_broker_topic_metrics_{name}_total"
        parts.append(f"# HELP {family} {documentation}\n# TYPE {family} counter\n")
        parts += [f'{family}{{topic="{topic}"}} {value_of(of)}.0\n' for topic, of in topics]
    return "".join(parts).encode()
