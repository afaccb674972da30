"""A small broker for the tests of the wire client, with real sockets and scripted answers.

Logs are lists of record batches in memory. A test may replace the next answers (`interrupt`).
"""

import contextlib
import socket
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, Self

from spindle.common.errors import ErrorCode
from spindle.common.ids import TopicPartition
from spindle.protocol.codec import decode, encode, read_uvarint
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)
from spindle.protocol.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from spindle.protocol.messages.fetch import FetchRequest, FetchResponse
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from spindle.protocol.messages.metadata import MetadataRequest, MetadataResponse
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from spindle.protocol.messages.sasl_handshake import SaslHandshakeRequest
from spindle.protocol.records.batch import read_header

REQUEST_HEADER = Struct(">hhih")
NODE_ID = 7
EVERY_REQUEST: tuple[type[Message], ...] = (
    ProduceRequest,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    ApiVersionsRequest,
    DescribeConfigsRequest,
    DescribeLogDirsRequest,
    FindCoordinatorRequest,
    SaslHandshakeRequest,
    SaslAuthenticateRequest,
)
Handler = Callable[[Any], Message | bytes | None]


@dataclass
class PartitionLog:
    """The batches of one partition, in order."""

    batches: list[bytes] = field(default_factory=list)
    log_start_offset: int = 0
    aborted: list[tuple[int, int]] = field(default_factory=list)
    end_offset: int = 0
    last_stable_offset: int | None = None

    def append(self, batch: bytes) -> None:
        self.batches.append(batch)
        self.end_offset = read_header(batch).next_offset

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return whole batches from the one with the offset on; at least one if there is any."""
        data = b""
        for batch in self.batches:
            if read_header(batch).last_offset < max(offset, self.log_start_offset):
                continue
            if data and len(data) + len(batch) > max_bytes:
                # A real broker cuts its answer at a size in bytes.
                return data + batch[: max_bytes - len(data)]
            data += batch
        return data


class WireBroker:
    """A node that leads all partitions. Use it as a context manager."""

    def __init__(self, *, last_versions: dict[type[Message], int] | None = None) -> None:
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.internal: list[str] = []
        self.cluster_id, self.node_id = "wire-broker", NODE_ID
        self.requests: dict[type[Message], list[Any]] = defaultdict(list)
        self.versions: dict[type[Message], int] = {}
        self._last_versions = last_versions or {}
        self._interruptions: dict[type[Message], list[Handler]] = defaultdict(list)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._threads: list[threading.Thread] = []
        self._open: list[socket.socket] = []
        self._closed = False
        self.port: int = self._listener.getsockname()[1]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.drop_connections()
        for thread in self._threads:
            thread.join(5)
            assert not thread.is_alive()

    def log(self, topic: str, partition: int) -> PartitionLog:
        """Return the log of a partition; create it if it is new."""
        self.topic_ids.setdefault(topic, topic.encode().ljust(16, b"\x2a")[:16])
        return self.logs.setdefault(TopicPartition(topic, partition), PartitionLog())

    def interrupt(self, request: type[Message], *answers: Handler) -> None:
        """Replace the next answers of a kind; None closes the connection, bytes are sent as they
        are.
        """
        self._interruptions[request].extend(answers)

    def drop_connections(self) -> None:
        for connection in self._open:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    # ------------------------------------------------------------ sockets

    def _start(self, target: Callable[..., None], *arguments: Any) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._open.append(connection)
            self._start(self._serve, connection)

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError), self.secured(connection) as connection:
            for frame in _frames(connection):
                answer = self._answer(frame)
                if answer is None:
                    return
                connection.sendall(len(answer).to_bytes(4, "big") + answer)

    def secured(self, connection: socket.socket) -> socket.socket:
        """Return the socket to talk on; a broker with TLS does its handshake here."""
        return connection

    def _answer(self, frame: bytes) -> bytes | None:
        key, version, correlation_id, length = REQUEST_HEADER.unpack_from(frame)
        kind = next(
            request_class for request_class in EVERY_REQUEST if key == request_class.API_KEY
        )
        position = REQUEST_HEADER.size + length
        is_flexible = version >= kind.FLEXIBLE_FROM
        if is_flexible:
            tags, position = read_uvarint(frame, position)
            assert tags == 0
        request, end = decode(kind, version, frame, position)
        assert end == len(frame)
        self.requests[kind].append(request)
        self.versions[kind] = version
        waiting = self._interruptions[kind]
        response = waiting.pop(0)(request) if waiting else self.handle(request)
        if response is None:
            return None
        if isinstance(response, bytes):
            return response
        tags_out = b"\x00" if is_flexible and kind is not ApiVersionsRequest else b""
        header: bytes = correlation_id.to_bytes(4, "big") + tags_out
        return header + encode(response, version)

    # ------------------------------------------------------------ answers

    def handle(self, request: Any) -> Message:
        """Return the answer of a healthy broker."""
        match request:
            case ApiVersionsRequest():
                return self._api_versions(request)
            case MetadataRequest():
                return self._metadata(request)
            case ListOffsetsRequest():
                return self._list_offsets(request)
            case FetchRequest():
                return self._fetch(request)
            case ProduceRequest():
                return self._produce(request)
            case DescribeLogDirsRequest():
                return self._log_dirs()
            case DescribeConfigsRequest():
                return self._configs(request)
        raise AssertionError(request)

    def _api_versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        named = (request.cluster_id, request.node_id)
        if named not in ((None, -1), (self.cluster_id, self.node_id)):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        return ApiVersionsResponse(
            api_keys=[
                ApiVersionsResponse.ApiVersion(
                    api_key=kind.API_KEY,
                    min_version=kind.FIRST_VERSION,
                    max_version=self._last_versions.get(kind, kind.LAST_VERSION),
                )
                for kind in EVERY_REQUEST
            ]
        )

    def _metadata(self, request: MetadataRequest) -> MetadataResponse:
        every = {log.topic for log in self.logs}
        names = sorted(every) if request.topics is None else [t.name for t in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponse.MetadataResponseBroker(
                    node_id=self.node_id, host="127.0.0.1", port=self.port
                )
            ],
            cluster_id=self.cluster_id,
            controller_id=self.node_id,
            topics=[self._topic(name or "") for name in names],
        )

    def _topic(self, name: str) -> MetadataResponse.MetadataResponseTopic:
        kind = MetadataResponse.MetadataResponseTopic
        partitions = [log.partition for log in self.logs if log.topic == name]
        if not partitions:
            return kind(name=name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return kind(
            name=name,
            topic_id=self.topic_ids[name],
            is_internal=name in self.internal,
            partitions=[
                kind.MetadataResponsePartition(partition_index=p, leader_id=self.node_id)
                for p in partitions
            ],
        )

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        topic_kind = ListOffsetsResponse.ListOffsetsTopicResponse
        return ListOffsetsResponse(
            topics=[
                topic_kind(
                    name=topic.name,
                    partitions=[
                        topic_kind.ListOffsetsPartitionResponse(
                            partition_index=partition.partition_index,
                            offset=self._offset(
                                TopicPartition(topic.name, partition.partition_index),
                                partition.timestamp,
                                request.isolation_level,
                            ),
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _offset(self, partition: TopicPartition, timestamp: int, isolation_level: int) -> int:
        log = self.logs[partition]
        if timestamp == -1:
            stable = log.last_stable_offset
            return stable if isolation_level == 1 and stable is not None else log.end_offset
        if timestamp == -2:
            return log.log_start_offset
        headers = map(read_header, log.batches)
        return next((h.base_offset for h in headers if h.max_timestamp >= timestamp), -1)

    def _fetch(self, request: FetchRequest) -> FetchResponse:
        (topic,) = request.topics
        (wanted,) = topic.partitions
        kind = FetchResponse.FetchableTopicResponse
        data = kind.PartitionData(partition_index=wanted.partition)
        name = topic.topic or next(
            (n for n, topic_id in self.topic_ids.items() if topic_id == topic.topic_id), ""
        )
        log = self.logs.get(TopicPartition(name, wanted.partition))
        if log is None:
            data.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        elif not log.log_start_offset <= wanted.fetch_offset <= log.end_offset:
            data.error_code = ErrorCode.OFFSET_OUT_OF_RANGE
        else:
            data.records = log.read(wanted.fetch_offset, wanted.partition_max_bytes)
            data.high_watermark = log.end_offset
            data.log_start_offset = log.log_start_offset
            data.aborted_transactions = [
                kind.PartitionData.AbortedTransaction(producer_id=p, first_offset=o)
                for p, o in log.aborted
            ]
        answer = kind(topic=topic.topic, topic_id=topic.topic_id, partitions=[data])
        return FetchResponse(responses=[answer])

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        name = topic.name or next(
            n for n, topic_id in self.topic_ids.items() if topic_id == topic.topic_id
        )
        log = self.logs[TopicPartition(name, data.index)]
        base_offset = log.end_offset
        log.append(bytes(data.records or b""))
        kind = ProduceResponse.TopicProduceResponse
        result = kind.PartitionProduceResponse(index=data.index, base_offset=base_offset)
        answer = kind(name=topic.name, topic_id=topic.topic_id, partition_responses=[result])
        return ProduceResponse(responses=[answer])

    def _log_dirs(self) -> DescribeLogDirsResponse:
        result = DescribeLogDirsResponse.DescribeLogDirsResult
        topic = result.DescribeLogDirsTopic
        return DescribeLogDirsResponse(
            results=[
                result(
                    log_dir="/disk",
                    topics=[
                        topic(
                            name=partition.topic,
                            partitions=[
                                topic.DescribeLogDirsPartition(
                                    partition_index=partition.partition,
                                    partition_size=sum(map(len, log.batches)),
                                )
                            ],
                        )
                        for partition, log in self.logs.items()
                    ],
                )
            ]
        )

    def _configs(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        result = DescribeConfigsResponse.DescribeConfigsResult
        return DescribeConfigsResponse(
            results=[
                result(
                    resource_name=resource.resource_name,
                    configs=[result.DescribeConfigsResourceResult(name="k", value="v")],
                )
                for resource in request.resources
            ]
        )


def _frames(connection: socket.socket) -> Iterator[bytes]:
    stream = connection.makefile("rb")
    while True:
        size = stream.read(4)
        if len(size) < 4:
            return
        frame = stream.read(int.from_bytes(size, "big"))
        yield frame
