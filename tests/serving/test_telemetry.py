"""Client telemetry (KIP-714): subscriptions, times of requests, and the series that are kept."""

import asyncio
from collections.abc import Callable, Hashable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, MetricsData

from spindle.common.errors import ApiError, ErrorCode
from spindle.common.uuids import Uuid, parse_uuid
from spindle.metadata.configs import CLIENT_METRICS_RESOURCE, ConfigResource, ConfigsImage
from spindle.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
)
from spindle.protocol.messages.push_telemetry import PushTelemetryRequest
from spindle.protocol.records.compression import Codec, compress
from spindle.runtime.metrics.telemetry import client_metrics
from spindle.serving import cooperative
from spindle.serving.context import RequestContext
from spindle.serving.handlers.telemetry import get_telemetry_subscriptions
from spindle.serving.telemetry import otlp
from spindle.serving.telemetry.otlp import MAX_LABELS, MAX_NAME_LENGTH, read_samples
from spindle.serving.telemetry.received import Series
from spindle.serving.telemetry.subscriptions import subscription_of_client, subscriptions_of
from spindle.serving.telemetry.telemetry import Telemetry

ID = parse_uuid("ORO28-yfQ9SzTdZ5kAkjEw")
CLIENT = {
    "client_id": "app-1",
    "client_software_name": "apache-kafka-java",
    "client_software_version": "4.4.0",
    "client_source_address": "10.0.0.7",
    "client_source_port": "5000",
}
INTERVAL_MS = 1000


def configs(**subscriptions: dict[str, str]) -> ConfigsImage:
    return ConfigsImage(
        {
            ConfigResource(CLIENT_METRICS_RESOURCE, name): values
            for name, values in subscriptions.items()
        }
    )


def every(interval_ms: int = INTERVAL_MS, metrics: str = "*", **more: str) -> dict[str, str]:
    return {"metrics": metrics, "interval.ms": str(interval_ms), **more}


class Broker:
    """Telemetry with a clock and subscriptions that the test moves."""

    def __init__(self, max_series: int = 100, max_bytes: int = 2_000) -> None:
        self.now_ms = 0
        self.configs = configs(all=every())
        ids = count(1000)
        new_uuid: Callable[[], Uuid] = lambda: next(ids).to_bytes(16, "big")  # noqa: E731
        self.telemetry = Telemetry(
            lambda: self.configs, lambda: self.now_ms, new_uuid, max_bytes, max_series
        )

    def ask(self, instance_id: Uuid = ID) -> int:
        return self.telemetry.ask(instance_id, CLIENT).subscription_id

    def push(
        self,
        payload: bytes = b"",
        *,
        subscription: int | None = None,
        codec: int = Codec.NONE,
        terminating: bool = False,
        instance_id: Uuid = ID,
    ) -> ErrorCode:
        if subscription is None:
            known = subscriptions_of(self.configs)
            subscription = subscription_of_client(instance_id, CLIENT, known).subscription_id
        request = PushTelemetryRequest(
            client_instance_id=instance_id,
            subscription_id=subscription,
            terminating=terminating,
            compression_type=codec,
            metrics=payload,
        )
        try:
            self.telemetry.push(request, CLIENT)
        except ApiError as error:
            return error.code
        return ErrorCode.NONE

    @property
    def series(self) -> list[Series]:
        return list(self.telemetry.received)


def payload(
    *values: float,
    name: str = "org.apache.kafka.producer.sent",
    delta: bool = True,
    label: str = "t",
) -> bytes:
    """Return a counter with a value for each of its points, which have the topics t0, t1, ..."""
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = name
    metric.sum.is_monotonic = True
    metric.sum.aggregation_temporality = (
        AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
        if delta
        else AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    )
    for number, value in enumerate(values):
        point = metric.sum.data_points.add()
        point.as_double = value
        attribute = point.attributes.add()
        attribute.key = "topic"
        attribute.value.string_value = f"{label}{number}"
    return bytes(data.SerializeToString())


# ------------------------------------------------------------ subscriptions


@pytest.mark.parametrize(
    ("metrics", "subscription_id"),
    [
        # As Kafka 4.4.0 computes them for this client and an interval of 5 seconds.
        ("org.apache.kafka.producer.,org.apache.kafka.consumer.coordinator.rebalance.latency.max,"
         "a,b,c", -2041215509),
        ("*", -1084128505),
        ("m1,m2,m3,m4,m5,m6,m7,m8,m9,m10,m11,m12,m13,m14", 271371790),
    ],
)  # fmt: skip
def test_subscription_ids_are_those_of_kafka(metrics: str, subscription_id: int) -> None:
    known = subscriptions_of(configs(one=every(5000, metrics)))
    assert subscription_of_client(ID, CLIENT, known).subscription_id == subscription_id


