"""The C programs of the benchmarks: the floor keeps what the load client sends."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks import native_client
from benchmarks.floor import Floor

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def floor(tmp_path: Path) -> Iterator[Floor]:
    floor = Floor(tmp_path)
    with floor.topic():
        yield floor


def test_a_consumer_gets_every_record_in_order(floor: Floor) -> None:
    producer = Producer({"bootstrap.servers": floor.bootstrap, "batch.num.messages": 7})
    values = [f"{number}".encode() * 100 for number in range(1000)]
    for value in values:
        producer.produce("any", value, partition=0)
    assert producer.flush(30) == 0
    config = {
        "bootstrap.servers": floor.bootstrap,
        "group.id": "unused",
        # The floor has no coordinator; a consumer that is closed waits so long for one.
        "session.timeout.ms": 100,
        "heartbeat.interval.ms": 50,
        "check.crcs": True,
        # Answers end in the middle of a batch.
        "max.partition.fetch.bytes": 10_000,
        "fetch.wait.max.ms": 10,
        "enable.partition.eof": True,
    }
    consumer = Consumer(config)
    try:
        consumer.assign([TopicPartition("any", 0, 0)])
        got: list[tuple[int | None, bytes | None]] = []
        while message := consumer.poll(10):
            if error := message.error():
                assert error.code() == KafkaError._PARTITION_EOF
                break
            got.append((message.offset(), message.value()))
    finally:
        consumer.close()
    assert got == list(enumerate(values))


def test_the_load_client_has_its_three_modes(floor: Floor) -> None:
    produced = native_client.run("produce", floor.bootstrap, "any", 20_000, 100, linger_ms=5)
    assert produced["records"] == 20_000
    one = native_client.run("consume", floor.bootstrap, "any", 20_000, 0)
    four = native_client.run("consume", floor.bootstrap, "any", 20_000, 0, consumers=4)
    assert (one["bytes"], four["bytes"]) == (2_000_000, 8_000_000)
    assert 0 < one["bytes_after_first"] < one["bytes"]
    assert 0 < one["first_s"] < one["seconds"]
    flight = native_client.run("latency", floor.bootstrap, "any", 200, 1024, warm_up=10)
    assert 0 < flight["p50_ms"] <= flight["p99_ms"] <= flight["max_ms"]
    assert floor.cpu_s() > 0


def test_a_client_that_fails_is_reported(floor: Floor) -> None:
    with pytest.raises(RuntimeError, match=r"consume on any: .*unknown\.key"):
        native_client.run("consume", floor.bootstrap, "any", 1, 0, unknown_key=1)
