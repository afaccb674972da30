"""Connections that send requests in turn until an attack is over, and learn from the answers."""

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any, Final, NamedTuple

from spindle.protocol.message import Message
from verification.fuzz.wire import RawConnection

_PAUSE_S: Final = 0.05


class PlayerMove(NamedTuple):
    """A request, its version (None: the newest), and the function that gets the answer."""

    request: Message
    version: int | None
    learn: Callable[[Any], None]


async def play(
    host: str,
    port: int,
    players: int,
    random: Random,
    next_move: Callable[[], PlayerMove],
    is_over: Callable[[], bool],
) -> None:
    """Let players, each with a connection of its own, send requests until it is over.

    Raises:
        Finding: a request was not answered in time.
    """

    async def one() -> None:
        client = await RawConnection.connect(host, port)
        try:
            while not is_over():
                move = next_move()
                move.learn(await client.ask(move.request, move.version))
                await asyncio.sleep(random.uniform(0, _PAUSE_S))
        finally:
            client.close()

    async with asyncio.TaskGroup() as group:
        for _ in range(players):
            group.create_task(one())