def test_a_client_gets_what_all_matching_subscriptions_want_at_the_shortest_interval() -> None:
    known = subscriptions_of(
        configs(
            a=every(2000, "x,y"),
            b=every(500, "y,z", match="client_id=app-.*, client_software_version=4\\..*"),
            c=every(100, "other", match="client_id=app"),
        )
    )
    merged = subscription_of_client(ID, CLIENT, known)
    assert (sorted(merged.metrics), merged.push_interval_ms) == (["x", "y", "z"], 500)
    nobody = subscription_of_client(ID, CLIENT, ())
    assert (nobody.metrics, nobody.push_interval_ms) == ((), 300_000)


# ------------------------------------------------------------ times and errors


def test_a_pattern_that_only_java_understands_leaves_the_other_subscriptions() -> None:
    known = subscriptions_of(
        configs(java=every(match=r"client_id=\p{Alpha}+"), other=every(metrics="m"))
    )
    assert [subscription.name for subscription in known] == ["other"]


def test_a_client_asks_and_pushes_at_its_interval() -> None:
    broker = Broker()
    broker.ask()
    with pytest.raises(ApiError, match="THROTTLING_QUOTA_EXCEEDED"):
        broker.ask()
    assert broker.push() is ErrorCode.NONE
    broker.now_ms = INTERVAL_MS - 1
    assert broker.push() is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    broker.now_ms = INTERVAL_MS
    assert broker.push() is ErrorCode.NONE
    assert broker.push(terminating=True) is ErrorCode.NONE, "the last push may come at any time"
    broker.now_ms = 2 * INTERVAL_MS
    assert broker.push() is ErrorCode.INVALID_REQUEST
    assert broker.telemetry.clients.throttled == 2


