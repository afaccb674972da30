"""Pauses in long loops of handlers, in which the event loop serves other requests."""

from collections.abc import AsyncIterator, Generator, Iterable
from time import perf_counter
from types import coroutine
from typing import Final, TypeVar

_SLICE_S: Final = 0.005
_STRIDE: Final = 16

T = TypeVar("T")


@coroutine
def yield_to_loop() -> Generator[None, None, None]:
    """Wait for one turn of the event loop."""
    yield


async def cooperatively(items: Iterable[T]) -> AsyncIterator[T]:
    """Yield the items, with a pause after each slice of 5 ms."""
    left, ends_s = _STRIDE, perf_counter() + _SLICE_S
    for item in items:
        yield item
        left -= 1
        if not left:
            left = _STRIDE
            if perf_counter() > ends_s:
                await yield_to_loop()
                ends_s = perf_counter() + _SLICE_S
