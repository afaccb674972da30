"""Kafka frames written and read by hand, so that an error of the codec cannot hide itself."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager

import crc32c
from peers.node import Node

PRODUCE, METADATA, API_VERSIONS = 0, 3, 18
UNSUPPORTED_VERSION = 35
TIMEOUT_S = 5.0


def compact(text: str) -> bytes:
    """Return a short compact string: length plus one, then the bytes."""
    data = text.encode()
    assert len(data) < 127
    return bytes([len(data) + 1]) + data


def string(text: str) -> bytes:
    """Return a string with a 2-byte length."""
    data = text.encode()
    return struct.pack(">h", len(data)) + data


def header(api_key: int, version: int, correlation_id: int, flexible: bool = False) -> bytes:
    """Return request header 1, or 2 (with an empty tag section) if `flexible`."""
    fixed = struct.pack(">hhi", api_key, version, correlation_id) + string("raw")
    return fixed + (b"\x00" if flexible else b"")


def frame(payload: bytes) -> bytes:
    """Return `payload` behind its 4-byte size."""
    return struct.pack(">i", len(payload)) + payload


def api_versions_request(version: int = 0, correlation_id: int = 1) -> bytes:
    """Return a framed ApiVersions request; versions from 3 on carry a client name."""
    flexible = version >= 3
    expected_broker = b"\x00" + struct.pack(">i", -1) if version >= 5 else b""
    body = compact("raw") + compact("1.0") + expected_broker + b"\x00" if flexible else b""
    return frame(header(API_VERSIONS, version, correlation_id, flexible) + body)


def metadata_request(topics: list[str], correlation_id: int = 1) -> bytes:
    """Return a framed Metadata v4 request that allows automatic creation."""
    body = struct.pack(">i", len(topics)) + b"".join(string(topic) for topic in topics) + b"\x01"
    return frame(header(METADATA, 4, correlation_id) + body)


def produce_request(
    topic: str, records: bytes, correlation_id: int = 1, acks: int = 1, partition: int = 0
) -> bytes:
    """Return a framed Produce v7 request with one partition."""
    body = struct.pack(">hhi", -1, acks, 5000)
    body += struct.pack(">i", 1) + string(topic)
    body += struct.pack(">iii", 1, partition, len(records)) + records
    return frame(header(PRODUCE, 7, correlation_id) + body)


def record_batch(
    values: list[bytes],
    *,
    magic: int = 2,
    attributes: int = 0,
    break_crc: bool = False,
    count: int | None = None,
) -> bytes:
    """Return an uncompressed batch of records without keys; options make it wrong on purpose."""
    records = b"".join(_record(number, value) for number, value in enumerate(values))
    body = struct.pack(
        ">hiqqqhii", attributes, len(values) - 1, 1_000, 1_000, -1, -1, -1,
        len(values) if count is None else count,
    ) + records  # fmt: skip
    checksum = crc32c.crc32c(body) ^ (1 if break_crc else 0)
    rest = struct.pack(">ibI", -1, magic, checksum) + body
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(offset_delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(offset_delta) + _varint(-1) + _varint(len(value)) + value + b"\x00"
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 31)
    out = bytearray()
    while zigzag > 127:
        out.append(zigzag & 127 | 128)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


class Connection:
    """A blocking client connection with a time limit on every operation."""

    def __init__(self, node: Node, port: int | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port or node.port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def send_or_refused(self, data: bytes) -> None:
        """Send data that the server may refuse: it may close before everything is sent."""
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            return

    def receive(self) -> bytes:
        """Return the payload of the next frame; raise EOFError if the server has closed."""
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def correlation_id(self) -> int:
        """Return the correlation id of the next answer."""
        return int(struct.unpack(">i", self.receive()[:4])[0])

    def is_closed_by_server(self) -> bool:
        """Return whether the server ends the connection without a further byte within the limit."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False

    def close(self) -> None:
        self.socket.close()

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            part = self.socket.recv(count - len(data))
            if not part:
                raise EOFError("the server closed the connection")
            data += part
        return bytes(data)


@contextmanager
def connect(node: Node, port: int | None = None) -> Iterator[Connection]:
    """Yield a connection to the broker, or to another port of the node; closed at the end."""
    connection = Connection(node, port)
    try:
        yield connection
    finally:
        connection.close()


def supported_versions(answer: bytes) -> tuple[int, dict[int, tuple[int, int]]]:
    """Return error code and ranges by API of an ApiVersions v0 answer (without the frame size)."""
    _, error, count = struct.unpack_from(">ihi", answer)
    entries = struct.iter_unpack(">hhh", answer[10 : 10 + 6 * count])
    return error, {key: (low, high) for key, low, high in entries}


def produce_error(answer: bytes) -> int:
    """Return the error code of the only partition in a Produce v7 answer."""
    (name_length,) = struct.unpack_from(">h", answer, 8)
    return int(struct.unpack_from(">h", answer, 8 + 2 + name_length + 4 + 4)[0])


def leader_of(answer: bytes, partition: int) -> int:
    """Return the leader of a partition in a Metadata v4 answer about a single topic; -1 if none."""
    position = 8
    (brokers,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(brokers):
        position += 4
        position += 2 + struct.unpack_from(">h", answer, position)[0] + 4
        rack = struct.unpack_from(">h", answer, position)[0]
        position += 2 + max(rack, 0)
    cluster = struct.unpack_from(">h", answer, position)[0]
    position += 2 + max(cluster, 0) + 4
    topics, _error = struct.unpack_from(">ih", answer, position)
    assert topics == 1
    position += 6
    position += 2 + struct.unpack_from(">h", answer, position)[0] + 1
    (partitions,) = struct.unpack_from(">i", answer, position)
    position += 4
    for _ in range(partitions):
        _, index, leader = struct.unpack_from(">hii", answer, position)
        if index == partition:
            return int(leader)
        position += 10
        for _ in range(2):
            position += 4 + 4 * struct.unpack_from(">i", answer, position)[0]
    return -1
