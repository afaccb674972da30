"""Sends a table of requests to a node over a plain socket and makes the answers comparable.

A request is written as plain data (dicts, lists) by the field names of the message classes. It is
sent at every version that both programs advertise. Ids, ports, times and paths that belong to one
node are replaced by names; everything else has to be equal.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import pack, unpack
from typing import Any

from peers.compare import plain_text
from peers.node import Node

from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.protocol.api import APIS, request_class, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Field, Message
from spindle.protocol.records.batch import batches

KEYS = {api.name: api.key for api in APIS.values()}
LIMIT_S = 4.0
PATIENCE_S = 60.0
EARLY = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
UNSETTLED = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
CLOSED = "<connection closed>"
NO_ANSWER = "<no answer>"
NOT_WRITABLE = "<the version cannot say this>"

_RANDOM_ID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BASE64_ID = re.compile(r"(?<![A-Za-z0-9_-])[A-Za-z0-9_-]{21}[AQgw](?![A-Za-z0-9_-])")

_NAMING = (
    "name", "topic", "topic_name", "group_id", "resource_name", "resource_type",
    "member_id", "entity_type", "transactional_id",
    "partition_index", "key", "log_dir", "broker_id", "feature", "user", "topic_id",
)  # fmt: skip

# Fields whose value is a time, a size on the machine or a counter of the node.
_ANY_VALUE = {"throttle_time_ms"}
_SIGN_ONLY = {
    "total_bytes", "usable_bytes", "last_fetch_timestamp", "last_caught_up_timestamp",
    "log_end_offset", "session_id", "producer_id", "finalized_features_epoch", "log_append_time_ms",
    "transaction_start_time_ms", "last_timestamp",
}  # fmt: skip


@dataclass
class State:
    """Values from earlier answers of a node, which later requests may contain."""

    node: Node
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)


Body = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One request. `{v}` in its strings is the version; `keep` stores parts of the answer.

    Kafka's brokers see a change a moment later: `settle_s` is waited after a change. Both nodes
    answer before the markers of a transaction are written: `pause_s` is waited. A request that
    is `patient` is sent again while the answer shows that the node does not know of a change yet,
    one with `until` while that is not true of the answer.
    """

    name: str
    api: str
    body: Body | Callable[[State], Body]
    versions: range | None = None
    keep: Callable[[State, Any], None] | None = None
    settle_s: float = 0.0
    pause_s: float = 0.0
    patient: bool = False
    until: Callable[[Any], bool] | None = None

    def is_early(self, answer: Any) -> bool:
        """Return True if the request has to be sent again."""
        if self.until is not None:
            return not self.until(answer)
        return self.patient and is_early(answer)


def build(cls: type[Message], values: Body) -> Message:
    """Build a message from plain data; raise KeyError for a field that it does not have."""
    fields = {one.name: one for one in cls.FIELDS}
    return cls(**{name: _value(fields[name], value) for name, value in values.items()})


def _value(one: Field, value: Any) -> Any:
    if value is None or isinstance(one.type, str):
        return value
    if one.is_array:
        return [build(one.type, element) for element in value]
    return build(one.type, value)


class Wire:
    """One connection to a node, opened again after the node has closed it.

    Args:
        host: address of this machine from which the node sees the client.
    """

    def __init__(self, node: Node, host: str = "127.0.0.1") -> None:
        self._node = node
        self._host = host
        self._socket: socket.socket | None = None
        self._correlation_id = 0

    def ask(self, api: str, version: int, body: Body) -> Any:
        """Return the decoded answer, or CLOSED, NO_ANSWER or NOT_WRITABLE."""
        key = KEYS[api]
        try:
            content = encode(build(request_class(key), body), version)
        except (ProtocolViolation, TypeError, ValueError, AttributeError):
            return NOT_WRITABLE
        try:
            frame = self.exchange(key, version, content)
        except (ConnectionError, EOFError):
            self.close()
            return CLOSED
        except TimeoutError:
            self.close()
            return NO_ANSWER
        if key == KEYS["api_versions"] and unpack_from_error(frame) == 35:
            version = 0
        start = 4 + response_header_version(key, version)
        answer, end = decode(response_class(key), version, frame, start)
        assert end == len(frame), f"{api} v{version}: {len(frame) - end} bytes behind the answer"
        return answer

    def exchange(self, key: int, version: int, content: bytes) -> bytes:
        """Return the frame that answers; raise EOFError if the connection was closed."""
        self._correlation_id += 1
        prefix = request_prefix(key, version, self._correlation_id, "audit")
        if self._socket is None:
            self._socket = socket.create_connection(
                ("127.0.0.1", self._node.port), LIMIT_S, (self._host, 0)
            )
        self._socket.sendall(pack(">i", len(prefix) + len(content)) + prefix + content)
        size = unpack(">i", self._read(4))[0]
        return self._read(size)

    def _read(self, count: int) -> bytes:
        assert self._socket is not None
        parts = bytearray()
        while len(parts) < count:
            part = self._socket.recv(count - len(parts))
            if not part:
                raise EOFError
            parts += part
        return bytes(parts)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


def unpack_from_error(frame: bytes) -> int:
    """Return the error code that follows the correlation id."""
    return int(unpack(">h", frame[4:6])[0])


