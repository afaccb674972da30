"""Limits the memory that fetches read into, each of them and all together (KIP-541).

Answers that their clients have not taken count, too. Records sent with sendfile are not counted.
"""

from collections.abc import Callable
from typing import Final, Protocol

from spindle.serving.fetch.sendfile_response import SocketOwner

_TOGETHER_BYTES: Final = 128 * 1024 * 1024
SMALL_FETCH_BYTES: Final = 64 * 1024


class UnsentMemory(Protocol):
    """The answers that clients have not taken yet, of all connections.

    Attributes:
        total_bytes: their size, at least.
        on_decrease: called when it has become less.
    """

    total_bytes: int
    on_decrease: Callable[[], None]

    def make_room(self) -> None:
        """Count anew, and end connections whose clients have taken nothing for long."""
        ...


class NoSendBacklog:
    """For fetches whose clients are trusted."""

    def __init__(self) -> None:
        self.total_bytes = 0
        self.on_decrease: Callable[[], None] = lambda: None

    def make_room(self) -> None:
        """There is nothing to end."""


class FetchMemory:
    """Grants bytes to fetches while they read from disk.

    When half of the memory is in use, a new fetch gets little: its client makes progress and
    fetches again. A consumer may have to wait. The last quarter is for clients that have taken
    what they were sent, so that those that take nothing cannot stop them.

    Args:
        max_bytes: what one fetch may have, `fetch.max.bytes`.
        together_bytes: what all may have.
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

    def _most_bytes(self, is_prompt: bool) -> int:
        return self._together_bytes if is_prompt else self._together_bytes // 4 * 3

    def grant(self, wanted_bytes: int) -> int:
        """Return how many bytes may be read; give them back when the fetch is answered."""
        granted = min(wanted_bytes, self.max_bytes)
        if self.granted_bytes + granted > self._together_bytes:
            granted = min(granted, SMALL_FETCH_BYTES)
        self.granted_bytes += granted
        return granted

    def ask(self, wanted_bytes: int, least_bytes: int, *, is_prompt: bool) -> int:
        """Return how many bytes a consumer may read; 0 if it must wait.

        Args:
            least_bytes: the size that its first batch may have, which is given whole.
            is_prompt: the client has taken what it was sent before.
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
        return self._used_bytes + count <= self._most_bytes(is_prompt)

    def give_back(self, granted_bytes: int) -> None:
        """End a grant."""
        self.granted_bytes -= granted_bytes
        self._wake()

    def wait(self, wake: Callable[[], None], least_bytes: int, *, is_prompt: bool) -> None:
        """Call `wake` once when there may be room for so many bytes, in the order of the calls."""
        self._waiting[not is_prompt][wake] = min(least_bytes, self._together_bytes // 4)

    def forget(self, wake: Callable[[], None]) -> None:
        """Let a fetch wait no more."""
        for waiting in self._waiting:
            waiting.pop(wake, None)

    def _wake(self) -> None:
        used = self._used_bytes
        for waiting, is_prompt in zip(self._waiting, (True, False), strict=True):
            while waiting:
                wake = next(iter(waiting))
                used += waiting[wake]
                if used > self._most_bytes(is_prompt):
                    return
                del waiting[wake]
                wake()


class FetchShare:
    """The memory of one fetch.

    Attributes:
        room: how many bytes the present read may find, in memory or in files.
        is_refused: there was no memory to read into.
    """

    __slots__ = ("_granted", "_least", "_memory", "_owner", "is_refused", "room")

    def __init__(self, memory: FetchMemory, owner: SocketOwner | None) -> None:
        self._memory = memory
        self._owner = owner
        self._granted = self._least = self.room = 0
        self.is_refused = False

    def take(self, wanted_bytes: int) -> None:
        """Take memory for a client that never waits."""
        self._granted = self.room = self._memory.grant(wanted_bytes)

    @property
    def _is_prompt(self) -> bool:
        return self._owner is not None and self._owner.may_send_directly

    def ask(self, wanted_bytes: int, least_bytes: int) -> None:
        """Take memory to read into, if there is some; see `FetchMemory.ask`.

        Records that go from a file to the socket need none, so there is room for them in any case.
        """
        self._least = least_bytes
        self._granted = self._memory.ask(wanted_bytes, least_bytes, is_prompt=self._is_prompt)
        self.is_refused = not self._granted
        self.room = min(wanted_bytes, self._granted or self._memory.max_bytes)

    def give_back(self) -> None:
        """End the present read."""
        granted, self._granted = self._granted, 0
        if granted:
            self._memory.give_back(granted)

    def wait(self, wake: Callable[[], None]) -> None:
        """Call `wake` once when there may be room, if the last `ask` was refused."""
        if self.is_refused:
            self._memory.wait(wake, self._least, is_prompt=self._is_prompt)

    def forget(self, wake: Callable[[], None]) -> None:
        """Wait no more."""
        if self.is_refused:
            self._memory.forget(wake)
