"""Clients of librdkafka and Java at TLS listeners of Spindle, while its certificates change."""

from __future__ import annotations

import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import CERTIFICATE_NAMES, PASSWORD, Certified, certified, named
from confluent_kafka import Consumer, KafkaError, Message, Producer
from cryptography.hazmat.primitives.serialization import Encoding
from peers.java_tools import run_in_new_jvm
from peers.node import SpindleNode
from peers.paths import java
from waiting import wait_for, wait_until

from spindle.config.properties import format_properties

pytestmark = pytest.mark.timeout(180)

HOSTS = ("127.0.0.1", "localhost")
LIMIT_S = 60.0
SERVER = certified("broker", hosts=HOSTS)
CLIENT = certified("alice")


def of_listener(name: str, **keys: str) -> dict[str, str]:
    """Return keys of a listener; in names of `keys`, `_` stands for a dot."""
    return {f"listener.name.{name}.{key.replace('_', '.')}": text for key, text in keys.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tls")


@pytest.fixture(scope="module")
def node(folder: Path) -> Iterator[SpindleNode]:
    trust_file = folder / "ca.pem"
    trust_file.write_text(SERVER.authority_pem)
    (folder / "server.p12").write_bytes(SERVER.key_store_pkcs12())
    trusted = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(trust_file)}
    running = SpindleNode(
        folder / "node",
        directory_count=1,
        secure_listeners={"FILE": "SSL", "MUTUAL": "SSL", "INLINE": "SSL"},
        overrides={
            **of_listener(
                "file",
                ssl_keystore_type="PEM",
                ssl_keystore_location=str(SERVER.write(folder, "server")),
            ),
            **of_listener(
                "mutual",
                ssl_keystore_type="PKCS12",
                ssl_keystore_location=str(folder / "server.p12"),
                ssl_keystore_password=PASSWORD,
                ssl_client_auth="required",
                **trusted,
            ),
            **of_listener(
                "inline",
                ssl_keystore_type="PEM",
                ssl_keystore_key=SERVER.key_pem().replace("\n", " "),
                ssl_keystore_certificate_chain=SERVER.certificate_pem.replace("\n", " "),
                ssl_enabled_protocols="TLSv1.2",
            ),
        },
    )
    try:
        running.format()
        running.start()
        yield running
    finally:
        running.remove()


def librdkafka(node: SpindleNode, listener: str, **further: str) -> dict[str, Any]:
    """Return the configuration of a client; in names of `further`, `_` stands for a dot."""
    return {
        "bootstrap.servers": node.secure_bootstrap(listener),
        "security.protocol": "ssl",
        "ssl.ca.pem": SERVER.authority_pem,
        **{key.replace("_", "."): value for key, value in further.items()},
    }


def own_key(certified: Certified) -> dict[str, str]:
    return {"ssl_key_pem": certified.key_pem(), "ssl_certificate_pem": certified.certificate_pem}


