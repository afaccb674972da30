"""Why a request got no usable answer, and what a client may do about it.

An error code inside an answer becomes `ApiError`; the exceptions below are for requests that were
never answered. `is_worth_retrying` is the one place that knows which of all these may pass.
"""

from spindle.common.errors import RETRIABLE, ApiError, ErrorCode


class ClientError(Exception):
    """A request that could not be sent or was not answered."""


class UnsupportedByPeer(ClientError):
    """The peer and this client have no version of an API in common."""


class ConnectionLost(ClientError):
    """The connection could not be made, or ended before the answer."""


class RequestTimedOut(ClientError):
    """No answer came in time."""


def raise_for(number: int, subject: str, message: str | None = None) -> None:
    """Raise `ApiError` naming the subject unless the number from the wire says success."""
    if number != 0:
        detail = f"{subject}: {message}" if message else subject
        code = ErrorCode(number)
        if code != number:
            detail = f"{detail} (error code {number})"
        raise ApiError(code, detail)


def is_worth_retrying(error: BaseException) -> bool:
    """True when the same request may succeed after a pause and with fresh metadata."""
    if isinstance(error, ApiError):
        return error.code in RETRIABLE
    return isinstance(error, ConnectionLost | RequestTimedOut)
