"""A server and an in-process network for the tests of the quorum's driver."""

import asyncio
import ssl
from collections.abc import Callable
from struct import Struct

from spindle.protocol.api import request_class, response_class, response_header_version
from spindle.protocol.codec import decode, encode
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from spindle.raft.ready import Destination
from spindle.runtime.peers.port import PeerUnavailable
from spindle.runtime.quorum.metadata_quorum import RaftMetadataQuorum

_HEADER = Struct(">hhih")


class Network:
    """Carries messages between nodes of one process, through the codec; nodes are known by port."""

    def __init__(self) -> None:
        self.nodes: dict[int, RaftMetadataQuorum] = {}

    async def request(self, destination: Destination, message: Message) -> Message:
        node = self.nodes.get(destination.port)
        if node is None:
            raise PeerUnavailable(f"{destination} is down")
        kind = type(message)
        sent, _ = decode(kind, kind.LAST_VERSION, encode(message, kind.LAST_VERSION))
        if isinstance(sent, ApiVersionsRequest):
            return all_versions()
        answer = await node.handle(sent)
        kind = response_class(message.API_KEY)
        received, _ = decode(kind, kind.LAST_VERSION, encode(answer, kind.LAST_VERSION))
        return received

    def close(self) -> None:
        """Nothing is open."""


def all_versions() -> ApiVersionsResponse:
    feature = ApiVersionsResponse.SupportedFeatureKey(
        name="kraft.version", min_version=0, max_version=1
    )
    ranges = ((18, 0, 4), (1, 4, 18), (52, 0, 2), (53, 0, 1), (17, 0, 1), (36, 0, 2))
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, first, last in ranges
        ],
        supported_features=[feature],
    )


class PeerServer:
    """A peer on a socket of its own; `answer` gives the answer to a request, None hangs up.

    With a TLS context, its connections have TLS.
    """

    def __init__(
        self,
        answer: Callable[[Message, int], Message | None],
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.connections = 0
        self.negotiations = 0
        self._context = context
        self.versions = all_versions()
        self._answer = answer
        self._server: asyncio.Server | None = None
        self._tasks: list[asyncio.StreamWriter] = []

    async def start(self) -> Destination:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        return Destination(2, "127.0.0.1", self._server.sockets[0].getsockname()[1])

    def hang_up(self) -> None:
        """Close all connections and go on listening."""
        for writer in self._tasks:
            writer.close()

    def send_unasked(self, answer: Message, version: int, correlation_id: int) -> None:
        """Send an answer on all connections without having been asked."""
        for writer in self._tasks:
            writer.write(_answer_frame(answer, answer.API_KEY, version, correlation_id))

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._tasks:
            writer.close()
        await asyncio.sleep(0)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.append(writer)
        while True:
            try:
                size = int.from_bytes(await reader.readexactly(4), "big")
                frame = await reader.readexactly(size)
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            key, version, correlation_id, client_id_length = _HEADER.unpack_from(frame)
            position = _HEADER.size + client_id_length
            kind = request_class(key)
            if version >= kind.FLEXIBLE_FROM:
                position += 1
            request, _ = decode(kind, version, frame, position)
            self.negotiations += key == 18
            answer = self.versions if key == 18 else self._answer(request, version)
            if answer is None:
                writer.close()
                return
            writer.write(_answer_frame(answer, key, version, correlation_id))


def _answer_frame(answer: Message, key: int, version: int, correlation_id: int) -> bytes:
    header = correlation_id.to_bytes(4, "big")
    header += b"\x00" * response_header_version(key, version)
    body = header + encode(answer, version)
    return len(body).to_bytes(4, "big") + body
