"""Options of the sink: names, rules and defaults of Spark's built-in `kafka` sink, and a few more.

Further options: `deliveryGuarantee` (`exactly-once` or `at-least-once`), `writeId` (a batch write
with this id is done once, however often the job runs), `transactionalIdPrefix`, `stateTopic` (a
topic in whose name the state of the query is stored) and `missingState`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from spindle.client.blocking.settings import ClientSettings
from spindle.pipeline.options.client import (
    broker_client,
    kafka_properties,
    missing_servers,
    refuse_properties,
)
from spindle.pipeline.options.values import MAX_INT, choice, lower_names, number_in
from spindle.pipeline.sink.batching import BatchLimits
from spindle.protocol.records.compression import CODEC_NAMES
from spindle.protocol.sentinels import ACKS_ALL

WRITE_OPTIONS: Final = (
    "topic",
    "includeHeaders",
    "deliveryGuarantee",
    "writeId",
    "transactionalIdPrefix",
    "stateTopic",
    "missingState",
    # These come from Spark, and from the registration of the source.
    "checkpointLocation",
    "queryName",
    "parallelism",
)
"""The options of a write without the properties of the client."""
_KIB: Final = 1024
_MIB: Final = 1024 * 1024
_REFUSED: Final = {
    "transactional.id": "the sink makes the ids of its transactions; see transactionalIdPrefix",
    "key.serializer": "keys are written as they are; convert them with DataFrame functions",
    "value.serializer": "values are written as they are; convert them with DataFrame functions",
    "partitioner.class": "compute a column partition instead",
    "interceptor.classes": "interceptors could change the records",
    "transaction.two.phase.commit.enable": "the sink keeps its decisions in a group instead",
}
_ACKS: Final = {"all": ACKS_ALL, "-1": ACKS_ALL, "1": 1}
_MISSING_STATE: Final = {"fail": False, "write": True}
_DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
DEFAULT_STATE_TOPIC: Final = "__consumer_offsets"
_DEFAULT_PREFIX: Final = "spindle-sink"
_MAX_IN_FLIGHT: Final = 5


class DeliveryGuarantee(Enum):
    """The promise of the sink for each row."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """A validated write. Sizes in bytes, times in ms.

    Attributes:
        topic: The topic of all rows; None if the column topic says it.
        write_id: The name of a batch write; None if each run is another write.
        takes_missing_state: True if a query that is not new may have no state in the cluster.
    """

    client: ClientSettings
    guarantee: DeliveryGuarantee
    topic: str | None
    limits: BatchLimits
    codec: int
    acks: int
    max_in_flight: int
    transaction_timeout_ms: int
    id_prefix: str
    state_topic: str
    write_id: str | None
    takes_missing_state: bool


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a write and return them.

    Args:
        given: as Spark passes them; upper and lower case of keys do not matter.

    Raises:
        ValueError: an option is missing, contradicts another, or has no usable value.
    """
    options = lower_names(given)
    properties = _properties(options)
    guarantee = _guarantee(options)
    if guarantee is DeliveryGuarantee.AT_LEAST_ONCE and "writeid" in options:
        raise ValueError("option writeId wants deliveryGuarantee=exactly-once")
    prefix = options.get("transactionalidprefix", _DEFAULT_PREFIX)
    if not prefix:
        raise ValueError("option transactionalIdPrefix is empty")
    return SinkOptions(
        client=_client(properties),
        guarantee=guarantee,
        topic=options.get("topic"),
        limits=_limits(properties),
        codec=_codec(properties),
        acks=_acks(properties, guarantee),
        max_in_flight=_number(
            properties, "max.in.flight.requests.per.connection", _MAX_IN_FLIGHT, 1, _MAX_IN_FLIGHT
        ),
        transaction_timeout_ms=_number(
            properties, "transaction.timeout.ms", _DEFAULT_TRANSACTION_TIMEOUT_MS, 1, MAX_INT
        ),
        id_prefix=prefix,
        state_topic=options.get("statetopic", DEFAULT_STATE_TOPIC),
        write_id=_write_id(options),
        takes_missing_state=choice(options, "missingState", _MISSING_STATE, False),
    )


def _properties(options: Mapping[str, str]) -> dict[str, str]:
    properties = kafka_properties(options)
    refuse_properties(properties, _REFUSED)
    if "bootstrap.servers" not in properties:
        raise missing_servers()
    if properties.get("enable.idempotence", "true").strip().lower() != "true":
        raise ValueError("option kafka.enable.idempotence: the sink always writes idempotently")
    return properties


def _client(properties: Mapping[str, str]) -> ClientSettings:
    known = dict(properties)
    if "delivery.timeout.ms" in known:
        known["default.api.timeout.ms"] = known["delivery.timeout.ms"]
    return broker_client(known)


def _guarantee(options: Mapping[str, str]) -> DeliveryGuarantee:
    words = {guarantee.value: guarantee for guarantee in DeliveryGuarantee}
    return choice(options, "deliveryGuarantee", words, DeliveryGuarantee.EXACTLY_ONCE)


def _limits(properties: Mapping[str, str]) -> BatchLimits:
    record_bytes = _number(properties, "max.request.size", _MIB, _KIB, MAX_INT)
    return BatchLimits(
        batch_bytes=min(_number(properties, "batch.size", 256 * _KIB, 1, MAX_INT), record_bytes),
        buffer_bytes=_number(properties, "buffer.memory", 32 * _MIB, _KIB, 2**40),
        record_bytes=record_bytes,
    )


def _codec(properties: Mapping[str, str]) -> int:
    name = properties.get("compression.type", "none").strip().lower()
    if name not in CODEC_NAMES or name == "uncompressed":
        raise ValueError(
            f"option kafka.compression.type is {name!r}, want none, gzip, snappy, lz4 or zstd"
        )
    return CODEC_NAMES[name]


def _acks(properties: Mapping[str, str], guarantee: DeliveryGuarantee) -> int:
    text = properties.get("acks", "all").strip().lower()
    if text not in _ACKS:
        raise ValueError(f"option kafka.acks is {text!r}, want all, -1 or 1; with 0 rows get lost")
    if guarantee is DeliveryGuarantee.EXACTLY_ONCE and _ACKS[text] != ACKS_ALL:
        raise ValueError(f"option kafka.acks is {text!r}, transactions want all")
    return _ACKS[text]


def _write_id(options: Mapping[str, str]) -> str | None:
    write_id = options.get("writeid")
    if write_id is not None and not write_id.strip():
        raise ValueError("option writeId is empty")
    return write_id


def _number(
    properties: Mapping[str, str], name: str, default: int, least: int, greatest: int
) -> int:
    text = properties.get(name)
    # Kafka's clients ignore blanks around numbers; Spark does not.
    return default if text is None else number_in(f"kafka.{name}", text.strip(), least, greatest)
