"""Short ways to make Prometheus metrics from numbers.

Names are Kafka's (type, then name, in snake case). Units are the base units of Prometheus: seconds
and bytes. A value that Kafka shows per second is a counter here.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Final

from prometheus_client import Metric

from spindle.runtime.metrics.durations import Durations

QUANTILES: Final = (0.5, 0.95, 0.99, 0.999)

Labels = Mapping[str, str]


def gauge(name: str, documentation: str, value: float) -> Metric:
    """Make a gauge with one sample."""
    return gauges(name, documentation, [({}, value)])


def gauges(name: str, documentation: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """Make a gauge with one sample for each (labels, value)."""
    metric = Metric(name, documentation, "gauge")
    for labels, value in values:
        metric.add_sample(name, dict(labels), value)
    return metric


def counter(name: str, documentation: str, value: float) -> Metric:
    """Make a counter with one sample; its name ends with `_total`."""
    return counters(name, documentation, [({}, value)])


def counters(name: str, documentation: str, values: Iterable[tuple[Labels, float]]) -> Metric:
    """Make a counter with one sample for each (labels, value); its name ends with `_total`."""
    metric = Metric(name, documentation, "counter")
    for labels, value in values:
        metric.add_sample(f"{name}_total", dict(labels), value)
    return metric


def histograms(
    name: str,
    documentation: str,
    values: Iterable[tuple[Labels, Sequence[tuple[float, int]], float]],
) -> Metric:
    """Make a histogram from each (labels, [(limit, count of values up to it)], sum).

    The last limit is infinite.
    """
    metric = Metric(name, documentation, "histogram")
    for labels, buckets, total in values:
        for limit, count in buckets:
            le = "+Inf" if limit == inf else str(limit)
            metric.add_sample(f"{name}_bucket", {**labels, "le": le}, count)
        metric.add_sample(f"{name}_count", dict(labels), buckets[-1][1])
        metric.add_sample(f"{name}_sum", dict(labels), total)
    return metric


def summaries(
    name: str,
    documentation: str,
    values: Iterable[tuple[Labels, int, float, Sequence[tuple[float, float]]]],
) -> Metric:
    """Make a summary from each (labels, count, sum, [(quantile, value)])."""
    metric = Metric(name, documentation, "summary")
    for labels, count, total, quantiles in values:
        for quantile, value in quantiles:
            metric.add_sample(name, {**labels, "quantile": str(quantile)}, value)
        metric.add_sample(f"{name}_count", dict(labels), count)
        metric.add_sample(f"{name}_sum", dict(labels), total)
    return metric


def duration_metrics(name: str, documentation: str, durations: Durations) -> Iterator[Metric]:
    """Yield a summary without quantiles, and a gauge with the longest time since a scrape."""
    yield summaries(
        f"{name}_seconds", documentation, [({}, durations.count, durations.total_s, ())]
    )
    yield gauge(
        f"{name}_max_seconds",
        f"{documentation} The longest since the last scrape.",
        durations.take_longest_s(),
    )
