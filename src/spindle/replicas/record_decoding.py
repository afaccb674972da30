"""Decoding of batches that clients have written, away from event loop and directories.

A batch of a few kilobytes can unpack to `decoded_bytes_limit` and take a second of the interpreter.
A broker decodes one such batch at a time, so their memory does not add up, and no client takes more
than one thread's share of the processor.
"""

import asyncio
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class RecordDecoding:
    """Runs functions that decode batches on a thread, one after another."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()

    async def run(self, function: Callable[[*Ts], T], *args: *Ts) -> T:
        """Run `function(*args)` when its turn comes, and return its result.

        The function must not use the event loop or files.
        """
        async with self._turn:
            return await asyncio.get_running_loop().run_in_executor(None, function, *args)
