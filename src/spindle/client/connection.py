"""The client side of one connection without its socket: headers, correlation, versions.

The transport sends `opening()` first and passes every frame that arrives to `receive_frame`, which
returns its meaning. Other requests may be sent after `Negotiated`. A broker answers the requests of
a connection in order, so an answer belongs to the oldest open request.
"""

from collections import deque
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from spindle import __version__
from spindle.client.errors import ClientError, UnsupportedByPeer, raise_for
from spindle.client.versions import ApiVersionRange, PeerVersions
from spindle.common.errors import ErrorCode, ProtocolViolation
from spindle.common.ports import Bytes
from spindle.protocol.codec import decode, encode_parts, read_uvarint
from spindle.protocol.message import Message
from spindle.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_PREFIX: Final = Struct(">ihhih")  # frame size, API key, version, correlation id, client id length
_SIZE_BYTES: Final = 4
_CORRELATION: Final = Struct(">i")
_MAX_CORRELATION_ID: Final = 0x7FFFFFFF


class Negotiated(NamedTuple):
    """The peer has sent its API versions; requests may be sent now."""

    versions: PeerVersions


class SendAgain(NamedTuple):
    """The peer does not know this version of ApiVersions; `parts` is a request in one it knows."""

    parts: list[Bytes]


class ReceivedAnswer(NamedTuple):
    """The answer to an open request. Record sets in it are slices of the frame."""

    correlation_id: int
    response: Message


Received: TypeAlias = Negotiated | SendAgain | ReceivedAnswer


class ExpectedBroker(NamedTuple):
    """The broker that a connection must reach (KIP-1242)."""

    cluster_id: str
    node_id: int

    def __str__(self) -> str:
        return f"broker {self.node_id} of cluster {self.cluster_id}"


class _OpenRequest(NamedTuple):
    correlation_id: int
    response: type[Message]
    version: int


