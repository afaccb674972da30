"""Limits the memory that fetches read into, each of them and all together (KIP-541)."""

from typing import Final

_TOGETHER_BYTES: Final = 128 * 1024 * 1024
SMALL_FETCH_BYTES: Final = 64 * 1024


class FetchMemory:
    """Grants bytes to fetches while they read from disk.

    When much is granted already, a new fetch gets little instead of waiting: its client makes
    progress and fetches again.

    Args:
        max_bytes: what one fetch may have, `fetch.max.bytes`.
        together_bytes: what all may have before grants become small.
    """

    def __init__(self, max_bytes: int, together_bytes: int = _TOGETHER_BYTES) -> None:
        self.granted_bytes = 0
        self._max_bytes = max_bytes
        self._together_bytes = together_bytes

    def grant(self, wanted_bytes: int) -> int:
        """Return how many bytes may be read; give them back when the fetch is answered."""
        granted = min(wanted_bytes, self._max_bytes)
        if self.granted_bytes + granted > self._together_bytes:
            granted = min(granted, SMALL_FETCH_BYTES)
        self.granted_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        """End a grant."""
        self.granted_bytes -= granted_bytes
