"""Metrics that clients push to this broker (KIP-714), and how many do."""

from collections.abc import Iterator

from prometheus_client import Metric

from spindle.runtime.metrics.families import counter, counters, gauge, gauges
from spindle.serving.cooperative import cooperatively
from spindle.serving.telemetry.telemetry import Telemetry

_PUSHED = "A metric that clients push (KIP-714); its name there has dots."


def telemetry_metrics(telemetry: Telemetry) -> Iterator[Metric]:
    """Yield the counts of clients and of their pushes. Call it on the event loop."""
    prefix = "kafka_server_client_metrics"
    clients, received = telemetry.clients, telemetry.received
    yield gauge(
        f"{prefix}_instance_count",
        "Clients that have asked for their subscription, or pushed metrics, lately.",
        len(clients),
    )
    yield counter(
        f"{prefix}_unknown_subscription_request",
        "Pushes for a subscription that is not, or no more, that of the client.",
        clients.unknown_subscriptions,
    )
    yield counter(f"{prefix}_throttle", "Requests that came before their time.", clients.throttled)
    yield counter(
        f"{prefix}_plugin_export", "Pushes with metrics that were taken.", telemetry.taken
    )
    yield counter(
        f"{prefix}_plugin_error", "Pushes whose payload could not be read.", telemetry.refused
    )
    yield gauge(
        "spindle_client_metrics_series",
        "Series of clients on this page, at most `spindle.client.metrics.max.series`.",
        received.series_count,
    )
    yield counter(
        "spindle_client_metrics_dropped_samples",
        "Values that clients pushed and that are not shown: beyond the number of series, of other "
        "types than gauges and sums, or with names that are too long.",
        received.dropped,
    )


async def client_metrics(telemetry: Telemetry) -> list[Metric]:
    """Return what clients have pushed, sorted by name, with pauses for other work."""
    telemetry.expire()
    families: dict[tuple[str, bool], Metric] = {}
    async for series in cooperatively(telemetry.received):
        name, is_counter = series.name, series.is_counter
        metric = families.get((name, is_counter))
        if metric is None:
            make = counters if is_counter else gauges
            metric = families[name, is_counter] = make(name, _PUSHED, ())
        line = f"{name}_total" if is_counter else name
        metric.add_sample(line, dict(series.labels), series.value)
    return [families[key] for key in sorted(families)]
