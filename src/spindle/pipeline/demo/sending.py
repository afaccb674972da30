"""Send the flights with confluent-kafka, as an application does."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from spindle.pipeline.demo.flights import FlightRecord
from spindle.pipeline.demo.node import DemoError
from spindle.pipeline.demo.proof import Fingerprint, InputFingerprint

TOPIC: Final = "flights"
PARTITIONS: Final = 6
_TIMEOUT_S: Final = 30.0
_REPORT_EVERY: Final = 4096
_EMERGENCIES_ONLY: Final = 0


def create_topic(bootstrap_servers: str, replicas: int = 1, min_in_sync: int = 1) -> None:
    """Create the topic without a retention time, because its records are from 2013.

    Args:
        min_in_sync: replicas that must be in sync for an acknowledgement.

    Raises:
        DemoError: the client is not installed, or the node refuses.
    """
    kafka = _confluent_kafka()
    admin = kafka.admin.AdminClient(
        {"bootstrap.servers": bootstrap_servers, "log_level": _EMERGENCIES_ONLY}
    )
    config = {"retention.ms": "-1", "min.insync.replicas": str(min_in_sync)}
    topic = kafka.admin.NewTopic(
        TOPIC, num_partitions=PARTITIONS, replication_factor=replicas, config=config
    )
    try:
        admin.create_topics([topic], request_timeout=_TIMEOUT_S)[TOPIC].result(_TIMEOUT_S)
    except kafka.KafkaException as error:
        raise DemoError(f"the topic {TOPIC} could not be made: {error}") from error


def send(
    bootstrap_servers: str,
    records: Iterable[FlightRecord],
    progress: Callable[[int], None],
    acknowledged: Callable[[int], None] = lambda _: None,
) -> Fingerprint:
    """Send all records, wait until the node has them, and return the fingerprint of the input.

    Args:
        progress: called with the number of records handed over since the last call.
        acknowledged: called with the partition of each record that has been acknowledged.

    Raises:
        DemoError: a record was not accepted.
    """
    producer = _Producer(bootstrap_servers, acknowledged)
    total = InputFingerprint()
    count = 0
    try:
        for count, record in enumerate(records, start=1):
            total.add(record)
            producer.send(record)
            if count % _REPORT_EVERY == 0:
                progress(_REPORT_EVERY)
        producer.finish()
    finally:
        producer.abandon()
    progress(count % _REPORT_EVERY)
    return total.result()


class _Producer:
    def __init__(self, bootstrap_servers: str, acknowledged: Callable[[int], None]) -> None:
        self._acknowledged = acknowledged
        self._producer = _confluent_kafka().Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "client.id": "spindle-demo",
                "enable.idempotence": True,
                "compression.type": "lz4",
                "linger.ms": 20,
                "batch.size": 512 * 1024,
                "queue.buffering.max.messages": 200_000,
                "delivery.timeout.ms": int(_TIMEOUT_S * 1000),
                # Permanent failures arrive as delivery reports; the client's log lines
                # about retries would only appear between the steps.
                "log_level": _EMERGENCIES_ONLY,
            }
        )
        self._failures: list[str] = []

    def send(self, record: FlightRecord) -> None:
        while True:
            try:
                self._producer.produce(
                    TOPIC,
                    value=record.value,
                    key=record.key,
                    timestamp=record.timestamp_ms,
                    on_delivery=self._delivered,
                )
            except BufferError:
                self._producer.poll(0.1)
                self._check()
                continue
            break
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait until all sent records are acknowledged."""
        left = self._producer.flush(_TIMEOUT_S)
        self._check()
        if left:
            raise DemoError(f"{left} records were not acknowledged within {_TIMEOUT_S:.0f} s")

    def abandon(self) -> None:
        """Drop the queued records, so that nothing waits for a node that has stopped."""
        self._producer.purge()

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))
        else:
            self._acknowledged(message.partition())

    def _check(self) -> None:
        if self._failures:
            raise DemoError(
                f"{len(self._failures)} records were not accepted, the first one: "
                f"{self._failures[0]}"
            )


def _confluent_kafka() -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise DemoError(
            "the package confluent-kafka is not installed: run `make setup`, "
            "or pip install confluent-kafka"
        ) from None
    return confluent_kafka
