"""Looks up names of hosts before the controller decides on a request that contains them."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import Final, TypeAlias

FindUnresolved: TypeAlias = Callable[[Sequence[str]], Awaitable[Collection[str]]]
"""Takes names of hosts and returns those without an address."""

_TIMEOUT_S: Final = 10.0
"""For all names of a request together; a name that is not resolved by then counts as unresolved."""


async def unresolved_hosts(names: Sequence[str]) -> Collection[str]:
    """Return the names that the system's resolver finds no address for, one look-up at a time."""
    left = dict.fromkeys(names)
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            for name in names:
                try:
                    await loop.getaddrinfo(name, None)
                except (OSError, UnicodeError):
                    continue
                del left[name]
    except TimeoutError:
        pass
    return list(left)
