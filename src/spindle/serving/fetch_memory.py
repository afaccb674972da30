"""How much fetches may read into memory, each and all at the same time (KIP-541)."""

from typing import Final

_TOGETHER_BYTES: Final = 128 * 1024 * 1024
SMALL_FETCH_BYTES: Final = 64 * 1024


class FetchMemory:
    """Grants of bytes to fetches that are being read from disk.

    A fetch that comes when much is granted already gets little: its consumer makes progress and
    comes again. Nobody waits.

    Args:
        max_bytes: what one fetch may have, `fetch.max.bytes`.
        together_bytes: what all may have before grants become small.
    """

    def __init__(self, max_bytes: int, together_bytes: int = _TOGETHER_BYTES) -> None:
        self.granted_bytes = 0
        self._max_bytes = max_bytes
        self._together_bytes = together_bytes

    def grant(self, wanted_bytes: int) -> int:
        """What may be read now, to be given back when it is known how much it was."""
        granted = min(wanted_bytes, self._max_bytes)
        if self.granted_bytes + granted > self._together_bytes:
            granted = min(granted, SMALL_FETCH_BYTES)
        self.granted_bytes += granted
        return granted

    def give_back(self, granted_bytes: int) -> None:
        self.granted_bytes -= granted_bytes
