"""Looks up host names before the controller decides on a request that contains them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Any, Final, TypeAlias

FindUnresolved: TypeAlias = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""Takes host names and returns those without an address."""

_TIMEOUT_S: Final = 10.0


async def _ask_system(name: str) -> object:
    return await asyncio.get_running_loop().getaddrinfo(name, None)


class HostNames:
    """Asks the system's resolver for one name at a time, whatever the number of requests.

    The resolver has few threads, and connections to other nodes need them. Any client may send
    names whose servers are slow; such names must not occupy all threads.

    Args:
        look_up: raises OSError for a name without an address.
        timeout_s: for all names of a request together, including the wait for its turn; a name that
            is not resolved by then counts as unresolved.
    """

    def __init__(
        self,
        look_up: Callable[[str], Awaitable[object]] = _ask_system,
        timeout_s: float = _TIMEOUT_S,
    ) -> None:
        self._look_up = look_up
        self._timeout_s = timeout_s
        self._turn = asyncio.Lock()

    async def unresolved(self, names: Sequence[str]) -> Collection[str]:
        """Return the names that have no address."""
        left = dict.fromkeys(names)
        try:
            async with asyncio.timeout(self._timeout_s):
                for name in names:
                    if await self._has_address(name):
                        del left[name]
        except TimeoutError:
            pass
        return list(left)

    async def _has_address(self, name: str) -> bool:
        await self._turn.acquire()
        look_up = asyncio.ensure_future(self._look_up(name))
        look_up.add_done_callback(self._ended)
        try:
            # A thread that looks up a name cannot be stopped; the next turn begins when it ends.
            await asyncio.shield(look_up)
        except (OSError, UnicodeError):
            return False
        return True

    def _ended(self, look_up: "asyncio.Future[Any]") -> None:
        self._turn.release()
        if not look_up.cancelled():
            look_up.exception()  # the request may have been answered already
