"""The failures of requests, and which of them a client may retry.

An error code in an answer becomes an `ApiError`; the exceptions below are for requests that were
not answered. `is_worth_retrying` decides for both whether a retry may succeed.
"""

from typing import Final

from spindle.common.errors import RETRIABLE, ApiError, ErrorCode


class ClientError(Exception):
    """A request that could not be sent or was not answered."""


class UnsupportedByPeer(ClientError):
    """The peer and this client have no common version of an API."""


class ConnectionLost(ClientError):
    """The connection could not be made, or ended before the answer."""


class RequestTimedOut(ClientError):
    """The answer did not arrive in time."""


class AuthenticationFailed(ClientError):
    """The broker or this client refused the other one. A retry has the same result."""


class TlsFailed(AuthenticationFailed):
    """The TLS handshake failed: a certificate, a version, or a peer without TLS."""


class SaslFailed(AuthenticationFailed):
    """The login failed: credentials, a mechanism, or a listener without SASL."""


class NotInMetadata(ApiError):
    """The brokers know no such topic or partition. It may have been created a moment ago."""


class BrokerNotRunning(ApiError):
    """A request is for one broker only, and the metadata does not name this broker."""


_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)


class RefusedWithoutText(ApiError):
    """A refusal without a text of the broker: the message names only the subject."""


def raise_for(number: int, subject: str, message: str | None = None) -> None:
    """Raise `ApiError` with this subject unless the code is that of success."""
    if number != 0:
        raise error_for(number, subject, message)


def error_for(number: int, subject: str, message: str | None = None) -> ApiError:
    """Return the error for the code of a failure."""
    code = ErrorCode(number)
    if not message and code in _DENIED:
        message = "the user is not authorized"
    unknown = f" (error code {number})" if code != number else ""
    if message:
        return ApiError(code, f"{subject}: {message}{unknown}")
    return RefusedWithoutText(code, f"{subject}{unknown}")


def is_worth_retrying(error: BaseException) -> bool:
    """Return True if the same request may succeed after a pause and with fresh metadata."""
    if isinstance(error, ApiError):
        # The next attempt begins with the bootstrap servers (KIP-1102).
        return error.code in RETRIABLE or error.code is ErrorCode.REBOOTSTRAP_REQUIRED
    return isinstance(error, ConnectionLost | RequestTimedOut)
