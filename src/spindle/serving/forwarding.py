"""Client requests that a broker forwards to the active controller (KIP-590).

An Envelope holds the client's request with its header, the client's principal and its address. The
response holds the client's response with its header.
"""

import logging
from collections.abc import Callable
from ipaddress import ip_address
from struct import Struct
from typing import Final

from spindle.common.errors import ApiError, ErrorCode, ProtocolViolation
from spindle.protocol.api import (
    APIS,
    request_class,
    response_class,
    response_header_version,
)
from spindle.protocol.codec import decode, encode
from spindle.protocol.framing import (
    SIZE,
    read_request_header,
    request_prefix,
    response_body,
    response_prefix,
)
from spindle.protocol.message import Message
from spindle.protocol.messages.default_principal_data import DefaultPrincipalData
from spindle.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from spindle.serving.context import RequestContext

log = logging.getLogger(__name__)

_VERSION: Final = Struct(">h")


def seal_request(message: Message, context: RequestContext) -> EnvelopeRequest:
    """Wrap a client's request, or a request that the broker makes on behalf of the client."""
    version = _version(message, context)
    prefix = request_prefix(message.API_KEY, version, context.correlation_id, context.client_id)
    kind, _, name = context.principal.partition(":")
    principal = DefaultPrincipalData(
        type=kind, name=name, token_authenticated=context.is_token_authenticated
    )
    return EnvelopeRequest(
        request_data=prefix + encode(message, version),
        request_principal=_VERSION.pack(0) + encode(principal, 0),
        client_host_address=_packed(context.client_address),
    )


def open_response(response: EnvelopeResponse, message: Message, context: RequestContext) -> Message:
    """Return the controller's response to `message`.

    Raises:
        ApiError: the envelope was refused; NOT_CONTROLLER if another node is active.
    """
    if response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        # The right that is missing is this broker's, not the client's.
        log.error(
            "the controller refuses to be forwarded to: this broker's principal needs "
            "CLUSTER_ACTION on the cluster, by an ACL or as one of super.users"
        )
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller refused the broker")
    if response.error_code:
        raise ApiError(ErrorCode(response.error_code), "the controller refused to be forwarded to")
    data = response.response_data
    if data is None:
        raise ProtocolViolation("an envelope came back without an answer and without an error")
    version = _version(message, context)
    header_version = response_header_version(message.API_KEY, version)
    body = response_body(data, context.correlation_id, header_version)
    answer, _ = decode(response_class(message.API_KEY), version, memoryview(data), body)
    return answer


def open_request(
    envelope: EnvelopeRequest,
    is_served: Callable[[int], bool],
    max_elements: Callable[[int], int],
) -> tuple[Message, RequestContext]:
    """Return the client's request and its context.

    Args:
        max_elements: how many elements a request of an API may have.

    Raises:
        ApiError: INVALID_REQUEST for an API that is not forwarded or a principal that cannot be
            read, UNSUPPORTED_VERSION for an unknown version.
        ProtocolViolation: the content is not a request.
    """
    data = memoryview(envelope.request_data)
    header = read_request_header(data)
    api = APIS[header.api_key]
    if not api.is_forwarded or not is_served(header.api_key):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{api.message_name} is not forwarded")
    if not api.first_version <= header.api_version <= api.last_version:
        raise ApiError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"{api.message_name} version {header.api_version} is not supported, "
            f"versions {api.first_version} to {api.last_version} are",
        )
    message, _ = decode(
        request_class(header.api_key),
        header.api_version,
        data,
        header.body,
        max_elements(header.api_key),
    )
    principal = _principal(envelope.request_principal)
    context = RequestContext(
        header.api_key,
        header.api_version,
        header.correlation_id,
        header.client_id or "",
        _unpacked(envelope.client_host_address),
        "",  # the listener is one of the broker's
        f"{principal.type}:{principal.name}",
        is_token_authenticated=principal.token_authenticated,
    )
    return message, context


def seal_response(response: Message, context: RequestContext) -> EnvelopeResponse:
    """Wrap the controller's response."""
    body = encode(response, context.api_version)
    header_version = response_header_version(context.api_key, context.api_version)
    prefix = response_prefix(len(body), context.correlation_id, header_version)
    return EnvelopeResponse(response_data=prefix[SIZE.size :] + body)


def _version(message: Message, context: RequestContext) -> int:
    """Return the client's version; the newest for a request that the broker makes for it."""
    is_own = context.api_key == message.API_KEY
    return context.api_version if is_own else message.LAST_VERSION


def _packed(address: str) -> bytes:
    try:
        return ip_address(address).packed
    except ValueError:
        return bytes(4)  # the client has no network address


def _unpacked(packed: bytes) -> str:
    try:
        return str(ip_address(bytes(packed)))
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"a client address has 4 or 16 bytes, not {len(packed)}"
        ) from None


def _principal(data: bytes | None) -> DefaultPrincipalData:
    if not data or len(data) < _VERSION.size:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, "the principal is missing")
    (version,) = _VERSION.unpack_from(data)
    if version != 0:
        raise ApiError(
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, f"principal version {version} is unknown"
        )
    try:
        principal, _ = decode(DefaultPrincipalData, 0, memoryview(data), _VERSION.size)
    except ProtocolViolation as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    return principal