def test_a_client_asks_again_when_its_subscription_has_changed() -> None:
    broker = Broker()
    before = broker.ask()
    broker.configs = configs(all=every(metrics="x"))
    assert broker.push(subscription=before) is ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    after = broker.ask()
    assert after != before
    broker.now_ms += INTERVAL_MS
    assert broker.push(subscription=after) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("content", "codec", "code"),
    [
        (b"x", 5, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
        (bytes(2_001), Codec.NONE, ErrorCode.TELEMETRY_TOO_LARGE),
        (compress(Codec.ZSTD, bytes(1 << 20)), Codec.ZSTD, ErrorCode.TELEMETRY_TOO_LARGE),
        (b"x", Codec.ZSTD, ErrorCode.INVALID_RECORD),
        (b"\xff\xff", Codec.NONE, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_payload_that_cannot_be_read_is_refused(
    content: bytes, codec: int, code: ErrorCode
) -> None:
    broker = Broker()
    assert broker.push(content, codec=codec) is code
    assert not broker.series
    if code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE:
        broker.ask()  # at once: it needs the codecs that the broker accepts


@pytest.mark.parametrize("codec", list(Codec))
def test_every_codec_is_read(codec: Codec) -> None:
    broker = Broker()
    assert broker.push(compress(codec, payload(3.0)), codec=codec) is ErrorCode.NONE
    assert [(s.name, s.is_counter, s.value) for s in broker.series] == [
        ("kafka_client_producer_sent", True, 3.0)
    ]
    assert broker.series[0].labels == {
        "topic": "t0",
        "client_instance_id": "ORO28-yfQ9SzTdZ5kAkjEw",
        **{name: CLIENT[name] for name in list(CLIENT)[:4]},
    }


# ------------------------------------------------------------ series


def test_values_added_since_the_last_push_are_summed() -> None:
    broker = Broker()
    for _ in range(3):
        broker.push(payload(2.0))
        broker.now_ms += INTERVAL_MS
    assert [s.value for s in broker.series] == [6.0]
    broker.push(payload(2.0, delta=False))
    assert [s.value for s in broker.series] == [2.0]


def test_series_beyond_the_limit_are_dropped_and_counted() -> None:
    broker = Broker(max_series=3)
    broker.push(payload(1.0, 1.0))
    broker.push(payload(1.0, 1.0), instance_id=bytes(14) + b"\x09\x09")
    assert len(broker.series) == broker.telemetry.received.series_count == 3
    assert broker.telemetry.received.dropped == 1


def test_names_and_labels_that_are_too_long_are_dropped() -> None:
    broker = Broker()
    broker.push(payload(1.0, name="n" * (MAX_NAME_LENGTH + 1)))
    broker.now_ms += INTERVAL_MS
    broker.push(payload(1.0, label="v" * MAX_NAME_LENGTH))
    assert not broker.series
    assert broker.telemetry.received.dropped == 2


def test_the_work_for_a_push_is_limited_by_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = 0
    text_of = otlp._text

    def counted(value: Any) -> str:
        nonlocal looked_at
        looked_at += 1
        return text_of(value)

    monkeypatch.setattr(otlp, "_text", counted)
    for attributes in (MAX_LABELS, 1_000):
        data = MetricsData()
        resource = data.resource_metrics.add()
        for number in range(attributes):
            resource.resource.attributes.add().key = f"a{number}"
        metric = resource.scope_metrics.add().metrics.add()
        metric.name = "m"
        for _ in range(100):
            metric.gauge.data_points.add()
        list(read_samples(data.SerializeToString()))
    assert looked_at <= MAX_LABELS


@pytest.mark.parametrize("depth", [0, 1, 2])
def test_messages_without_values_count_as_samples(depth: int) -> None:
    data = MetricsData()
    for _ in range(3):
        resource = data.resource_metrics.add()
        if depth > 0:
            scope = resource.scope_metrics.add()
            if depth > 1:
                metric = scope.metrics.add()
                metric.name = "m"
                metric.gauge.SetInParent()
    assert list(read_samples(data.SerializeToString())) == [None] * 3


def test_the_series_of_a_silent_client_go_and_make_room() -> None:
    broker = Broker(max_series=1)
    broker.push(payload(1.0))
    broker.now_ms = 59_000
    broker.telemetry.expire()
    assert broker.series
    broker.now_ms = 61_000
    broker.telemetry.expire()
    assert (broker.series, len(broker.telemetry.clients)) == ([], 0)
    other = bytes(14) + b"\x09\x09"
    assert broker.push(payload(1.0), instance_id=other) is ErrorCode.NONE
    assert len(broker.series) == 1


def test_names_of_series_that_have_gone_are_forgotten() -> None:
    broker = Broker()
    stays = bytes(14) + b"\x09\x09"
    for number in range(5):
        broker.push(payload(1.0, name=f"m{number}"))
        broker.now_ms += 50_000
        broker.push(payload(1.0, name="stays"), instance_id=stays)
        broker.now_ms += 20_000
        broker.telemetry.expire()
    assert len(broker.telemetry.received._kinds) == 1


def test_a_line_of_the_page_appears_once() -> None:
    broker = Broker()
    data = MetricsData()
    metrics = data.resource_metrics.add().scope_metrics.add().metrics
    counter = metrics.add()
    counter.name = "sent"
    counter.sum.is_monotonic = True
    for client_id in ("a", "b"):
        attribute = counter.sum.data_points.add().attributes.add()
        attribute.key, attribute.value.string_value = "client_id", client_id
    gauge = metrics.add()
    gauge.name = "sent_total"
    gauge.gauge.data_points.add()
    broker.push(data.SerializeToString())
    assert [(s.name, s.labels["client_id"]) for s in broker.series] == [
        ("kafka_client_sent", "app-1")
    ]


def test_a_client_with_ever_new_ids_takes_little_memory() -> None:
    broker = Broker()
    callbacks: dict[Hashable, Any] = {}
    context = RequestContext(
        api_key=71,
        api_version=0,
        correlation_id=0,
        client_id="c" * 30_000,
        client_address="10.0.0.7",
        listener="L",
        when_lost=callbacks.__setitem__,
    )
    services: Any = SimpleNamespace(telemetry=broker.telemetry)
    for _ in range(10):
        get_telemetry_subscriptions(services, context, GetTelemetrySubscriptionsRequest())
    assert len(callbacks) == 1
    for client in broker.telemetry.clients._by_id.values():
        assert max(len(text) for text in client.properties.values()) == MAX_NAME_LENGTH


def test_labels_have_no_names_that_prometheus_keeps_to_itself() -> None:
    data = MetricsData()
    metric = data.resource_metrics.add().scope_metrics.add().metrics.add()
    metric.name = "m"
    attributes = metric.gauge.data_points.add().attributes
    for name in ("__name__", "1st"):
        attributes.add().key = name
    (sample,) = read_samples(data.SerializeToString())
    assert sample is not None
    assert [name for name, _ in sample.labels] == ["_1st", "_name__"]


async def test_clients_push_while_their_metrics_are_gathered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cooperative, "_SLICE_S", -1.0)
    broker = Broker()
    broker.push(payload(*[1.0] * 40))
    gathering = asyncio.ensure_future(client_metrics(broker.telemetry))
    await asyncio.sleep(0)
    assert not gathering.done()
    broker.push(payload(*[1.0] * 9), instance_id=bytes(14) + b"\x09\x09")
    (metric,) = await gathering
    assert (metric.name, len(metric.samples)) == ("kafka_client_producer_sent", 40)
