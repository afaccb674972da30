"""A whole node on the test's own event loop, and a small client that speaks to it over TCP."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from struct import pack, unpack
from typing import Any, TypeVar

from click.testing import CliRunner

from spindle.cli.main import spindle
from spindle.common.ports import Bytes
from spindle.config.node_config import NodeConfig
from spindle.protocol.api import APIS, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.create_topics import CreateTopicsRequest
from spindle.protocol.messages.fetch import FetchRequest
from spindle.protocol.messages.produce import ProduceRequest, ProduceResponse
from spindle.protocol.records.batch import batches
from spindle.protocol.records.builder import SimpleRecord, build_batch
from spindle.protocol.records.record import Record, decode_records
from spindle.runtime.disks.directory_thread import DirectoryThread
from spindle.runtime.node import Node

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
R = TypeVar("R", bound=Message)
LANE_KEY = "spindle.native.lane.enable"
_LANE = {LANE_KEY: "true"} if os.environ.get("SPINDLE_TEST_LANE") else {}
"""With SPINDLE_TEST_LANE=1 in the environment, all nodes of these tests have native lanes."""


class Home:
    """A formatted node's folder."""

    def __init__(self, folder: Path, directories: int = 3, **overrides: str) -> None:
        self.directories = [folder / f"disk{number}" for number in range(1, directories + 1)]
        self.properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": "1@127.0.0.1:65000",
            "listeners": "PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": ",".join(map(str, self.directories)),
            "offsets.topic.num.partitions": "4",
            "offsets.topic.replication.factor": "1",
            "group.initial.rebalance.delay.ms": "0",
            "group.consumer.assignment.interval.ms": "0",
            **_LANE,
            **{key.replace("_", "."): value for key, value in overrides.items()},
        }
        self.file = folder / "server.properties"
        self.write_properties()

    def write_properties(self) -> None:
        lines = (f"{key}={value}\n" for key, value in self.properties.items())
        self.file.write_text("".join(lines))

    def format(self, *extra: str) -> "Home":
        invocation = CliRunner().invoke(
            spindle, ["storage", "format", "-t", CLUSTER_ID, "-c", str(self.file), *extra]
        )
        assert invocation.exit_code == 0, invocation.output
        return self

    def config(self) -> NodeConfig:
        return NodeConfig.from_properties(self.properties)


def partition_folders(home: Home) -> dict[str, str]:
    """Folder name -> disk."""
    return {
        folder.name: disk.name
        for disk in home.directories
        for folder in disk.iterdir()
        if folder.is_dir() and not folder.name.startswith("__")
    }


class Client:
    """One connection. `ask` sends at the newest version unless told otherwise."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._correlation_id = 0

    async def ask(self, request: Message, version: int | None = None) -> Any:
        api = APIS[request.API_KEY]
        version = api.last_version if version is None else version
        self._correlation_id += 1
        prefix = request_prefix(api.key, version, self._correlation_id, "test")
        await self.send(prefix + encode(request, version))
        frame = await self.receive()
        assert unpack(">i", frame[:4])[0] == self._correlation_id
        start = 4 + response_header_version(api.key, version)
        response, end = decode(response_class(api.key), version, frame, start)
        assert end == len(frame)
        return response

    def send_bytes(self, data: bytes) -> None:
        """Send bytes that need not be a request."""
        self._writer.write(data)

    async def send(self, frame: bytes) -> None:
        self._writer.write(pack(">i", len(frame)) + frame)
        await self._writer.drain()

    async def receive(self) -> bytes:
        size = unpack(">i", await self._reader.readexactly(4))[0]
        return await self._reader.readexactly(size)

    async def receive_bytes(self, count: int) -> bytes:
        return await self._reader.readexactly(count)

    def close(self) -> None:
        self._writer.close()

    async def create_topic(
        self, name: str, partitions: int = 1, configs: dict[str, str] | None = None
    ) -> bytes:
        """Return the topic's id."""
        topic = CreateTopicsRequest.CreatableTopic
        response = await self.ask(
            CreateTopicsRequest(
                timeout_ms=10_000,
                topics=[
                    topic(
                        name=name,
                        num_partitions=partitions,
                        replication_factor=1,
                        configs=[
                            topic.CreatableTopicConfig(name=key, value=value)
                            for key, value in (configs or {}).items()
                        ],
                    )
                ],
            )
        )
        assert response.topics[0].error_code == 0, response
        topic_id: bytes = response.topics[0].topic_id
        return topic_id

    async def produce(
        self, topic: str, partition: int, records: bytes, acks: int = -1
    ) -> ProduceResponse.TopicProduceResponse.PartitionProduceResponse:
        """Return the answer for the one partition."""
        response = await self.ask(produce_request(topic, partition, records, acks), version=12)
        answer: ProduceResponse.TopicProduceResponse.PartitionProduceResponse = response.responses[
            0
        ].partition_responses[0]
        return answer

    async def fetch(
        self, topic: str, partition: int, offset: int, *, max_wait_ms: int = 500, min_bytes: int = 1
    ) -> Any:
        """Return the answer for the one partition (version 12, without a session)."""
        request = fetch_request(topic, partition, offset)
        request.max_wait_ms, request.min_bytes = max_wait_ms, min_bytes
        response = await self.ask(request, version=12)
        return response.responses[0].partitions[0]


def produce_request(topic: str, partition: int, records: bytes, acks: int = -1) -> ProduceRequest:
    data = ProduceRequest.TopicProduceData
    part = data.PartitionProduceData(index=partition, records=records)
    return ProduceRequest(
        acks=acks, timeout_ms=5_000, topic_data=[data(name=topic, partition_data=[part])]
    )


def fetch_request(topic: str, partition: int, offset: int) -> FetchRequest:
    """Return a fetch of one partition, without a session."""
    wanted = FetchRequest.FetchTopic
    part = wanted.FetchPartition(
        partition=partition, fetch_offset=offset, partition_max_bytes=1 << 25
    )
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 25,
        session_epoch=-1,
        topics=[wanted(topic=topic, partitions=[part])],
    )


def batch_of(*values: bytes, **options: Any) -> bytes:
    return build_batch(
        [SimpleRecord(value=v, timestamp_ms=1_700_000_000_000) for v in values], **options
    )


def records_in(data: Bytes | None) -> list[Record]:
    data = data or b""
    return [r for at, header in batches(data) for r in decode_records(data, at, header)]


@asynccontextmanager
async def running(home: Home) -> AsyncIterator[Node]:
    """Yield a started node; stopped in order at the end."""
    node = Node(home.config())
    try:
        await node.start()
        yield node
    finally:
        await node.stop()


@asynccontextmanager
async def connected(node: Node, listener: str = "PLAINTEXT") -> AsyncIterator[Client]:
    """Yield a client of the broker's first listener, or of the controller's if that is named."""
    if listener == "PLAINTEXT":
        assert node.broker is not None
        port = node.broker.listeners[0].port
    else:
        assert node.controller is not None
        port = next(e.port for e in node.controller.registrar.endpoints if e.listener == listener)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    client = Client(reader, writer)
    try:
        yield client
    finally:
        client.close()


def thread_of(node: Node, path: Path | str) -> DirectoryThread:
    """Return the I/O thread of a log directory of a broker."""
    assert node.broker is not None
    directory = node.broker.replicas.directory_at(str(path))
    assert directory is not None
    assert isinstance(directory.executor, DirectoryThread)
    return directory.executor
