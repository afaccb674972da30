"""The same frames to a SASL listener of Apache Kafka and of Spindle: equal answers and ends."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from struct import pack, unpack

import pytest
from peers.node import KafkaNode, Node, SpindleNode
from peers.secured_kafka import PASSWORD, SESSION_MS, USER, mechanisms

from spindle.protocol.api import ApiKey, request_class, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest

pytestmark = pytest.mark.timeout(180)

LIMIT_S = 30.0
TOKEN = f"\0{USER}\0{PASSWORD}".encode()
WRONG = f"\0{USER}\0wrong".encode()
COMPARED = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


@dataclass(frozen=True)
class Frame:
    """A frame to send, and how to read its answer; a key of None is a token without headers."""

    content: bytes
    key: int | None
    version: int = 0


def ask(key: int, version: int) -> Frame:
    content = encode(request_class(key)(), version)
    return Frame(request_prefix(key, version, 7, "x") + content, key, version)


def shake(mechanism: str, version: int = 1) -> Frame:
    key = ApiKey.SASL_HANDSHAKE
    content = encode(SaslHandshakeRequest(mechanism=mechanism), version)
    return Frame(request_prefix(key, version, 7, "x") + content, key, version)


def show(token: bytes, version: int = 2) -> Frame:
    key = ApiKey.SASL_AUTHENTICATE
    content = encode(SaslAuthenticateRequest(auth_bytes=token), version)
    return Frame(request_prefix(key, version, 7, "x") + content, key, version)


def raw(token: bytes) -> Frame:
    return Frame(token, None)


VERSIONS = ask(ApiKey.API_VERSIONS, 0)
METADATA = ask(ApiKey.METADATA, 0)
HEARTBEAT = ask(ApiKey.HEARTBEAT, 0)
PLAIN = shake("PLAIN")

CASES: dict[str, list[Frame]] = {
    "plain": [VERSIONS, PLAIN, show(TOKEN), METADATA],
    "plain, version 0": [PLAIN, show(TOKEN, 0), METADATA],
    "plain, version 1": [PLAIN, show(TOKEN, 1), METADATA],
    "own name to act as": [PLAIN, show(USER.encode() + TOKEN), METADATA],
    "wrong password": [PLAIN, show(WRONG), METADATA],
    "wrong password, version 0": [PLAIN, show(WRONG, 0), METADATA],
    "another user to act as": [PLAIN, show(b"bob" + TOKEN), METADATA],
    "no user": [PLAIN, show(b"\0\0x"), METADATA],
    "no password": [PLAIN, show(b"\0alice\0"), METADATA],
    "empty token": [PLAIN, show(b""), METADATA],
    "too many parts": [PLAIN, show(b"\0a\0b\0c\0d"), METADATA],
    "malformed scram": [shake("SCRAM-SHA-512"), show(b"n,,x"), METADATA],
    "unknown mechanism": [shake("GSSAPI"), METADATA],
    "unknown mechanism, version 0": [shake("GSSAPI", 0), METADATA],
    "no headers": [shake("PLAIN", 0), raw(TOKEN), METADATA],
    "no headers, wrong password": [shake("PLAIN", 0), raw(WRONG), METADATA],
    "headers where there should be none": [shake("PLAIN", 0), show(TOKEN), METADATA],
    "no headers where there should be some": [PLAIN, raw(TOKEN), METADATA],
    "no handshake": [show(TOKEN), METADATA],
    "another request at first": [METADATA],
    "another request second": [VERSIONS, METADATA],
    "versions twice": [VERSIONS, VERSIONS, METADATA],
    "versions after the handshake": [PLAIN, VERSIONS],
    "handshake twice": [PLAIN, PLAIN],
    "heartbeat after the handshake": [PLAIN, HEARTBEAT],
    "handshake after authentication": [PLAIN, show(TOKEN), PLAIN, METADATA],
    "token after authentication": [PLAIN, show(TOKEN), show(TOKEN), METADATA],
    "garbage": [raw(b"\x60" * 40), METADATA],
}
# A renewal with another mechanism is answered here; Kafka closes the connection without a word.
RENEWALS: dict[str, list[Frame]] = {
    "renewed": [PLAIN, show(TOKEN), PLAIN, show(TOKEN), METADATA],
    "renewed with a wrong password": [PLAIN, show(TOKEN), PLAIN, show(WRONG)],
    "another request within a renewal": [PLAIN, show(TOKEN), PLAIN, HEARTBEAT],
}  # fmt: skip


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Node, Node]]:
    folder = tmp_path_factory.mktemp("sasl-pair")
    pair: list[Node] = []
    try:
        kinds: tuple[type[Node], ...] = (KafkaNode, SpindleNode)
        for kind in kinds:
            node = kind(
                folder / kind.kind,
                directory_count=1,
                secure_listeners={"LOGIN": "SASL_PLAINTEXT", "SHORT": "SASL_PLAINTEXT"},
                overrides={
                    **mechanisms("login", "PLAIN,SCRAM-SHA-512"),
                    **mechanisms("short", "PLAIN,SCRAM-SHA-512"),
                    "listener.name.short.connections.max.reauth.ms": str(60 * SESSION_MS),
                },
            )
            pair.append(node)
            node.format()
            node.start()
        yield pair[0], pair[1]
    finally:
        for node in pair:
            node.remove()


def receive(connection: socket.socket) -> bytes | None:
    """Return the next frame, None at the end of the connection."""

    def exactly(count: int) -> bytes:
        data = b""
        while len(data) < count:
            more = connection.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    try:
        return exactly(unpack(">i", exactly(4))[0])
    except ConnectionError:
        return None


def played(node: Node, listener: str, frames: list[Frame]) -> list[object]:
    """Return what a node answers to each frame, up to the end of the connection."""
    host, port = node.secure_bootstrap(listener).split(":")
    seen: list[object] = []
    with socket.create_connection((host, int(port)), LIMIT_S) as connection:
        for frame in frames:
            try:
                connection.sendall(pack(">i", len(frame.content)) + frame.content)
            except ConnectionError:
                return [*seen, "closed"]
            answer = receive(connection)
            if answer is None:
                return [*seen, "closed"]
            seen.append(shown(frame, answer))
    return seen


def shown(frame: Frame, answer: bytes) -> object:
    if frame.key is None:
        return answer
    if frame.key not in COMPARED:
        return "answered"
    start = 4 + response_header_version(frame.key, frame.version)
    message, end = decode(response_class(frame.key), frame.version, answer, start)
    assert end == len(answer)
    names: Iterable[str] = message.__slots__
    values = {name: getattr(message, name) for name in names}
    if "mechanisms" in values:
        values["mechanisms"] = sorted(values["mechanisms"])
    return {k: bytes(v) if isinstance(v, memoryview) else v for k, v in values.items()}


@pytest.mark.parametrize("case", CASES)
def test_a_login_goes_as_with_kafka(nodes: tuple[Node, Node], case: str) -> None:
    kafka, spindle = nodes
    assert played(spindle, "LOGIN", CASES[case]) == played(kafka, "LOGIN", CASES[case])


@pytest.mark.parametrize("case", RENEWALS)
def test_a_renewal_goes_as_with_kafka(nodes: tuple[Node, Node], case: str) -> None:
    kafka, spindle = nodes
    assert played(spindle, "SHORT", RENEWALS[case]) == played(kafka, "SHORT", RENEWALS[case])


def test_sizes_that_unauthenticated_clients_announce_cost_no_memory(
    nodes: tuple[Node, Node],
) -> None:
    _, spindle = nodes
    host, port = spindle.secure_bootstrap("LOGIN").split(":")
    before_bytes = spindle.rss_bytes()
    strangers = [socket.create_connection((host, int(port)), LIMIT_S) for _ in range(300)]
    try:
        for connection in strangers:
            connection.sendall(pack(">i", 500_000) + b"x" * 100)
        assert played(spindle, "LOGIN", CASES["plain"])[-1] == "answered"
        assert spindle.rss_bytes() - before_bytes < 60 * 2**20
    finally:
        for connection in strangers:
            connection.close()