def play(
    node: Node,
    cases: list[Case],
    versions: dict[str, range],
    host: str = "127.0.0.1",
    state: State | None = None,
) -> dict[str, Any]:
    """Return all answers of one node by "case vN", as comparable data."""
    wire, state = Wire(node, host), state or State(node)
    answers: dict[str, Any] = {}
    try:
        for case in cases:
            for version in case.versions or versions.get(case.api, range(0)):
                learn_topic_ids(wire, state, case)
                body = case.body(state) if callable(case.body) else case.body
                answer = wire.ask(case.api, version, with_version(body, version))
                deadline = time.monotonic() + PATIENCE_S
                while case.is_early(answer) and time.monotonic() < deadline:
                    time.sleep(0.1)
                    answer = wire.ask(case.api, version, with_version(body, version))
                if case.keep is not None:
                    case.keep(state, answer)
                answers[f"{case.api} / {case.name} v{version}"] = comparable(answer, state)
                time.sleep(case.pause_s + (case.settle_s if node.kind == "kafka" else 0))
    finally:
        wire.close()
    return answers


def is_early(value: Any) -> bool:
    """Return True if there is no answer yet, or only an error that will pass by itself."""
    return _has_error(value, EARLY) or value is NO_ANSWER


def is_settled(value: Any) -> bool:
    """Return True unless the coordinator is still loading or completing a transaction."""
    return not _has_error(value, UNSETTLED)


def _has_error(value: Any, errors: set[ErrorCode]) -> bool:
    if isinstance(value, Message):
        return any(
            (one.name.endswith("error_code") and getattr(value, one.name) in errors)
            or _has_error(getattr(value, one.name), errors)
            for one in value.FIELDS
        )
    return isinstance(value, list) and any(_has_error(one, errors) for one in value)


def learn_topic_ids(wire: Wire, state: State, case: Case) -> None:
    if callable(case.body) and not state.topic_ids:
        answer = wire.ask("metadata", 12, {"topics": None})
        state.topic_ids = {one.name: one.topic_id for one in answer.topics}


def with_version(value: Any, version: int) -> Any:
    if isinstance(value, dict):
        return {key: with_version(one, version) for key, one in value.items()}
    if isinstance(value, list):
        return [with_version(one, version) for one in value]
    if isinstance(value, str):
        return value.replace("{v}", str(version))
    return value


def comparable(value: Any, state: State, name: str = "") -> Any:
    """Return `value` as plain data, with names in place of this node's own values."""
    if isinstance(value, Message):
        return {f.name: _field(value, f, state) for f in value.FIELDS}
    if isinstance(value, list):
        return [comparable(one, state, name) for one in value]
    if isinstance(value, str):
        return _text(value, state.node)
    if isinstance(value, bytes | bytearray | memoryview):
        return (without_producers(value) if name == "records" else bytes(value)).hex()
    return value


def without_producers(records: bytes | bytearray | memoryview) -> bytes:
    """Return records without producer ids, checksums that contain one, and times of markers."""
    data = bytearray(records)
    for position, header in batches(records):
        if header.producer_id >= 0:
            data[position + 17 : position + 21] = bytes(4)
            data[position + 43 : position + 51] = bytes(8)
        if header.is_control:
            data[position + 27 : position + 43] = bytes(16)
    return bytes(data)


def _field(message: Message, one: Field, state: State) -> Any:
    value = getattr(message, one.name)
    if one.name in _ANY_VALUE:
        return "<any>"
    if one.name in _SIGN_ONLY and isinstance(value, int):
        return "<positive>" if value > 0 else value
    if one.name == "port" and value in (state.node.port, state.node.controller_port):
        return "<port>" if value == state.node.port else "<controller port>"
    if one.type == "uuid":
        names = {topic_id: name for name, topic_id in state.topic_ids.items()}
        ids = [item or b"" for item in (value if isinstance(value, list) else [value])]
        return [names.get(item, "<id>" if any(item) else "<zero id>") for item in ids]
    return comparable(value, state, one.name)


def _text(text: str, node: Node) -> str:
    text = plain_text(text, node)
    return _BASE64_ID.sub("<id>", _RANDOM_ID.sub("<uuid>", text))


def differences(path: str, expected: Any, actual: Any) -> Iterator[str]:
    """Yield every place where two answers differ, as `path: kafka -> candidate`."""
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        for key in expected:
            yield from differences(f"{path}.{key}", expected[key], actual[key])
    elif isinstance(expected, list) and isinstance(actual, list) and expected != actual:
        titles = _titles(expected), _titles(actual)
        if titles[0] != titles[1] and sorted(titles[0]) == sorted(titles[1]):
            yield f"{path}: order {_short(titles[0])} -> {_short(titles[1])}"
            expected, actual = (sorted(one, key=_title) for one in (expected, actual))
        if len(expected) == len(actual):
            for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
                yield from differences(f"{path}[{_title(one, index)}]", one, other)
        else:
            missing = [one for one in expected if one not in actual]
            extra = [one for one in actual if one not in expected]
            counts = f"{len(expected)} -> {len(actual)} elements"
            yield f"{path}: {counts}, only kafka {_short(missing)}, only other {_short(extra)}"
    elif expected != actual:
        yield f"{path}: {_short(expected)} -> {_short(actual)}"


def _title(element: Any, index: int = 0) -> str:
    if isinstance(element, dict):
        names = [element[key] for key in _NAMING if element.get(key)]
        if names:
            return " ".join(map(str, names))
        if "last_sequence" in element:
            return repr(element)
        if "entity" in element:
            return repr(sorted(map(repr, element["entity"])))
    return str(index) if isinstance(element, dict | list) else str(element)


def _titles(elements: list[Any]) -> list[str]:
    return [_title(one) for one in elements]


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else text[:300] + "..."
