"""Payloads of OpenTelemetry metrics, as clients push them (KIP-714)."""

import re
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Final, NamedTuple

from spindle.common.errors import CorruptRecords

MAX_NAME_LENGTH: Final = 200
"""Longest name of a metric, and longest name or value of a label, in characters."""
MAX_LABELS: Final = 20
_KAFKA_PREFIX: Final = "org.apache.kafka."
_DELTA: Final = 1
"""AGGREGATION_TEMPORALITY_DELTA: the value is what was added since the last push."""
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9_]")

Labels = tuple[tuple[str, str], ...]


class Sample(NamedTuple):
    """One value of a client's metric.

    Attributes:
        name: for Prometheus, `kafka_client_producer_record_send_total`, without `_total`.
        is_counter: the value only grows.
        is_added: the value is what has been added since the last push.
        labels: sorted by name.
    """

    name: str
    is_counter: bool
    is_added: bool
    labels: Labels
    value: float


def can_read() -> bool:
    """Return whether the package that decodes payloads is installed (`spindle-log[telemetry]`)."""
    return find_spec("opentelemetry") is not None and find_spec("opentelemetry.proto") is not None


def read_samples(payload: bytes) -> Iterator[Sample | None]:
    """Yield the samples of a payload of `MetricsData`; None for one that is not taken.

    Gauges and sums with at most 20 labels and names of at most 200 characters are taken.

    Raises:
        CorruptRecords: the payload is no MetricsData message.
    """
    # Only a broker whose clients push pays for the import.
    from google.protobuf.message import DecodeError
    from opentelemetry.proto.metrics.v1.metrics_pb2 import MetricsData

    data = MetricsData()
    try:
        data.ParseFromString(payload)
    except DecodeError as error:
        raise CorruptRecords(f"the payload is not a MetricsData message: {error}") from None
    # A message without values counts as a sample: the caller limits the number of steps.
    for resource in data.resource_metrics:
        of_resource = _labels(resource.resource.attributes)
        if not resource.scope_metrics:
            yield None
        for scope in resource.scope_metrics:
            if not scope.metrics:
                yield None
            for metric in scope.metrics:
                yield from _samples_of(metric, of_resource)


def _samples_of(metric: Any, of_resource: Mapping[str, str] | None) -> Iterator[Sample | None]:
    kind = metric.WhichOneof("data")
    if kind not in ("gauge", "sum") or not 0 < len(metric.name) <= MAX_NAME_LENGTH:
        yield None
        return
    is_sum = kind == "sum"
    data = metric.sum if is_sum else metric.gauge
    is_counter = is_sum and data.is_monotonic
    is_added = is_sum and data.aggregation_temporality == _DELTA
    name = _metric_name(metric.name, is_counter=is_counter)
    if not data.data_points:
        yield None
    for point in data.data_points:
        own = None if of_resource is None else _labels(point.attributes)
        if of_resource is None or own is None or len(own) + len(of_resource) > MAX_LABELS:
            yield None
            continue
        labels = tuple(sorted({**of_resource, **own}.items()))
        has_float = point.WhichOneof("value") == "as_double"
        value = point.as_double if has_float else float(point.as_int)
        yield Sample(name, is_counter, is_added, labels, value)


def _metric_name(name: str, *, is_counter: bool) -> str:
    name = "kafka_client_" + _NOT_IN_NAMES.sub("_", name.removeprefix(_KAFKA_PREFIX))
    return name.removesuffix("_total") if is_counter else name


def _labels(attributes: Sequence[Any]) -> dict[str, str] | None:
    """Return attributes as labels; None if they are too many or too long."""
    if len(attributes) > MAX_LABELS:
        return None
    labels: dict[str, str] = {}
    for attribute in attributes:
        key, text = attribute.key, _text(attribute.value)
        if not 0 < len(key) <= MAX_NAME_LENGTH or len(text) > MAX_NAME_LENGTH:
            return None
        name = _NOT_IN_NAMES.sub("_", key)
        # Prometheus keeps names with two underscores to itself: `__name__` is that of the metric.
        is_reserved = name[:1].isdigit() or name.startswith("__")
        labels["_" + name.lstrip("_") if is_reserved else name] = text
    return labels


def _text(value: Any) -> str:
    kind = value.WhichOneof("value")
    if kind in ("string_value", "int_value", "double_value", "bool_value"):
        return str(getattr(value, kind))
    return ""
