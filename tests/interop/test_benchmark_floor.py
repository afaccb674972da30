"""The C programs of the benchmarks: the floor keeps what the load client sends."""

import json
import socketserver
import struct
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from benchmarks import native_client
from benchmarks.compiled import compiled
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


_FRAMES = b"".join(struct.pack(">i", len(name)) + name for name in (b"one", b"three"))
_ERROR_AT = 4


class _Answers(socketserver.BaseRequestHandler):
    """Answers every frame with error code 0, but `three` with `code`."""

    code = 0

    def handle(self) -> None:
        while size := self.request.recv(4):
            request = self.request.recv(struct.unpack(">i", size)[0])
            code = self.code if request == b"three" else 0
            self.request.sendall(struct.pack(">iih", 6, 1, code))


@pytest.mark.parametrize(("code", "returned"), [(0, 0), (3, 1)])
def test_many_connections_ask_in_turn_until_an_error(
    code: int, returned: int, tmp_path: Path
) -> None:
    (tmp_path / "frames").write_bytes(_FRAMES)
    answers = type("Answers", (_Answers,), {"code": code})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), answers) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        words = [server.server_address[1], 10, tmp_path / "frames", _ERROR_AT, 20, 100]
        done = subprocess.run(
            [str(compiled("connections")), *map(str, words)],
            capture_output=True,
            text=True,
            check=False,
        )
        server.shutdown()
    assert done.returncode == returned
    if code:
        assert done.stderr == "connections: error code 3\n"
    else:
        assert json.loads(done.stdout)["seconds"] > 0
