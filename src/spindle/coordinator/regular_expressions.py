"""Regular expressions of clients. RE2 matches in linear time, whatever the client sends."""

from typing import Any

from spindle.common.errors import ApiError, ErrorCode


def compile_regex(regex: str, subject: str) -> Any:
    """Return the expression as a pattern of RE2.

    Raises:
        ApiError: INVALID_REGULAR_EXPRESSION; its message calls the expression `subject`.
    """
    # Imported here, because most nodes never need it.
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode() if isinstance(reason, bytes) else str(reason)
        raise ApiError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"{subject} `{regex}` is not a valid regular expression: {text}.",
        ) from None
