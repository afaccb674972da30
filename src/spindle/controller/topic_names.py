"""Which topic names are allowed (KIP-4)."""

import re
from collections.abc import Iterable
from typing import Final

from spindle.common.errors import ApiError, ErrorCode

MAX_NAME_LENGTH: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Refuse a name that cannot be a directory on every broker.

    Raises:
        ApiError: INVALID_TOPIC_EXCEPTION.
    """
    flaw = _flaw_of(name)
    if flaw is not None:
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {flaw}")


def is_topic_name(name: str) -> bool:
    """Return whether `check_topic_name` accepts the name."""
    return _flaw_of(name) is None


def _flaw_of(name: str) -> str | None:
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > MAX_NAME_LENGTH:
        return f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    if not _LEGAL.fullmatch(name):
        return (
            f"'{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )
    return None


class NameCollisions:
    """Names that differ only in '.' and '_', which would share metric names."""

    def __init__(self, existing: Iterable[str]) -> None:
        self._existing = existing
        self._by_key: dict[str, str] | None = None

    def check(self, name: str) -> None:
        """Refuse a name that collides with an existing topic.

        Raises:
            ApiError: INVALID_TOPIC_EXCEPTION.
        """
        if "." not in name and "_" not in name:
            return
        if self._by_key is None:
            self._by_key = {
                other.replace(".", "_"): other
                for other in self._existing
                if "." in other or "_" in other
            }
        other = self._by_key.get(name.replace(".", "_"))
        if other is not None and other != name:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"Topic '{name}' collides with existing topic: {other}",
            )
