"""Limits the memory of each fetch, and of all fetches together (KIP-541).

Responses that are not sent completely count, too. Records sent with sendfile do not.
"""

from collections.abc import Callable
from typing import Final, Protocol

from spindle.serving.fetch.sendfile_response import SocketOwner

_TOGETHER_BYTES: Final = 128 * 1024 * 1024
SMALL_FETCH_BYTES: Final = 64 * 1024


class UnsentMemory(Protocol):
    """The responses of all connections that are not sent completely.

    Attributes:
        total_bytes: their size, at least.
        on_decrease: called when `total_bytes` decreases.
    """

    total_bytes: int
    on_decrease: Callable[[], None]

    def make_room(self) -> None:
        """Recompute `total_bytes`, and close connections whose clients have not read for long."""
        ...


class NoSendBacklog:
    """For fetches whose clients are trusted."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.on_decrease: Callable[[], None] = lambda: None

    def make_room(self) -> None:
        """Do nothing: no client is slow."""


class FetchMemory:
    """Grants bytes to fetches while they read from disk.

    When half of the memory is in use, a new fetch gets little: its client makes progress and
    fetches again. A consumer may have to wait. The last quarter is reserved for clients that have
    read their responses, so that slow clients cannot block them.

    Args:
        max_bytes: the limit of one fetch, `fetch.max.bytes`.
        together_bytes: the limit of all fetches together.
    """

    def __init__(
        self,
        max_bytes: int,
        together_bytes: int = _TOGETHER_BYTES,
        unsent: UnsentMemory | None = None,
    ) -> None:
        self.granted_bytes = 0
        self.max_bytes = max_bytes
        self._together_bytes = together_bytes
        self._unsent = unsent or NoSendBacklog()
        self._unsent.on_decrease = self._wake
        self._waiting: tuple[dict[Callable[[], None], int], ...] = ({}, {})

    @property
    def _used_bytes(self) -> int:
        return self.granted_bytes + self._unsent.total_bytes

    def _max_bytes(self, is_prompt: bool) -> int:
        return self._together_bytes if is_prompt else self._together_bytes // 4 * 3

    def grant(self, wanted_bytes: int) -> int:
        """Return how many bytes may be read; release them when the response is sent."""
        granted = min(wanted_bytes, self.max_bytes)
        if self.granted_bytes + granted > self._together_bytes:
            granted = min(granted, SMALL_FETCH_BYTES)
        self.granted_bytes += granted
        return granted

    def ask(self, wanted_bytes: int, least_bytes: int, *, is_prompt: bool) -> int:
        """Return how many bytes a consumer may read; 0 if it must wait.

        Args:
            least_bytes: the maximum size of its first batch, which is always read as a whole.
            is_prompt: the client has read its earlier responses.
        """
        least = min(least_bytes, self._together_bytes // 4)
        granted = max(min(wanted_bytes, self.max_bytes), least)
        if self._used_bytes + granted > self._together_bytes // 2:
            granted = least
            if not self._has_room(least, is_prompt):
                self._unsent.make_room()
                if not self._has_room(least, is_prompt):
                    return 0
        self.granted_bytes += granted
        return granted

    def _has_room(self, count: int, is_prompt: bool) -> bool:
        return self._used_bytes + count <= self._max_bytes(is_prompt)

    def give_back(self, granted_bytes: int) -> None:
        """Release granted bytes."""
        self.granted_bytes -= granted_bytes
        self._wake()

    def wait(self, wake: Callable[[], None], least_bytes: int, *, is_prompt: bool) -> None:
        """Call `wake` once when this many bytes may be available, in the order of the calls."""
        self._waiting[not is_prompt][wake] = min(least_bytes, self._together_bytes // 4)

    def forget(self, wake: Callable[[], None]) -> None:
        """Cancel the `wait` of a fetch."""
        for waiting in self._waiting:
            waiting.pop(wake, None)

    def _wake(self) -> None:
        used = self._used_bytes
        for waiting, is_prompt in zip(self._waiting, (True, False), strict=True):
            while waiting:
                wake = next(iter(waiting))
                used += waiting[wake]
                if used > self._max_bytes(is_prompt):
                    return
                del waiting[wake]
                wake()


class FetchShare:
    """The memory of one fetch.

    Attributes:
        room: how many bytes the current read may return, in memory or as ranges of files.
        is_refused: the last `ask` was refused for lack of memory.
    """

    __slots__ = ("_granted", "_least", "_memory", "_owner", "is_refused", "room")

    def __init__(self, memory: FetchMemory, owner: SocketOwner | None) -> None:
        self._memory = memory
        self._owner = owner
        self._granted = self._least = self.room = 0
        self.is_refused = False

    def take(self, wanted_bytes: int) -> None:
        """Take memory for a client that must not wait."""
        self._granted = self.room = self._memory.grant(wanted_bytes)

    @property
    def _is_prompt(self) -> bool:
        return self._owner is not None and self._owner.may_send_directly

    def ask(self, wanted_bytes: int, least_bytes: int) -> None:
        """Take memory to read into, if available; see `FetchMemory.ask`.

        Records that are sent from their file with sendfile need no memory, so they may always be
        read.
        """
        self._least = least_bytes
        self._granted = self._memory.ask(wanted_bytes, least_bytes, is_prompt=self._is_prompt)
        self.is_refused = not self._granted
        self.room = min(wanted_bytes, self._granted or self._memory.max_bytes)

    def give_back(self) -> None:
        """End the current read."""
        granted, self._granted = self._granted, 0
        if granted:
            self._memory.give_back(granted)

    def wait(self, wake: Callable[[], None]) -> None:
        """If the last `ask` was refused, call `wake` once when memory may be available."""
        if self.is_refused:
            self._memory.wait(wake, self._least, is_prompt=self._is_prompt)

    def forget(self, wake: Callable[[], None]) -> None:
        """Cancel `wait`."""
        if self.is_refused:
            self._memory.forget(wake)
