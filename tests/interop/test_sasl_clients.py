"""Clients of five libraries log in at a listener with SASL, and are told why they cannot."""

from __future__ import annotations

import asyncio
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaConnectionError
from certificates import certified
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import TopicPartition as LibrdkafkaPartition
from kafka.errors import KafkaError as KafkaPythonError
from peers.clients import create
from peers.compare import FIRST_TIMESTAMP_MS
from peers.franz import BUILD_LIMIT_S, franz_program
from peers.java_tools import run_in_new_jvm
from peers.node import SpindleNode
from peers.secured_kafka import (
    HOSTS,
    PASSWORD,
    PLAIN_JAAS,
    SCRAM_JAAS,
    SESSION_MS,
    USER,
    add_users,
    mechanisms,
    stores,
)
from waiting import wait_until

from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaPythonPartition
from spindle.client.admin.scram import alter_user
from spindle.client.blocking.client import WireClient
from spindle.client.blocking.settings import client_settings
from spindle.client.errors import SaslFailed
from spindle.config.properties import format_properties
from spindle.security.scram import ScramMechanism

LIMIT_S = 30.0
# The test with franz-go waits for the compiler.
pytestmark = pytest.mark.timeout(BUILD_LIMIT_S + LIMIT_S)
WRONG = "not-the-password"
VALUES = [b"one", b"two"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
PLAIN_REFUSAL = "Authentication failed: Invalid username or password"
SCRAM_REFUSAL = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism "
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SpindleNode]:
    folder = tmp_path_factory.mktemp("sasl")
    server = certified("broker", hosts=HOSTS)
    (folder / "ca.pem").write_text(server.authority_pem)
    running = SpindleNode(
        folder,
        directory_count=1,
        secure_listeners={
            "LOGIN": "SASL_PLAINTEXT",
            "SHORT": "SASL_PLAINTEXT",
            "LOGIN_TLS": "SASL_SSL",
        },
        overrides={
            **stores("login_tls", server.write(folder, "server")),
            **mechanisms("login_tls", "PLAIN,SCRAM-SHA-512"),
            **mechanisms("login", ",".join(MECHANISMS)),
            **mechanisms("short", "PLAIN,SCRAM-SHA-512"),
            "listener.name.short.connections.max.reauth.ms": str(SESSION_MS),
        },
    )
    with running:
        add_users(running)
        await_user(running)
        yield running
    running.remove()


def await_user(node: SpindleNode) -> None:
    """Wait until the broker knows the credentials that the controller has just stored."""
    wait_until(lambda: can_log_in(node, "SCRAM-SHA-512"), limit_s=LIMIT_S, pause_s=0)


def can_log_in(node: SpindleNode, mechanism: str) -> bool:
    try:
        with spindle_client(node, "LOGIN", mechanism) as client:
            client.metadata()
    except SaslFailed:
        return False
    return True


def properties(node: SpindleNode, listener: str, mechanism: str) -> dict[str, str]:
    """Return the properties of a client with Java's names."""
    return {
        "bootstrap.servers": node.secure_bootstrap(listener),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": PLAIN_JAAS if mechanism == "PLAIN" else SCRAM_JAAS,
    }


def spindle_client(node: SpindleNode, listener: str, mechanism: str) -> WireClient:
    return WireClient(client_settings(properties(node, listener, mechanism)))


