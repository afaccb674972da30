"""A client of a group coordinator that costs little: a hundred connections on one event loop.

Each member of a group has a connection of its own, as in real clients, because a JoinGroup that
waits for other members holds up its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from struct import Struct
from typing import Any, TypeVar, cast

import uvloop
from peers.node import Node

from spindle.common.errors import ErrorCode
from spindle.protocol.api import APIS
from spindle.protocol.codec import encode
from spindle.protocol.framing import request_prefix
from spindle.protocol.message import Message
from spindle.protocol.messages.find_coordinator import FindCoordinatorRequest
from spindle.protocol.messages.offset_commit import OffsetCommitRequest
from verification.fuzz.wire import read_answer

_SIZE = Struct(">i")
_CORRELATION_ID = 1
_LIMIT_S = 120.0
_PAUSE_S = 0.05
_NAMED_COMMIT = 9
"""The last version of OffsetCommit that names topics; later ones have topic ids."""

R = TypeVar("R")


class Link(asyncio.Protocol):
    """A connection with one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._answer: asyncio.Future[bytes] | None = None

    @classmethod
    async def open(cls, node: Node) -> Link:
        """Connect to a node."""
        loop = asyncio.get_running_loop()
        _, link = await loop.create_connection(cls, "127.0.0.1", node.port)
        return link

    def close(self) -> None:
        assert self._transport is not None
        self._transport.abort()

    async def ask(self, request: Message, version: int | None = None) -> Any:
        """Return the answer to a request at its newest version, or at an older one."""
        key = request.API_KEY
        version = APIS[key].last_version if version is None else version
        return read_answer(await self.send(frame(request, version)), key, version, _CORRELATION_ID)

    def send(self, request: bytes) -> asyncio.Future[bytes]:
        """Send a frame; return the payload of the answer's frame."""
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transport is a Transport, but not of this class.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._received += data
        received = self._received
        if len(received) < _SIZE.size:
            return
        end = _SIZE.size + _SIZE.unpack_from(received)[0]
        if len(received) >= end and self._answer is not None:
            answer, self._answer = self._answer, None
            payload = bytes(received[_SIZE.size : end])
            received.clear()
            if not answer.done():
                answer.set_result(payload)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError(f"the broker hung up: {exc}"))


def frame(request: Message, version: int) -> bytes:
    """Return a request with its size and header. Every frame has the same correlation id."""
    key = request.API_KEY
    payload = request_prefix(key, version, _CORRELATION_ID, "bench") + encode(request, version)
    return _SIZE.pack(len(payload)) + payload


def run(work: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine to its end, at most for two minutes."""
    return uvloop.run(asyncio.wait_for(work, _LIMIT_S))


async def wait_for_coordinator(node: Node, group_ids: Sequence[str]) -> None:
    """Wait until the groups have a coordinator."""
    link = await Link.open(node)
    request = FindCoordinatorRequest(coordinator_keys=list(group_ids))
    answer = await link.ask(request)
    while any(one.error_code for one in answer.coordinators):
        await asyncio.sleep(_PAUSE_S)
        answer = await link.ask(request)
    link.close()


def commit(group_id: str, topic: str, partitions: int) -> OffsetCommitRequest:
    """Return a commit of a client that is no member, as of a tool or of `assign()`."""
    wanted = OffsetCommitRequest.OffsetCommitRequestTopic
    part = wanted.OffsetCommitRequestPartition
    parts = [
        part(partition_index=partition, committed_offset=42) for partition in range(partitions)
    ]
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=-1,
        topics=[wanted(name=topic, partitions=parts)],
    )


async def commit_repeatedly(
    node: Node, requests: Sequence[OffsetCommitRequest], connections: int, count: int
) -> float:
    """Send commits in turn on several connections; return the seconds that `count` of them took.

    A request is encoded once, and its answers are compared with a first one that was decoded.

    Raises:
        RuntimeError: a commit was refused.
    """
    loop = asyncio.get_running_loop()
    links = [await Link.open(node) for _ in range(connections)]
    answer = await links[0].ask(requests[0], _NAMED_COMMIT)
    while answer.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        await asyncio.sleep(_PAUSE_S)
        answer = await links[0].ask(requests[0], _NAMED_COMMIT)
    _raise_unless(all(not one.error_code for one in answer.topics[0].partitions), answer)
    frames = [frame(request, _NAMED_COMMIT) for request in requests]
    expected = await links[0].send(frames[0])

    async def commit_some(link: Link, first: int) -> None:
        for number in range(first, count, connections):
            received = await link.send(frames[number % len(frames)])
            _raise_unless(received == expected, received)

    begin = loop.time()
    async with asyncio.TaskGroup() as tasks:
        for first, link in enumerate(links):
            tasks.create_task(commit_some(link, first))
    seconds = loop.time() - begin
    for link in links:
        link.close()
    return seconds


def _raise_unless(is_right: bool, answer: object) -> None:
    if not is_right:
        raise RuntimeError(f"a commit was refused: {answer!r}")


class Settled:
    """Waits until a condition holds that members of a group change."""

    def __init__(self) -> None:
        self._waiting: tuple[Callable[[], bool], asyncio.Future[None]] | None = None

    def changed(self) -> None:
        """Look at the condition again."""
        if self._waiting is not None:
            holds, future = self._waiting
            if not future.done() and holds():
                future.set_result(None)

    async def wait(self, holds: Callable[[], bool]) -> None:
        """Wait until `holds` returns True after a change."""
        future = asyncio.get_running_loop().create_future()
        self._waiting = holds, future
        self.changed()
        await future
