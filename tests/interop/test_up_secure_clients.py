"""`spindle up --secure` and clients of librdkafka: who comes in, and what ACLs allow."""

import json
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from peers.clients import Value
from waiting import wait_for, wait_until

from kafka import KafkaProducer
from spindle.config.properties import parse_properties

pytestmark = pytest.mark.timeout(120)
SPINDLE = (sys.executable, "-c", "from spindle.cli.main import main; main()")
WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, Any]]:
    """The ready event of a cluster of three nodes."""
    command = [*SPINDLE, "up", "--secure", "--nodes", "3", "--dirs", "1", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            events = map(json.loads, process.stdout)
            yield next(event for event in events if event["event"] == "ready")
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=WAIT_S)
    assert process.returncode == 0


def client_of(cluster: dict[str, Any], user: str) -> dict[str, Value]:
    """Return the properties of librdkafka for those that the command has written."""
    properties = parse_properties(Path(cluster["client_properties"][user]).read_text())
    return {
        "bootstrap.servers": properties["bootstrap.servers"],
        "security.protocol": properties["security.protocol"],
        "sasl.mechanism": properties["sasl.mechanism"],
        "sasl.username": user,
        "sasl.password": properties["sasl.jaas.config"].split('password="')[1].split('"')[0],
        "ssl.ca.location": properties["ssl.truststore.location"],
    }


def produced(settings: dict[str, Value]) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer(settings)
    producer.produce("t", b"hello", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(WAIT_S) == 0
    return errors[0]


def test_the_administrator_may_do_everything_and_the_application_what_it_is_allowed(
    cluster: dict[str, Any],
) -> None:
    admin, app = client_of(cluster, "admin"), client_of(cluster, "app")
    topic = NewTopic("t", num_partitions=1, replication_factor=3)
    administration = AdminClient(admin)
    administration.create_topics([topic])["t"].result(WAIT_S)
    assert produced(admin) is None
    refused = produced(app)
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rules = ["--allow-principal", "User:app", "--topic", "t", "--group", "g"]
    login = ["--command-config", cluster["client_properties"]["admin"]]
    servers = ["-b", cluster["bootstrap_servers"]]
    for role in ("--producer", "--consumer"):
        chosen = rules if role == "--consumer" else rules[:4]
        command = [*SPINDLE, "kafka", "acls", *servers, *login, "--add", role, *chosen]
        subprocess.run(command, check=True, capture_output=True)

    def is_allowed() -> bool:
        error = produced(app)
        assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        return error is None

    # Each broker learns of ACLs in its own time.
    wait_until(is_allowed, limit_s=WAIT_S, pause_s=0)
    consumer = Consumer({**app, "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe(["t"])
    values: list[bytes | None] = []

    def read() -> list[bytes | None]:
        records = consumer.consume(2, 1.0)
        values.extend(record.value() for record in records if record.error() is None)
        return values

    wait_for(read, lambda read: len(read) >= 2, limit_s=WAIT_S, pause_s=0)
    consumer.close()
    assert values == [b"hello", b"hello"]


async def test_python_clients_take_the_settings_that_are_written_for_them(
    cluster: dict[str, Any],
) -> None:
    settings = json.loads(Path(cluster["python_settings"]["admin"]).read_text())
    authority = settings["kafka-python"]["ssl_cafile"]
    assert produced(settings["confluent-kafka"]) is None
    producer = KafkaProducer(**settings["kafka-python"])
    assert producer.send("t", b"hello").get(WAIT_S).topic == "t"
    producer.close()

    async def send() -> str:
        context = ssl.create_default_context(cafile=authority)
        async with AIOKafkaProducer(**settings["aiokafka"], ssl_context=context) as client:
            sent = await client.send_and_wait("t", b"hello")
            return str(sent.topic)

    assert await send() == "t"


@pytest.mark.parametrize(
    "change",
    [{"security.protocol": "plaintext"}, {"sasl.password": "wrong"}, {"sasl.username": "nobody"}],
)
def test_a_client_without_the_right_login_is_refused(
    cluster: dict[str, Any], change: dict[str, str]
) -> None:
    client = AdminClient({**client_of(cluster, "app"), **change, "log_level": 0})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=3)
