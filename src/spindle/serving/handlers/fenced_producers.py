"""The error of a fenced producer, in the words that a client of each version knows (KIP-588)."""

from spindle.common.errors import ErrorCode
from spindle.serving.context import RequestContext


def fencing_code(context: RequestContext, code: ErrorCode, from_version: int) -> ErrorCode:
    """Return the code; before `from_version` PRODUCER_FENCED is INVALID_PRODUCER_EPOCH."""
    if code is ErrorCode.PRODUCER_FENCED and context.api_version < from_version:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
