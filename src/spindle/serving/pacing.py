"""Long loops in handlers that let others have the event loop in between."""

from collections.abc import AsyncIterator, Generator, Iterable
from time import perf_counter
from types import coroutine
from typing import Final, TypeVar

_SLICE_S: Final = 0.005
_STRIDE: Final = 16

T = TypeVar("T")


@coroutine
def let_others() -> Generator[None, None, None]:
    """One turn of the event loop for everybody else."""
    yield


async def paced(items: Iterable[T]) -> AsyncIterator[T]:
    """The items, with a pause whenever a slice of time was used up."""
    left, ends_s = _STRIDE, perf_counter() + _SLICE_S
    for item in items:
        yield item
        left -= 1
        if not left:
            left = _STRIDE
            if perf_counter() > ends_s:
                await let_others()
                ends_s = perf_counter() + _SLICE_S