def librdkafka(node: SpindleNode, mechanism: str, topic: str, password: str) -> list[bytes]:
    failures: list[KafkaError] = []
    config = {
        "bootstrap.servers": node.secure_bootstrap("LOGIN"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
        "log_level": 0,
        "error_cb": failures.append,
    }
    producer = Producer(config)
    for value in VALUES:
        producer.produce(topic, value, partition=0)
    deadline = time.monotonic() + LIMIT_S
    while producer.flush(0.1) and time.monotonic() < deadline:
        for failure in failures:
            if failure.code() == KafkaError._AUTHENTICATION:
                producer.purge()
                raise KafkaException(failure)
    consumer = Consumer({**config, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([LibrdkafkaPartition(topic, 0, 0)])
    messages = consumer.consume(len(VALUES), LIMIT_S)
    consumer.close()
    return [message.value() or b"" for message in messages]


def aiokafka(node: SpindleNode, mechanism: str, topic: str, password: str) -> list[bytes]:
    config = {
        "bootstrap_servers": node.secure_bootstrap("LOGIN"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }

    async def steps() -> list[bytes]:
        async with AIOKafkaProducer(**config) as producer:
            for value in VALUES:
                await producer.send_and_wait(topic, value, partition=0)
        async with AIOKafkaConsumer(**config, enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            await consumer.seek_to_beginning()
            return [(await consumer.getone()).value for _ in VALUES]

    return asyncio.run(asyncio.wait_for(steps(), LIMIT_S))


def kafka_python(node: SpindleNode, mechanism: str, topic: str, password: str) -> list[bytes]:
    config = {
        "bootstrap_servers": node.secure_bootstrap("LOGIN"),
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": password,
    }
    producer = KafkaProducer(**config, bootstrap_timeout_ms=3000 if password == WRONG else 30_000)
    for value in VALUES:
        producer.send(topic, value, partition=0).get(LIMIT_S)
    producer.close()
    consumer = KafkaConsumer(**config, enable_auto_commit=False)
    place = KafkaPythonPartition(topic, 0)
    consumer.assign([place])
    consumer.seek_to_beginning(place)
    values = [next(consumer).value for _ in VALUES]
    consumer.close()
    return values


Library = Callable[[SpindleNode, str, str, str], list[bytes]]
LIBRARIES: list[tuple[Library, type[Exception]]] = [
    (librdkafka, KafkaException),
    (aiokafka, KafkaConnectionError),
    (kafka_python, KafkaPythonError),
]


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("library", [function for function, _ in LIBRARIES])
def test_python_libraries_write_and_read(
    node: SpindleNode, library: Library, mechanism: str
) -> None:
    topic = f"{library.__name__}-{mechanism}"
    create(node, topic)
    assert library(node, mechanism, topic, PASSWORD) == VALUES


@pytest.mark.parametrize("mechanism", MECHANISMS[::2])
@pytest.mark.parametrize(("library", "error"), LIBRARIES)
def test_python_libraries_get_the_text_of_kafka_for_a_wrong_password(
    node: SpindleNode,
    library: Library,
    error: type[Exception],
    mechanism: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    wanted = PLAIN_REFUSAL if mechanism == "PLAIN" else SCRAM_REFUSAL + mechanism
    with pytest.raises(error) as refused:
        library(node, mechanism, "no-topic", WRONG)
    # Some say only in their log why there is no connection.
    assert wanted in f"{refused.value} {caplog.text}"


def test_franz_go_writes_and_reads_with_each_mechanism(node: SpindleNode) -> None:
    program = franz_program()

    def franz(mechanism: str, password: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        script, *rest = arguments
        return subprocess.run(
            [str(program), "-sasl", mechanism, script, node.secure_bootstrap("LOGIN"), *rest],
            env={**os.environ, "FRANZ_USER": USER, "FRANZ_PASSWORD": password},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    for mechanism in MECHANISMS:
        topic = f"franz-{mechanism}"
        create(node, topic, 2)
        sample = ("none", "all", "idempotent", str(FIRST_TIMESTAMP_MS))
        done = franz(mechanism, PASSWORD, "produce", topic, *sample)
        assert done.returncode == 0, done.stderr
        done = franz(mechanism, PASSWORD, "consume", topic)
        assert len(done.stdout.splitlines()) == 100, done.stderr
    refused = franz("SCRAM-SHA-512", WRONG, "versions", "x")
    assert "SASL_AUTHENTICATION_FAILED" in refused.stderr
    assert SCRAM_REFUSAL + "SCRAM-SHA-512" in refused.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS[::2])
def test_tools_of_kafka_log_in_and_show_the_refusal(
    node: SpindleNode, tmp_path: Path, mechanism: str
) -> None:
    file = tmp_path / "client.properties"
    text = format_properties(properties(node, "LOGIN", mechanism))
    file.write_text(text)
    arguments = ("--bootstrap-server", node.secure_bootstrap("LOGIN"), "--command-config")
    create(node, f"java-{mechanism}")
    listed = run_in_new_jvm("topics", *arguments, str(file), "--list").check()
    assert f"java-{mechanism}" in listed.lines
    file.write_text(text.replace(USER, "nobody"))
    refused = run_in_new_jvm("topics", *arguments, str(file), "--list")
    wanted = PLAIN_REFUSAL if mechanism == "PLAIN" else SCRAM_REFUSAL + mechanism
    assert wanted in refused.stdout + refused.stderr
    assert "SaslAuthenticationException" in refused.stdout + refused.stderr


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_a_login_inside_tls_is_that_of_the_user(node: SpindleNode, mechanism: str) -> None:
    create(node, f"tls-{mechanism}")
    config = {
        "bootstrap.servers": node.secure_bootstrap("LOGIN_TLS"),
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(node.folder / "ca.pem"),
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "log_level": 0,
    }
    producer = Producer(config)
    producer.produce(f"tls-{mechanism}", b"one", partition=0)
    assert producer.flush(LIMIT_S) == 0
    consumer = Consumer({**config, "group.id": "x", "enable.auto.commit": False})
    consumer.assign([LibrdkafkaPartition(f"tls-{mechanism}", 0, 0)])
    assert [message.value() for message in consumer.consume(1, LIMIT_S)] == [b"one"]
    consumer.close()


def test_sessions_are_renewed_on_their_connections(node: SpindleNode) -> None:
    failures: list[KafkaError] = []
    create(node, "renewed")
    producer = Producer(
        {
            "bootstrap.servers": node.secure_bootstrap("SHORT"),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
            "error_cb": failures.append,
        }
    )
    with spindle_client(node, "SHORT", "PLAIN") as client:
        (broker,) = client.metadata().brokers.values()
        connection = client.connection(broker)
        end = time.monotonic() + 2.5 * SESSION_MS / 1000
        while time.monotonic() < end:
            client.metadata()
            producer.produce("renewed", b"x", partition=0)
            assert producer.flush(LIMIT_S) == 0
        assert client.connection(broker) is connection
    assert failures == []


def test_a_user_who_is_removed_stays_until_the_end_of_the_session(node: SpindleNode) -> None:
    plain = client_settings({"bootstrap.servers": node.bootstrap})
    mechanism = ScramMechanism.SCRAM_SHA_256
    with spindle_client(node, "LOGIN", mechanism.text) as user:
        user.metadata()
        user.metadata()  # on a connection to the broker that the first answer has named
        try:
            with WireClient(plain) as admin:
                alter_user(admin, USER, [], [mechanism])
            wait_until(lambda: not can_log_in(node, mechanism.text), limit_s=LIMIT_S, pause_s=0)
            user.metadata()
        finally:
            add_users(node)
            await_user(node)


def test_the_log_names_users_and_reasons_and_shows_no_password(node: SpindleNode) -> None:
    with pytest.raises(KafkaConnectionError):
        aiokafka(node, "PLAIN", "no-topic", WRONG + PASSWORD)
    text = node.output()
    assert (
        f"authentication of '{USER}' with PLAIN on listener LOGIN from 127.0.0.1 failed: wrong "
        "password"
    ) in text
    assert WRONG not in text
    assert "s=s" not in text
    assert "Traceback" not in text