class ClientConnection:
    """The state of one connection.

    Args:
        client_id: The name of the client in the broker's log and quotas.
        expected: The broker that the peer must be; any other one refuses the connection, if it
            knows ApiVersions 5. None for a peer whose id is not known, such as a bootstrap server.
        max_in_flight: The most open requests at a time.
    """

    def __init__(
        self,
        client_id: str,
        *,
        expected: ExpectedBroker | None = None,
        software_name: str = "spindle",
        software_version: str = __version__,
        max_in_flight: int = 100,
    ) -> None:
        self._client_id = client_id.encode()
        self._expected = expected
        self._software_name = software_name
        self._software_version = software_version
        self._max_in_flight = max_in_flight
        self._next_correlation_id = 0
        self._open: deque[_OpenRequest] = deque()
        self._versions: PeerVersions | None = None

    @property
    def versions(self) -> PeerVersions:
        """The API versions of the peer.

        Raises:
            ClientError: the peer has not answered ApiVersions yet.
        """
        if self._versions is None:
            raise ClientError("the connection has not agreed on versions yet")
        return self._versions

    @property
    def in_flight(self) -> int:
        """The number of requests without an answer."""
        return len(self._open)

    def opening(self) -> list[Bytes]:
        """Return the first bytes of a connection: an ApiVersions request."""
        return self._ask_versions(ApiVersionsRequest.LAST_VERSION)

    def request(
        self,
        message: Message,
        response: type[Message],
        *,
        first_version: int = 0,
        last_version: int | None = None,
    ) -> tuple[int, list[Bytes]]:
        """Open a request in the newest common version; return its correlation id and bytes.

        Args:
            first_version: The oldest version that can express the request.
            last_version: The newest version whose fields the caller filled.

        Raises:
            UnsupportedByPeer: there is no common version.
            ClientError: versions are not agreed on, or too many requests are open.
        """
        version = self.versions.pick(type(message), first=first_version, last=last_version)
        if len(self._open) >= self._max_in_flight:
            raise ClientError(f"{len(self._open)} requests are open, which is the limit")
        return self._enqueue(message, response, version)

    def request_without_answer(
        self, message: Message, *, last_version: int | None = None
    ) -> list[Bytes]:
        """Return the bytes of a request that the broker does not answer (Produce with acks 0)."""
        version = self.versions.pick(type(message), last=last_version)
        return self._frame(message, version, self._take_correlation_id())

    def receive_frame(self, frame: memoryview) -> Received:
        """Return the meaning of a frame from the peer.

        Raises:
            ProtocolViolation: it does not answer the oldest open request.
            UnsupportedByPeer: there is no common version of ApiVersions.
            ApiError: the peer refused ApiVersions; REBOOTSTRAP_REQUIRED if it is not the expected
                broker.
        """
        if not self._open:
            raise ProtocolViolation("the broker sent an answer although no request is open")
        opened = self._open.popleft()
        body, correlation_id = self._read_header(frame, opened)
        if correlation_id != opened.correlation_id:
            raise ProtocolViolation(
                f"the broker answered request {correlation_id} "
                f"instead of request {opened.correlation_id}"
            )
        if self._versions is None:
            return self._negotiate(frame, body, opened)
        message, _ = decode(opened.response, opened.version, frame, body)
        return ReceivedAnswer(correlation_id, message)

    def _ask_versions(self, version: int) -> list[Bytes]:
        question = ApiVersionsRequest(
            client_software_name=self._software_name,
            client_software_version=self._software_version,
        )
        if self._expected is not None:
            question.cluster_id, question.node_id = self._expected
        return self._enqueue(question, ApiVersionsResponse, version)[1]

    def _enqueue(
        self, message: Message, response: type[Message], version: int
    ) -> tuple[int, list[Bytes]]:
        correlation_id = self._take_correlation_id()
        parts = self._frame(message, version, correlation_id)
        self._open.append(_OpenRequest(correlation_id, response, version))
        return correlation_id, parts

    def _take_correlation_id(self) -> int:
        taken = self._next_correlation_id
        self._next_correlation_id = 0 if taken == _MAX_CORRELATION_ID else taken + 1
        return taken

    def _frame(self, message: Message, version: int, correlation_id: int) -> list[Bytes]:
        """Return the frame of a request: size, request header v1 or v2 (KIP-482), body."""
        header_end = b"\x00" if version >= message.FLEXIBLE_FROM else b""
        header = self._client_id + header_end
        parts = encode_parts(message, version, bytes(_PREFIX.size) + header)
        size_bytes = sum(map(len, parts)) - _SIZE_BYTES
        _PREFIX.pack_into(
            parts[0],  # the buffer that the codec began with the prefix
            0,
            size_bytes,
            message.API_KEY,
            version,
            correlation_id,
            len(self._client_id),
        )
        return parts

    @staticmethod
    def _read_header(frame: memoryview, opened: _OpenRequest) -> tuple[int, int]:
        """Return the position of the body and the correlation id."""
        if len(frame) < _CORRELATION.size:
            raise ProtocolViolation(f"an answer of {len(frame)} bytes has no header")
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        position = _CORRELATION.size
        # ApiVersions keeps the old header, so that a client can read it before it knows the broker.
        is_flexible = opened.version >= opened.response.FLEXIBLE_FROM
        if is_flexible and opened.response is not ApiVersionsResponse:
            position = _skip_tagged_fields(frame, position)
        return position, correlation_id

    def _negotiate(
        self, frame: memoryview, body: int, opened: _OpenRequest
    ) -> Negotiated | SendAgain:
        # A broker that does not know the version of the request answers in version 0.
        (code,) = Struct(">h").unpack_from(frame, body) if len(frame) >= body + 2 else (0,)
        refused = code == ErrorCode.UNSUPPORTED_VERSION
        version = 0 if refused else opened.version
        response, _ = decode(ApiVersionsResponse, version, frame, body)
        if not refused:
            self._check(response.error_code)
            self._versions = PeerVersions.of(response)
            return Negotiated(self._versions)
        served = PeerVersions.of(response).served(ApiVersionsRequest.API_KEY)
        known = PeerVersions({ApiVersionsRequest.API_KEY: served or ApiVersionRange(0, 0)})
        retry = known.pick(ApiVersionsRequest)
        if retry >= opened.version:
            raise UnsupportedByPeer(f"the broker refuses ApiVersions version {opened.version}")
        return SendAgain(self._ask_versions(retry))

    def _check(self, code: int) -> None:
        if code == ErrorCode.REBOOTSTRAP_REQUIRED and self._expected is not None:
            raise_for(code, "ApiVersions", f"this is not {self._expected}")
        raise_for(code, "ApiVersions")


def _skip_tagged_fields(frame: memoryview, position: int) -> int:
    try:
        if not frame[position]:
            return position + 1
        count, position = read_uvarint(frame, position)
        for _ in range(count):
            _, position = read_uvarint(frame, position)
            size_bytes, position = read_uvarint(frame, position)
            position += size_bytes
    except IndexError:
        position = len(frame) + 1
    if position > len(frame):
        raise ProtocolViolation("the header of an answer does not fit into its frame")
    return position
