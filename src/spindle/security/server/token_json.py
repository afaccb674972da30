"""The JSON objects of tokens and key sets: strict, and safe against hostile input."""

import json
from base64 import b64decode
from typing import Any, NoReturn


def json_object(data: bytes) -> dict[str, Any]:
    """Return a JSON object.

    Raises:
        ValueError: the text is malformed, too deep, no object, or has a number that JSON lacks.
    """
    try:
        value = json.loads(data, parse_constant=_refuse)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise ValueError("it is not a JSON object")
    return value


def from_base64url(text: str) -> bytes:
    """Return the bytes of base64url without padding.

    Raises:
        ValueError: the text has other characters.
    """
    try:
        return b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        raise ValueError("it is not base64url") from None


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"it has the number {name}")