def send(config: dict[str, Any], topic: str, values: list[bytes]) -> None:
    producer = Producer({**config, "linger.ms": 5})
    errors: list[KafkaError] = []

    def note(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            errors.append(error)

    for value in values:
        producer.produce(topic, value, on_delivery=note)
    assert producer.flush(LIMIT_S) == 0
    assert not errors


def read(config: dict[str, Any], topic: str, count: int) -> list[bytes | None]:
    consumer = Consumer({**config, "group.id": f"of {topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    deadline = time.monotonic() + LIMIT_S
    while len(values) < count and time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            values.append(message.value())
    consumer.close()
    return values


@pytest.mark.parametrize("listener", ["FILE", "MUTUAL", "INLINE"])
def test_librdkafka_writes_and_reads_at_every_listener(node: SpindleNode, listener: str) -> None:
    values = [bytes([number % 256]) * 20_000 for number in range(300)]
    config = librdkafka(node, listener, **own_key(CLIENT))
    send(config, f"by-{listener}", values)
    assert read(config, f"by-{listener}", len(values)) == values


def test_the_java_client_writes_and_reads_with_a_certificate(
    node: SpindleNode, folder: Path
) -> None:
    (folder / "trust.p12").write_bytes(SERVER.trust_store_pkcs12())
    (folder / "client.p12").write_bytes(CLIENT.key_store_pkcs12())
    config = folder / "java.properties"
    properties = {
        "security.protocol": "SSL",
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(folder / "client.p12"),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    config.write_text(format_properties(properties))
    bootstrap = node.secure_bootstrap("MUTUAL")
    written = run_in_new_jvm(
        "producer-perf",
        *("--bootstrap-server", bootstrap, "--command-config", str(config)),
        *("--topic", "java", "--num-records", "2000", "--record-size", "5000"),
        *("--throughput", "-1"),
    ).check()
    assert "2000 records sent" in written.stdout
    shown = run_in_new_jvm(
        "consumer-perf",
        *("--bootstrap-server", bootstrap, "--command-config", str(config)),
        *("--topic", "java", "--num-records", "2000", "--timeout", "60000"),
    ).check()
    assert ", 2000, " in shown.stdout, shown.stdout


def shown_serial(node: SpindleNode, listener: str) -> int:
    """Return the serial number of the certificate that a new connection is shown."""
    host, port = node.secure_bootstrap(listener).split(":")
    context = ssl.create_default_context(cadata=SERVER.authority_pem)
    with (
        socket.create_connection((host, int(port)), timeout=LIMIT_S) as opened,
        context.wrap_socket(opened, server_hostname=host) as secured,
    ):
        certificate = secured.getpeercert()
        assert certificate is not None
        return int(str(certificate["serialNumber"]), 16)


def wait_until_logged(node: SpindleNode, producer: Producer, text: str) -> None:
    def output() -> str:
        producer.poll(0.1)
        return node.output()

    wait_for(output, lambda printed: text in printed, text, limit_s=LIMIT_S, pause_s=0)


def await_serial(node: SpindleNode, listener: str, serial: int) -> None:
    wait_until(
        lambda: shown_serial(node, listener) == serial,
        lambda: node.output()[-2000:],
        limit_s=LIMIT_S,
        pause_s=0.1,
    )


def test_a_renewed_file_and_a_renewed_configuration_drop_no_connection(
    node: SpindleNode, folder: Path
) -> None:
    config = librdkafka(node, "FILE")
    disconnects: list[str] = []
    producer = Producer({**config, "error_cb": lambda error: disconnects.append(str(error))})
    producer.produce("renewed", b"first")
    assert producer.flush(LIMIT_S) == 0
    by_file = certified("broker", hosts=HOSTS)
    by_file.write(folder, "server")
    await_serial(node, "FILE", by_file.certificate.serial_number)
    producer.produce("renewed", b"second")
    assert producer.flush(LIMIT_S) == 0
    by_request = certified("broker", hosts=HOSTS)
    path = by_request.write(folder, "by-request")
    alter = (
        *("--bootstrap-server", node.bootstrap, "--alter", "--entity-type", "brokers"),
        *("--entity-name", "1", "--add-config"),
    )
    key = "listener.name.file.ssl.keystore.location"
    refused = run_in_new_jvm("configs", *alter, f"{key}={folder / 'absent.pem'}")
    assert "cannot be read" in refused.stdout + refused.stderr
    run_in_new_jvm("configs", *alter, f"{key}={path}").check()
    await_serial(node, "FILE", by_request.certificate.serial_number)
    producer.produce("renewed", b"third")
    assert producer.flush(LIMIT_S) == 0
    assert not disconnects
    assert read(config, "renewed", 3) == [b"first", b"second", b"third"]


def test_clients_with_the_wrong_protocol_or_certificate_are_named_in_the_log(
    node: SpindleNode,
) -> None:
    wrong = [
        {"bootstrap.servers": node.secure_bootstrap("FILE")},
        librdkafka(node, "MUTUAL"),
        librdkafka(node, "MUTUAL", **own_key(certified("mallory", authority="stranger"))),
        librdkafka(node, "FILE") | {"ssl.ca.pem": certified("x", authority="y").authority_pem},
    ]
    words = [
        "listener FILE: no TLS with the client at 127.0.0.1: it does not speak TLS",
        "listener MUTUAL: no TLS with the client at 127.0.0.1: it has no certificate",
        "listener MUTUAL: no TLS with the client at 127.0.0.1: its certificate is not accepted",
        "listener FILE: no TLS with the client at 127.0.0.1: it refuses the certificate",
    ]
    for config, text in zip(wrong, words, strict=True):
        producer = Producer(config)
        producer.produce("wrong", b"x")

        wait_until_logged(node, producer, text)
        producer.purge()
        producer.flush(LIMIT_S)
    assert node.output().count(words[0]) == 1


_JAVA_NAMES = """
import java.io.FileInputStream;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;

public class Names {
    public static void main(String[] paths) throws Exception {
        CertificateFactory factory = CertificateFactory.getInstance("X.509");
        for (String path : paths) {
            try (FileInputStream in = new FileInputStream(path)) {
                X509Certificate certificate = (X509Certificate) factory.generateCertificate(in);
                byte[] name = certificate.getSubjectX500Principal().getName().getBytes("UTF-8");
                System.out.write(name, 0, name.length);
                System.out.println();
            }
        }
    }
}
"""


def test_distinguished_names_are_written_as_java_writes_them(tmp_path: Path) -> None:
    paths = []
    for number, subject in enumerate(CERTIFICATE_NAMES.values()):
        paths.append(tmp_path / f"{number}.der")
        paths[-1].write_bytes(named(subject).public_bytes(Encoding.DER))
    source = tmp_path / "Names.java"
    source.write_text(_JAVA_NAMES)
    done = subprocess.run(
        [java(), str(source), *map(str, paths)], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == list(CERTIFICATE_NAMES)
